"""`durable recovery` and `durable readiness`: a region that is declared lost, and its way back."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal

WHY = ("--reason", "INC-13")
CRITICAL = "  priority: 900\n"


@pytest.fixture
def signing(
    at_plane: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Terminal]:
    """Orders about regions are signed; the key counts no longer afterwards."""
    monkeypatch.setenv("DURABLE_KEYS_DIR", str(tmp_path / "keys"))
    at_plane.json("operator", "key")
    yield at_plane
    at_plane.json("operator", "key", "--forget")


def shown_as(terminal: Terminal, region: str, phase: str) -> Any:
    """The recovery, once it has reached a phase."""
    give_up = time.monotonic() + 240
    while True:
        shown = terminal.json("recovery", "show", region)
        if shown["recovery"]["phase"] == phase or time.monotonic() > give_up:
            assert shown["recovery"]["phase"] == phase, shown
            return shown
        time.sleep(0.5)


def state_of_region(terminal: Terminal, region: str) -> str:
    listed = terminal.json("get", "regions")["regions"]
    return next(one["state"] for one in listed if one["region"] == region)


def test_a_region_is_declared_lost_emptied_and_given_back(signing: Terminal, write: Write) -> None:
    signing.json("apply", "-f", write(service("urgent", 4, more=CRITICAL)))
    assert signing.refusal("recovery", "show", "south") == "wrong_state"
    for order in ("confirm", "failback", "settle"):
        assert signing.refusal("recovery", order, "south", *WHY) == "wrong_state"

    declared = signing.json("recovery", "declare", "north", *WHY, "--timeout", "240")["recovery"]
    assert declared["recovery"]["phase"] == "holding"
    assert declared["report"]["recovered"] == declared["report"]["critical"]
    assert state_of_region(signing, "north") == "fenced"
    assert signing.refusal("recovery", "veto", "north", *WHY) == "wrong_state"
    assert signing.run("recovery", "show", "north") == 0
    assert "holding: 1 of 1 critical workloads have served again" in signing.stdout

    assert signing.json("recovery", "failback", "north", *WHY)["answer"]
    ended = shown_as(signing, "north", "failed_back")
    assert ended["recovery"]["findings"] == []
    assert state_of_region(signing, "north") == "open"

    assert signing.json("recovery", "veto", "south", *WHY)["answer"]
    shown_as(signing, "south", "vetoed")
    signing.json("recovery", "declare", "south", *WHY, "--no-wait")
    shown_as(signing, "south", "holding")
    assert signing.json("recovery", "settle", "south", *WHY)["answer"]
    shown_as(signing, "south", "settled")
    signing.json("delete", "shop/urgent")


def test_without_a_signature_nobody_is_declared_lost(at_plane: Terminal) -> None:
    assert at_plane.refusal("recovery", "declare", "north", *WHY) == "signature_missing"


@pytest.mark.parametrize(
    ("where", "code"),
    [("weights: {north: 1, south: 1}", 0), ("requirements: {regions: [north]}", 1)],
)
def test_readiness_says_whether_critical_work_would_come_back(
    at_plane: Terminal, write: Write, where: str, code: int
) -> None:
    at_plane.json("apply", "-f", write(service("ready", 2, more=f"{CRITICAL}  {where}\n")))
    assert at_plane.run("readiness", "--region", "north", "--json") == code
    found = json.loads(at_plane.stdout)
    [loss] = found["regions"]
    [ready] = [one for one in loss["workloads"] if one["workload"] == "ready"]
    assert found["is_met"] is loss["is_met"] is ready["is_met"] is (code == 0)
    assert bool(ready["missing"]) is (code == 1)
    assert at_plane.run("readiness", "--region", "north") == code
    assert "shop/ready" in at_plane.stdout
    at_plane.json("delete", "shop/ready")

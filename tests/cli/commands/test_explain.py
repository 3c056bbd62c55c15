"""`durable explain` on a running control plane, and the SDK beside it."""

import asyncio
from pathlib import Path
from typing import Any

from durable.client import Durable
from durable.model.work.phases import Owner
from durable.plan.step import Action
from durable.settings import Settings

from ..terminal import Terminal


def test_an_explanation_has_every_step(seen: Terminal) -> None:
    report = seen.json("explain", "shop/seen")
    assert (report["workload"], report["generation"], report["ended"]) == ("seen", 1, False)
    for region in report["regions"]:
        assert region["owner"] == Owner.NONE
        assert region["queue"]["queue_seconds"] >= 0
        *_, attempt = region["attempts"]
        assert attempt["policy_revision"] >= 1
        assert attempt["cache_version"] >= 1
        assert attempt["grant_before"] != attempt["grant_after"]
        assert attempt["candidates"][0]["scores"]
        steps = {step["step"] for step in attempt["steps"] if step["refusal"] is None}
        assert {"reserve", "bind", "start"} <= steps
        assert {slot["state"] for slot in region["observed"]} == {"serving"}
    assert seen.run("explain", "shop/seen") == 0
    for word in (
        "Queue:",
        "policy revision",
        "Grant:",
        "Filters:",
        "Candidate",
        "Committed for",
    ):
        assert word in seen.stdout


def test_one_slot_or_one_attempt_can_be_explained_alone(seen: Terminal) -> None:
    [region] = seen.json("explain", "shop/seen", "--slot", "1")["regions"]
    assert region["slots"] == [1]
    assert [slot["slot"] for slot in region["observed"]] == [1]
    assert {step["slot"] for one in region["attempts"] for step in one["steps"]} == {1}
    attempts = seen.json("explain", "shop/seen", "--attempt", "1")["regions"]
    assert all(one["attempt"] == 1 for region in attempts for one in region["attempts"])


def test_an_unknown_generation_attempt_or_slot_is_refused(seen: Terminal) -> None:
    assert "only generation 1; there is no generation 7" in seen.refused(
        "explain", "shop/seen", "--generation", "7"
    )
    message = seen.refused("explain", "shop/seen", "--attempt", "1000000")
    assert (
        "There is no attempt 1000000 for shop/seen in generation 1: north made only attempt 1"
        in message
    )
    assert "slot 99" in seen.refused("explain", "shop/seen", "--slot", "99")
    seen.wrong("explain", "shop/seen", "--slot", "-1")
    seen.wrong("explain", "shop/seen", "--generation", "0")


def test_the_sdk_plans_and_explains(seen: Terminal, plane: Path) -> None:
    manifest: dict[str, Any] = {
        "tenant": "shop",
        "name": "seen",
        "spec": {"replicas": 3, "resources": {"cpu": 1, "memory": "1Gi"}},
    }

    async def ask() -> None:
        async with await Durable.connect(Settings(state_dir=plane)) as durable:
            assert (await durable.plan(manifest)).action is Action.NOTHING
            report = await durable.explain("shop", "seen", slot=0)
            assert [region.slots for region in report.regions] == [(0,)]

    asyncio.run(ask())

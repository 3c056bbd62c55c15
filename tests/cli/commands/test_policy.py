"""`durable policy` on a running control plane: published, compared, promoted, rolled back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from durable.scheduling.policies import first_policy

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal

WHY = ("--reason", "INC-42")


@pytest.fixture
def policies(at_plane: Terminal) -> Iterator[Terminal]:
    """The plane is shared: whatever a test promoted is taken back."""
    yield at_plane
    at_plane.run("policy", "rollback", "--reason", "the test has ended")


@pytest.fixture
def policy_file(tmp_path: Path) -> Callable[..., str]:
    """A file with the shipped policy, but for these fields."""

    def write(**changes: Any) -> str:
        guardrails = {"bake_seconds": 0, "step_seconds": 0}
        content = {**first_policy().model_dump(mode="json"), "guardrails": guardrails, **changes}
        file = tmp_path / "policy.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return str(file)

    return write


def in_force(terminal: Terminal) -> dict[int, str | None]:
    listed = terminal.json("policy", "list")["policies"]
    return {one["revision"]: one["in_force"] for one in listed}


def test_a_revision_is_published_compared_promoted_and_rolled_back(
    policies: Terminal, policy_file: Callable[..., str], write: Write
) -> None:
    policies.json("apply", "-f", write(service("placed", 4)))
    file = policy_file(weights={"packing": 9.0}, choice_band=0.0)
    revision = policies.json("policy", "publish", file, *WHY)["revision"]
    assert policies.json("policy", "publish", file, *WHY)["revision"] == revision, "the same one"
    assert in_force(policies)[revision] is None
    everywhere = policy_file(**first_policy().model_dump(mode="json"))
    assert policies.run("policy", "publish", everywhere, *WHY) == 0
    assert "Revision 1 has this content already, and is everywhere" in policies.stdout

    changed = policies.json("policy", "diff", "1", str(revision))["differences"]
    assert {one["field"] for one in changed} >= {"weights.packing", "choice_band"}
    compared = policies.json("policy", "shadow", str(revision))["regions"]
    assert sum(one["decisions"] for one in compared) >= 1
    assert policies.run("policy", "shadow", str(revision)) == 0
    assert "made again" in policies.stdout

    promoted = policies.json("policy", "promote", str(revision), "--canary", "south", *WHY)
    assert promoted["stage"] == "everywhere"
    assert "south (active)" in (in_force(policies)[revision] or "")
    policies.json("apply", "-f", write(service("later", 4)))
    back = policies.json("policy", "rollback", *WHY)
    assert (back["revision"], back["stage"]) == (revision, "rolled_back")
    assert sum(one["goes_on"] for one in back["report"] if one["workload"] == "later") == 4
    assert policies.run("policy", "show", str(revision)) == 0
    assert "rolled_back" in policies.stdout
    assert "shop/later" in policies.stdout
    assert policies.run("explain", "shop/later") == 0
    said = f"placed under policy revision {revision}, which was rolled back"
    assert said in " ".join(policies.stdout.split())
    for name in ("placed", "later"):
        policies.json("delete", f"shop/{name}")


def test_a_bad_file_is_refused_with_file_line_and_reason(
    policies: Terminal, policy_file: Callable[..., str]
) -> None:
    before = policies.json("policy", "list")["total"]
    for changes, key, words in (
        ({"weights": {"spred": 1.0}}, "spred", "unknown score spred"),
        ({"weights": {"spread": "much"}}, "spread", "weights.spread"),
        ({"filters": ["none"]}, "filters", "filters"),
        ({"retry_first_seconds": 601.0}, "retry_first_seconds", "retry_first_seconds"),
        ({"urgency": {"ceiling": 950}}, "ceiling", "would make any job critical"),
    ):
        file = policy_file(**changes)
        written = [line.split(":")[0].strip() for line in Path(file).read_text().splitlines()]
        line = 1 + written.index(key)
        message = policies.wrong("policy", "publish", file)
        assert words in message, changes
        assert f"policy.yaml:{line}:" in message.replace("\n", ""), changes
    assert policies.json("policy", "list")["total"] == before


def test_what_is_wrong_is_refused_with_what_is_allowed(
    policies: Terminal, policy_file: Callable[..., str]
) -> None:
    assert policies.refusal("policy", "show", "99") == "unknown_policy"
    assert policies.refusal("policy", "shadow", "99") == "unknown_policy"
    assert policies.refusal("policy", "promote", "99", *WHY) == "unknown_policy"
    revision = policies.json("policy", "publish", policy_file(choice_band=0.3))["revision"]
    wrong = ("policy", "promote", str(revision), "--canary", "nowhere")
    assert policies.refusal(*wrong) == "unknown_region"
    assert policies.refusal("policy", "pause", str(revision)) == "wrong_state"
    assert "--reason" in policies.wrong("policy", "rollback")

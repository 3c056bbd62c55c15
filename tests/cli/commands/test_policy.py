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


def in_force(terminal: Terminal) -> dict[int, dict[str, str]]:
    listed = terminal.json("policy", "list")["policies"]
    return {one["revision"]: one["in_force"] for one in listed}


def test_a_revision_is_published_compared_promoted_and_rolled_back(
    policies: Terminal, policy_file: Callable[..., str], write: Write
) -> None:
    policies.json("apply", "-f", write(service("placed", 4)))
    file = policy_file(weights={"packing": 9.0}, choice_band=0.0)
    revision = policies.json("policy", "publish", file, *WHY)["revision"]
    assert policies.json("policy", "publish", file, *WHY)["revision"] == revision, "the same one"
    assert in_force(policies)[revision] == {}
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
    assert promoted["phase"] == "everywhere"
    assert in_force(policies)[revision]["south"] == "active"
    policies.json("apply", "-f", write(service("later", 4)))
    back = policies.json("policy", "rollback", *WHY)
    assert (back["revision"], back["phase"]) == (revision, "rolled_back")
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


def test_a_frozen_policy_is_not_promoted_from_the_terminal_either(
    policies: Terminal, policy_file: Callable[..., str]
) -> None:
    file = policy_file(choice_band=0.4)
    revision = str(policies.json("policy", "publish", file, *WHY)["revision"])
    frozen = policies.json("policy", "freeze", "--region", "north", "--ttl", "1h", *WHY)
    assert frozen["answer"].startswith("In force: policy-freeze on region north until")
    promote = ("policy", "promote", revision, "--canary", "north", *WHY)
    assert policies.refusal(*promote) == "policy_frozen"
    assert "INC-42" in policies.refused(*promote)
    policies.json("override", "revoke", frozen["override"], *WHY)

    assert policies.run("policy", "freeze", *WHY) == 0, policies.stderr
    said = " ".join(policies.stdout.split())
    name, _, rest = said.partition(": ")
    assert rest.startswith("In force: policy-freeze on everything until")
    assert f"To end it early: `durable override revoke {name} --reason ...`" in said
    assert policies.refusal(*promote) == "policy_frozen"
    assert revision not in {str(one) for one, where in in_force(policies).items() if where}
    policies.json("override", "revoke", name, *WHY)


def test_a_rollback_goes_to_the_named_revision_and_replaces_what_was_placed(
    policies: Terminal, policy_file: Callable[..., str], write: Write
) -> None:
    def promote(choice_band: float) -> str:
        file = policy_file(choice_band=choice_band)
        revision = str(policies.json("policy", "publish", file, *WHY)["revision"])
        policies.json("policy", "promote", revision, *WHY)
        return revision

    first, _, third = [promote(band) for band in (0.11, 0.12, 0.13)]
    back = policies.json("policy", "rollback", "--to", first, *WHY)
    assert (str(back["revision"]), back["phase"]) == (third, "rolled_back")
    assert {str(one) for one, where in in_force(policies).items() if where} == {first}
    assert policies.refusal("policy", "rollback", "--to", first, *WHY) == "wrong_state"
    assert policies.refusal("policy", "rollback", "--to", "99", *WHY) == "unknown_policy"

    bad = promote(0.14)
    policies.json("apply", "-f", write(service("rerolled", 2)))
    assert policies.run("policy", "rollback", "--to", first, "--reroll", *WHY) == 0, policies.stderr
    said = " ".join(policies.stdout.split())
    assert f"Revision {bad} is being rolled back" in said
    assert "what is bound is replaced" in said
    assert "shop/rerolled" in said
    assert f"Revision {bad} is rolled back." in said
    reported = policies.json("policy", "show", bad)["report"]
    counts = [
        (one["goes_on"], one["replaced"]) for one in reported if one["workload"] == "rerolled"
    ]
    assert [sum(column) for column in zip(*counts, strict=True)] == [0, 2]
    policies.json("delete", "shop/rerolled")


def test_wrong_words_about_orders_are_usage_errors(policies: Terminal) -> None:
    assert "--reason" in policies.wrong("policy", "freeze")
    for ttl in ("0s", "-1h", "5", "8d"):
        policies.wrong("policy", "freeze", "--ttl", ttl, *WHY)
    policies.wrong("policy", "freeze", "--region", "No Region", *WHY)
    assert policies.refusal("policy", "freeze", "--region", "nowhere", *WHY) == "unknown_region"
    for to in ("0", "-1", "first", str(2**31)):
        policies.wrong("policy", "rollback", "--to", to, *WHY)
    policies.wrong("policy", "rollback", "--to", *WHY)
    policies.wrong("policy", "rollback", "--reroll")

"""`durable override` and `durable get overrides`, from the proposal to the end."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from durable.settings import Settings

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal

HOLD = ("override", "create", "hold", "--scope", "tenant=shop", "--scope", "workload=kept")
WHY = ("--reason", "INC-1")


def test_an_override_is_created_listed_extended_and_revoked(
    at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(service("kept", 1)))
    made = at_plane.json(*HOLD, *WHY, "--ttl", "10m", "--name", "o-cli", "--ticket", "T-1")
    assert made["answer"].startswith("In force: hold on tenant shop, workload kept until")
    again = at_plane.refusal(*HOLD, *WHY, "--name", "o-cli")
    assert again == "key_conflict"
    late = at_plane.refused("scale", "shop/kept", "2", "--timeout", "3")
    assert "Held by" in late

    (row,) = at_plane.json("get", "overrides")["overrides"]
    assert (row["id"], row["state"], row["kind"]) == ("o-cli", "active", "hold")
    assert row["left"]
    assert row["obeyed_in"] == ["north", "south"]
    assert at_plane.run("override", "show", "o-cli") == 0
    shown = " ".join(at_plane.stdout.split())
    assert shown.startswith("override/o-cli: hold, tenant shop, workload kept active; ends by")
    assert re.search(r"\(9m( \d+s)? left when this was written\)", shown)
    assert "- north: has it - south: has it" in shown
    assert "It accepts now: extend, revoke." in shown
    assert at_plane.run("get", "overrides") == 0
    assert "INC-1" in at_plane.stdout

    extended = at_plane.json("override", "extend", "o-cli", "--by", "5m", *WHY)
    assert "Extended" in extended["answer"]
    too_long = at_plane.refusal("override", "extend", "o-cli", "--by", "7d", *WHY)
    assert too_long == "ttl_too_long"
    at_plane.json("override", "revoke", "o-cli", *WHY)
    assert at_plane.json("get", "overrides")["overrides"] == []
    known = at_plane.json("get", "overrides", "--all")["overrides"]
    assert [one["state"] for one in known if one["id"] == "o-cli"] == ["revoked"]
    assert at_plane.run("override", "show", "o-cli") == 0
    assert ": INC-1 (T-1)" in at_plane.stdout
    assert at_plane.refusal("override", "revoke", "o-cli", *WHY) == "override_ended"
    at_plane.json("delete", "shop/kept")


def test_what_needs_a_signature_or_does_not_exist_is_refused(at_plane: Terminal) -> None:
    glass = ("override", "create", "break-glass", "--scope", "tenant=shop", *WHY)
    assert at_plane.refusal(*glass, "--set", 'gates=["cordon"]') == "signature_missing"
    assert at_plane.refusal(*glass, "--set", 'gates=["hold"]') == "gate_not_overridable"
    assert at_plane.refusal("override", "approve", "nothing", *WHY) == "unknown_override"
    zone = ("override", "create", "avoid-zone", "--scope", "region=north", *WHY)
    assert at_plane.refusal(*zone, "--scope", "zone=nowhere") == "unknown_zone"
    assert "it lacks zone; name region, zone" in at_plane.wrong(*zone)


QUOTA = (
    "override", "create", "emergency-quota", "--scope", "region=north", "--scope", "tenant=shop",
    "--set", 'amount={"cpu": 1}', *WHY,
)  # fmt: skip


@pytest.fixture
def sit_down(
    at_plane: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Somebody with every right and a key of their own takes the keyboard."""
    me = Settings().acting_as
    seated: set[str] = set()

    def sit_down(name: str) -> None:
        monkeypatch.setenv("DURABLE_KEYS_DIR", str(tmp_path / name))
        if name not in seated:
            # The plane is shared: it may know them already, with the key of another test.
            monkeypatch.setenv("DURABLE_ACTOR", me)
            at_plane.run("operator", "add", name, "--right", "all")
            monkeypatch.setenv("DURABLE_ACTOR", name)
            at_plane.json("operator", "key")
            seated.add(name)
        monkeypatch.setenv("DURABLE_ACTOR", name)

    return sit_down


def test_a_second_person_with_a_key_approves_what_the_first_proposed(
    at_plane: Terminal, sit_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sit_down("person:first")
    assert at_plane.run(*QUOTA, "--name", "more-cli") == 0, at_plane.stderr
    said = " ".join(at_plane.stdout.split())
    assert said.startswith("more-cli: Proposed: emergency-quota on region north, tenant shop for")
    assert "`durable override approve more-cli --reason ...`" in said
    approve = ("override", "approve", "more-cli", *WHY)
    assert at_plane.refusal(*approve) == "self_approval"

    sit_down("person:second")
    with monkeypatch.context() as keyless:
        keyless.setenv("DURABLE_KEYS_DIR", "/nowhere")
        assert at_plane.refusal(*approve) == "signature_missing"
        assert "demands a signature for approve, by the key of person:second" in " ".join(
            at_plane.refused(*approve).split()
        )
    at_plane.run("override", "show", "more-cli")
    assert "proposed; a person other than person:first has to `approve` it" in at_plane.stdout
    approved = at_plane.json(*approve, "--request-id", "once")["answer"]
    assert approved.startswith("Approved: emergency-quota on region north, tenant shop is in force")
    assert at_plane.run(*approve, "--request-id", "once") == 0, "sent again, it counts once"
    assert " ".join(at_plane.stdout.split()) == approved
    assert at_plane.refusal(*approve) == "wrong_state"
    shown = at_plane.json("override", "show", "more-cli")["override"]
    assert (shown["state"], shown["approver"]) == ("active", "person:second")
    told = at_plane.json("audit", "log", "--object", "override/more-cli")["events"]
    assert [one["actor"] for one in told if one["action"] == "activate override"] == [
        "person:second"
    ]
    assert at_plane.run("override", "revoke", "more-cli", *WHY) == 0
    assert at_plane.stdout.strip() == "Revoked. It no longer has any effect."


def test_what_is_rejected_never_has_an_effect(
    at_plane: Terminal, sit_down: Callable[[str], None]
) -> None:
    sit_down("person:first")
    for name in ("no-cli", "never-cli"):
        assert at_plane.json(*QUOTA, "--name", name)["override"]["state"] == "proposed"
    sit_down("person:second")
    assert at_plane.json("override", "reject", "no-cli", *WHY) == {
        "answer": "Rejected: it never had an effect."
    }
    assert at_plane.run("override", "reject", "never-cli", "--reason", "too much") == 0
    assert at_plane.stdout.strip() == "Rejected: it never had an effect."
    assert at_plane.refusal("override", "reject", "no-cli", *WHY) == "override_ended"
    assert at_plane.refusal("override", "approve", "no-cli", *WHY) == "override_ended"
    assert at_plane.run("override", "show", "never-cli") == 0
    assert "rejected by person:second: too much" in " ".join(at_plane.stdout.split())
    (never,) = [
        one
        for one in at_plane.json("get", "overrides", "--all")["overrides"]
        if one["id"] == "never-cli"
    ]
    assert (never["state"], never["obeyed_in"]) == ("rejected", [])


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_approval_or_rejection_names_what_it_is_about_and_why(
    at_plane: Terminal, verb: str
) -> None:
    assert "--reason" in at_plane.wrong("override", verb, "anything")
    assert "NAME" in at_plane.wrong("override", verb, *WHY)
    at_plane.wrong("override", verb, "anything", "--reason", " ")
    at_plane.wrong("override", verb, "anything", *WHY, "--force")
    assert at_plane.refusal("override", verb, "nothing", *WHY) == "unknown_override"


def test_wrong_words_are_usage_errors(at_plane: Terminal) -> None:
    at_plane.wrong("override", "create", "unicorn", *WHY)
    at_plane.wrong(*HOLD)
    for ttl in ("0s", "-5m", "5", "soon", f"{2**63}s", "8d"):
        assert "up to 7d for hold" in " ".join(at_plane.wrong(*HOLD, *WHY, "--ttl", ttl).split())
    refused = [
        (one["after"]["command"], one["after"]["code"])
        for one in at_plane.json("audit", "log", "--actor", Settings().acting_as)["events"]
        if one["action"] == "refuse command" and "command" in one["after"]
    ]
    assert refused.count(("override create hold", "invalid")) == 6
    assert ("override create unicorn", "invalid") in refused
    assert at_plane.run("audit", "log", "--actor", Settings().acting_as) == 0
    shown = " ".join(at_plane.stdout.split())
    assert "refuse command override create unicorn; refused: there is no kind 'unicorn'" in shown
    for reason in ("", " "):
        at_plane.wrong(*HOLD, "--reason", reason)
    at_plane.wrong("override", "create", "hold", *WHY, "--scope", "tenant")
    at_plane.wrong("override", "create", "hold", *WHY, "--scope", "planet=mars")
    at_plane.wrong(*HOLD, *WHY, "--name", "Not A Name")
    at_plane.wrong("override", "extend", "o-cli", "--by", "never", *WHY)

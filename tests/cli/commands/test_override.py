"""`durable override` and `durable get overrides`, from the proposal to the end."""

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
    assert (row["override"], row["state"], row["kind"]) == ("o-cli", "active", "hold")
    assert row["left"]
    assert row["regions"] == ["north", "south"]
    assert at_plane.run("override", "show", "o-cli") == 0
    assert "obeyed in: north, south" in at_plane.stdout
    assert "time left: 9m" in at_plane.stdout
    assert at_plane.run("get", "overrides") == 0
    assert "INC-1" in at_plane.stdout

    extended = at_plane.json("override", "extend", "o-cli", "--by", "5m", *WHY)
    assert "Extended" in extended["answer"]
    too_long = at_plane.refusal("override", "extend", "o-cli", "--by", "7d", *WHY)
    assert too_long == "ttl_too_long"
    at_plane.json("override", "revoke", "o-cli", *WHY)
    assert at_plane.json("get", "overrides")["overrides"] == []
    (ended,) = at_plane.json("get", "overrides", "--all")["overrides"]
    assert ended["state"] == "revoked"
    assert at_plane.run("override", "show", "o-cli") == 0
    assert "ticket: T-1" in at_plane.stdout
    assert at_plane.refusal("override", "revoke", "o-cli", *WHY) == "override_ended"
    at_plane.json("delete", "shop/kept")


def test_what_needs_a_signature_or_does_not_exist_is_refused(at_plane: Terminal) -> None:
    glass = ("override", "create", "break-glass", "--scope", "tenant=shop", *WHY)
    assert at_plane.refusal(*glass, "--set", 'gates=["cordon"]') == "signature_missing"
    assert at_plane.refusal(*glass, "--set", 'gates=["hold"]') == "gate_not_overridable"
    assert at_plane.refusal("override", "approve", "nothing", *WHY) == "unknown_override"
    zone = ("override", "create", "avoid-zone", "--scope", "region=north", *WHY)
    assert at_plane.refusal(*zone, "--scope", "zone=nowhere") == "unknown_zone"
    assert "a scope with region, zone" in at_plane.wrong(*zone)


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

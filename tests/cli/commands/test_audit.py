"""`durable audit` against a real authority."""

import json
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from pydantic import JsonValue

from durable.cli.commands.audit import _refusal, _sender  # pyright: ignore[reportPrivateUsage]
from durable.model.placement.records import AuditEvent

from ..builders import SMALL_FLEET
from ..conftest import Write
from ..terminal import Terminal


def test_the_audit_is_verified_and_anchored(
    terminal: Terminal, write: Write, database_url: str
) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    heads = terminal.json("audit", "head")["heads"]
    assert {head.split(":")[0] for head in heads} == {"global", "us-east"}
    anchors = [word for head in heads for word in ("--anchor", head)]
    assert terminal.json("audit", "verify", *anchors)["holds"] is True

    with psycopg.connect(database_url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE audit.events SET actor = 'person:nobody' WHERE chain = 'us-east'"
            " AND sequence = 2"
        )
    assert terminal.run("audit", "verify") == 1
    assert "event 2 of us-east" in terminal.stdout
    assert "was changed" in terminal.stdout


@pytest.mark.parametrize("anchor", ["nonsense", "us-east:1", "us-east:x:00", "us-east:1:00"])
def test_a_wrong_anchor_is_a_usage_error(terminal: Terminal, anchor: str) -> None:
    assert terminal.run("audit", "verify", "--anchor", anchor) == 2
    assert "Traceback" not in terminal.stderr


def test_the_log_shows_who_did_what(terminal: Terminal, write: Write) -> None:
    assert terminal.run("audit", "log") == 0
    assert "There are no events yet" in terminal.stdout
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    events = terminal.json("audit", "log")["events"]
    report = {event["action"] for event in events}
    assert {"add region", "declare nodes", "set quota", "transfer grant"} <= report
    assert all(event["actor"].startswith("person:") for event in events)
    regional = terminal.json("audit", "log", "--chain", "us-east", "--last", "1")["events"]
    assert [event["chain"] for event in regional] == ["us-east"]
    assert terminal.run("audit", "log") == 0
    assert "add region" in terminal.stdout
    assert terminal.stderr == ""


def test_a_log_says_that_older_events_are_not_shown(terminal: Terminal, write: Write) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    every = terminal.json("audit", "log")
    assert every["has_older"] is False
    cut = terminal.json("audit", "log", "--last", "2")
    assert (cut["has_older"], cut["events"]) == (True, every["events"][-2:])
    assert terminal.run("audit", "log", "--last", "2") == 0
    assert "Older events are not shown: raise --last (up to 10,000)" in terminal.stderr


def test_a_chain_that_vanished_since_it_was_anchored_is_found(terminal: Terminal) -> None:
    assert terminal.run("audit", "verify", "--anchor", f"us-east:3:{'ab' * 32}") == 1
    assert "us-east" in terminal.stdout


def event(after: dict[str, JsonValue] | None) -> AuditEvent:
    return AuditEvent(
        chain="us-east",
        sequence=1,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        actor="controller:messages",
        database_role="durable_placement",
        action="take message evict",
        object="placement/risk/api/g1/us-east",
        before=None,
        after=after,
        hash="0",
    )


def test_the_sender_of_a_message_and_the_reason_are_shown() -> None:
    payload = json.dumps({"actor": "ann", "reason": "bad node", "request_id": "e1"})
    assert _sender(event({"payload": payload})) == ", sent by ann: bad node"


@pytest.mark.parametrize(
    "after",
    [None, {}, {"payload": "{not json"}, {"payload": "[1]"}, {"payload": '{"actor": "ann"}'}],
)
def test_an_event_without_a_sender_shows_none(after: dict[str, JsonValue] | None) -> None:
    assert _sender(event(after)) == ""


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ("reject message evict", "; refused: reason: it is missing"),
        ("accept message evict", ""),
        ("reject a quota", ""),
    ],
)
def test_a_rejected_message_is_shown_with_the_reason(action: str, shown: str) -> None:
    answered = event({"answer": "reason: it is missing"})
    assert _refusal(answered.model_copy(update={"action": action})) == shown


def test_the_log_is_searched_by_object_actor_and_time(terminal: Terminal, write: Write) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    terminal.json("operator", "add", "service:ci")

    def found(*words: str) -> set[str]:
        return {event["object"] for event in terminal.json("audit", "log", *words)["events"]}

    assert found("--object", "operator") == {"operator/service:ci"}
    assert found("--object", "operator/service") == set()
    assert found("--actor", "service:ci") == set()
    everything = found("--since", "1h")
    assert "operator/service:ci" in everything
    assert found("--since", "2020-01-01", "--last", "100") == everything
    assert found("--since", "2999-01-01T00:00:00Z") == set()
    assert terminal.run("audit", "log", "--since", "yesterday") == 2
    assert "90s" in terminal.stderr


def test_what_came_after_an_anchor_is_verified_and_with_all_what_came_before(
    terminal: Terminal, write: Write, database_url: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "anchors")
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    first = terminal.json("audit", "anchor", file)["heads"]
    terminal.json("operator", "add", "service:ci")
    terminal.json("operator", "add", "service:cd")
    assert terminal.json("audit", "verify", file)["holds"] is True
    second = terminal.json("audit", "anchor", file)["heads"]
    assert first != second
    assert len(Path(file).read_text().splitlines()) == 4

    def tamper(sequence: int) -> None:
        with psycopg.connect(database_url) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(
                "UPDATE audit.events SET actor = 'person:nobody' WHERE chain = 'global'"
                " AND sequence = %s",
                [sequence],
            )

    tamper(1)
    assert terminal.json("audit", "verify", file)["holds"] is True, "it was verified before"
    assert terminal.run("audit", "verify", "--all", file) == 1
    assert "event 1 of global" in terminal.stdout
    terminal.json("operator", "remove", "service:cd")
    last = int(second[0].split(":")[1]) + 1
    tamper(last)
    assert terminal.run("audit", "verify", file) == 1
    assert f"event {last} of global" in terminal.stdout
    assert terminal.run("audit", "anchor", file) == 1, "what is broken is not anchored"
    assert len(Path(file).read_text().splitlines()) == 4
    Path(file).write_text("nonsense\n")
    assert terminal.run("audit", "verify", file) == 2
    assert "line 1 of" in terminal.stderr

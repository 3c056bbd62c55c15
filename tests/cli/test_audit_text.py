"""The audit's table says who sent a message and why, as far as the message says it."""

import json
from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from durable.cli.commands.audit import _sender  # pyright: ignore[reportPrivateUsage]
from durable.model.records import AuditEvent


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


def test_a_person_and_the_reason_are_told() -> None:
    payload = json.dumps({"actor": "ann", "reason": "bad node", "request_id": "e1"})
    assert _sender(event({"payload": payload})) == ", sent by ann: bad node"


@pytest.mark.parametrize(
    "after",
    [None, {}, {"payload": "{not json"}, {"payload": "[1]"}, {"payload": '{"actor": "ann"}'}],
)
def test_what_does_not_say_it_is_told_as_it_is(after: dict[str, JsonValue] | None) -> None:
    assert _sender(event(after)) == ""

"""S8 in the schema: an override has a reason, an end, and where it must a second person."""

from collections.abc import Iterator

import psycopg
import pytest

PROPOSE = """
    INSERT INTO global.overrides
           (override, kind, scope, effect, actor, reason, ttl_seconds, needs_approval, approver,
            changed_by, state, proposed_at, activated_at, expires_at, latest_expiry, ended_at)
    VALUES ('o1', 'avoid-zone', '{}', '{}', 'alice', %(reason)s, 3600, %(needs_approval)s,
            %(approver)s, 'bob', %(state)s, now(), now(), now() + %(ttl)s::interval,
            now() + interval '1 day', %(ended_at)s)
"""

SOUND = {
    "reason": "disk failures in zone a",
    "needs_approval": True,
    "approver": "bob",
    "state": "active",
    "ttl": "1 hour",
    "ended_at": None,
}


@pytest.fixture
def override_controller(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url) as connection:
        connection.execute("SET ROLE durable_override")
        yield connection


def test_a_sound_override_is_accepted(override_controller: psycopg.Connection) -> None:
    override_controller.execute(PROPOSE, SOUND)


@pytest.mark.parametrize(
    "flaw",
    [
        {"reason": "   "},
        {"approver": None},
        {"approver": "alice"},
        {"ttl": "0 seconds"},
        {"ttl": "-1 hour"},
        {"ttl": "25 hours"},
        {"state": "forever"},
        {"state": "expired"},
        {"ended_at": "2030-01-01T00:00:00Z"},
    ],
)
def test_an_unsound_override_is_refused_by_the_schema(
    override_controller: psycopg.Connection, flaw: dict[str, object]
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        override_controller.execute(PROPOSE, {**SOUND, **flaw})


def test_an_override_is_never_extended_past_its_latest_expiry(
    override_controller: psycopg.Connection,
) -> None:
    override_controller.execute(PROPOSE, SOUND)
    override_controller.execute(
        "UPDATE global.overrides SET expires_at = latest_expiry, number = number + 1"
    )
    with pytest.raises(psycopg.errors.CheckViolation):
        override_controller.execute(
            "UPDATE global.overrides SET expires_at = latest_expiry + interval '1 second',"
            " number = number + 1"
        )


def test_who_proposed_it_and_why_is_never_rewritten(
    override_controller: psycopg.Connection,
) -> None:
    override_controller.execute(PROPOSE, SOUND)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        override_controller.execute("UPDATE global.overrides SET actor = 'mallory', reason = 'x'")

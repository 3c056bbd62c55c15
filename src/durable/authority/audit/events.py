"""Audit events: read back for people, and written for messages that workflows received."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.db.everywhere import UnreachableRegions, ask_databases
from durable.model.ids import ActorId, RegionId
from durable.model.placement.records import AuditEvent

# Within the calendar of this program, whatever was written past the table's constraint.
_EVENTS = text("""
    SELECT chain, sequence, actor,
           least(greatest(at, '0002-01-01 00:00:00+00'), '9999-01-01 00:00:00+00') AS at,
           database_role, action, object, before, after,
           encode(hash, 'hex') AS hash
      FROM audit.events
     WHERE (CAST(:chain AS text) IS NULL OR chain = :chain)
       AND (CAST(:object AS text) IS NULL
            OR object = :object OR starts_with(object, :object || '/'))
       AND (CAST(:actor AS text) IS NULL
            OR actor = :actor OR after ->> 'claimed_actor' = :actor)
       AND (CAST(:since AS timestamptz) IS NULL OR events.at >= :since)
     ORDER BY events.at DESC, chain, sequence DESC LIMIT :last
""")


async def read_events(
    databases: Databases,
    *,
    chain: str | None = None,
    target: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    last: int = 50,
) -> tuple[Sequence[AuditEvent], UnreachableRegions]:
    """The newest events of every region that answers, oldest first, as far as they match.

    A target is meant with everything below it, as a path; an actor did it, or claims to have sent
    the message. And the regions that did not answer.
    """
    which = {"chain": chain, "object": target, "actor": actor, "since": since, "last": last}
    body = partial(_read, which=which)

    async def read(url: str) -> list[AuditEvent]:
        return await transact(databases.at(url, "durable_reader"), body, doing="read the audit")

    found, unreachable = await ask_databases(databases, read)
    events = sorted(
        (event for read in found for event in read),
        key=lambda event: (event.at, event.chain, event.sequence),
    )
    return events[-last:], unreachable


async def _read(connection: AsyncConnection, *, which: Mapping[str, Any]) -> list[AuditEvent]:
    rows = (await connection.execute(_EVENTS, which)).mappings()
    return [AuditEvent(**dict(row)) for row in rows]


_IS_AUDITED = text("""
    SELECT EXISTS (SELECT FROM audit.events
                    WHERE chain = :chain AND after ? 'message_key'
                      AND after ->> 'message_key' = :key)
""")


async def audit_message(
    databases: Databases,
    chain: str,
    *,
    actor: ActorId,
    action: str,
    target: str,
    key: str,
    detail: Mapping[str, Any],
) -> bool:
    """Records one message, once per key and chain; answers whether this call recorded it.

    The chain is `audit.GLOBAL_CHAIN` for a workload's messages, its region for a placement's.
    """
    if chain == audit.GLOBAL_CHAIN:
        engine = databases.at_global("durable_workload")
    else:
        engine = databases.at_region(RegionId(chain), "durable_placement")
    event = audit.Event(actor, action, target, after={**detail, "message_key": key})
    append = partial(_append_once, chain=chain, key=key, event=event)
    doing = f"record a message in the audit of {chain}"
    try:
        return await transact(engine, append, doing=doing)
    except BrokenConstraintError:
        # Another writer recorded it after our look, and the unique index admitted only one of us.
        return await transact(engine, append, doing=doing)


async def _append_once(
    connection: AsyncConnection, *, chain: str, key: str, event: audit.Event
) -> bool:
    if (await connection.execute(_IS_AUDITED, {"chain": chain, "key": key})).scalar_one():
        return False
    await audit.append_all(connection, chain, [event])
    return True

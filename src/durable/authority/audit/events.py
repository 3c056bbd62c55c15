"""Audit events: read back for people, and written for messages that workflows received."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.db.everywhere import Missing, ask_databases
from durable.model.ids import ActorId, RegionId
from durable.model.records import AuditEvent

# Within the calendar of this program, whatever somebody wrote past the table's constraint.
_EVENTS = text("""
    SELECT chain, sequence, actor,
           least(greatest(at, '0002-01-01 00:00:00+00'), '9999-01-01 00:00:00+00') AS at,
           database_role, action, object, before, after,
           encode(hash, 'hex') AS hash
      FROM audit.events
     WHERE CAST(:chain AS text) IS NULL OR chain = :chain
     ORDER BY events.at DESC, chain, sequence DESC LIMIT :last
""")


async def read_events(
    databases: Databases, *, chain: str | None = None, last: int = 50
) -> tuple[Sequence[AuditEvent], Missing]:
    """The newest events of the audit, of every region that answers or of one chain, oldest first.

    And the regions that did not answer.
    """
    body = partial(_read, chain=chain, last=last)

    async def read(url: str) -> list[AuditEvent]:
        return await transact(databases.at(url, "durable_reader"), body, doing="read the audit")

    found, missing = await ask_databases(databases, read)
    events = sorted(
        (event for read in found for event in read),
        key=lambda event: (event.at, event.chain, event.sequence),
    )
    return events[-last:], missing


async def _read(connection: AsyncConnection, *, chain: str | None, last: int) -> list[AuditEvent]:
    rows = (await connection.execute(_EVENTS, {"chain": chain, "last": last})).mappings()
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

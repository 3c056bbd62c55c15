"""Reads the newest events of the audit."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.records import AuditEvent

_EVENTS = text("""
    SELECT chain, sequence, at, actor, database_role, action, object, before, after,
           encode(hash, 'hex') AS hash
      FROM audit.events
     WHERE CAST(:chain AS text) IS NULL OR chain = :chain
     ORDER BY at DESC, chain, sequence DESC LIMIT :last
""")


async def read_events(
    databases: Databases, *, chain: str | None = None, last: int = 50
) -> Sequence[AuditEvent]:
    """The newest events of the audit, of every database or of one chain, oldest first."""
    events: list[AuditEvent] = []
    for url in databases.urls:
        engine = databases.at(url, "durable_reader")
        read = partial(_read, chain=chain, last=last)
        events += await transact(engine, read, doing="read the audit")
    return sorted(events, key=lambda event: (event.at, event.chain, event.sequence))[-last:]


async def _read(connection: AsyncConnection, *, chain: str | None, last: int) -> list[AuditEvent]:
    rows = (await connection.execute(_EVENTS, {"chain": chain, "last": last})).mappings()
    return [AuditEvent(**dict(row)) for row in rows]

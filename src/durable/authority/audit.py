"""The audit: append to a chain together with the change, and verify it link by link."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

GLOBAL_CHAIN = "global"

_APPEND = text("""
    SELECT audit.append(:chain, :at, :actor, :action, :object,
                        CAST(:before AS jsonb), CAST(:after AS jsonb))
""")


async def append(
    connection: AsyncConnection,
    chain: str,
    *,
    actor: str,
    action: str,
    target: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    at: datetime | None = None,
) -> None:
    """Adds one event; it commits or vanishes together with what it tells of."""
    await connection.execute(
        _APPEND,
        {
            "chain": chain,
            "at": at,
            "actor": str(actor),
            "action": action,
            "object": target,
            "before": None if before is None else json.dumps(before),
            "after": None if after is None else json.dumps(after),
        },
    )


# The formula of audit.append, written again on purpose: a changed function must not verify itself.
_FIRST_BROKEN = text("""
    WITH linked AS (
        SELECT *, lag(hash, 1, ''::bytea) OVER turn AS previous, row_number() OVER turn AS place
          FROM audit.events WHERE chain = :chain
        WINDOW turn AS (ORDER BY sequence)
    )
    SELECT sequence, place, actor, action, object, at,
           hash = sha256(previous || convert_to(jsonb_build_array(
               chain, sequence, (extract(epoch FROM at) * 1000000)::bigint, actor, database_role,
               action, object, before, after)::text, 'UTF8')) AS links
      FROM linked
     WHERE sequence <> place
        OR hash <> sha256(previous || convert_to(jsonb_build_array(
               chain, sequence, (extract(epoch FROM at) * 1000000)::bigint, actor, database_role,
               action, object, before, after)::text, 'UTF8'))
     ORDER BY sequence LIMIT 1
""")

_CHAINS = text("""
    SELECT chain, max(sequence) AS sequence, head_sequence, head_hash
      FROM (SELECT chain, sequence FROM audit.events) AS events
      FULL JOIN (SELECT chain, sequence AS head_sequence, hash AS head_hash FROM audit.heads) AS h
     USING (chain)
     GROUP BY chain, head_sequence, head_hash ORDER BY chain
""")

_HASH_AT = text("SELECT hash FROM audit.events WHERE chain = :chain AND sequence = :sequence")


@dataclass(frozen=True)
class ChainHead:
    """The last link of a chain; kept outside, it proves later that nothing before it changed."""

    chain: str
    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"{self.chain}:{self.sequence}:{self.hash}"


@dataclass(frozen=True)
class ChainReport:
    """What verifying one chain found; `broken_at` is the first row that cannot be trusted."""

    head: ChainHead
    broken_at: int | None = None
    sentence: str = "every link holds"


async def verify(
    connection: AsyncConnection, anchors: Mapping[str, ChainHead] | None = None
) -> list[ChainReport]:
    """Checks every chain of this database, and against heads that were kept outside."""
    reports: list[ChainReport] = []
    for row in (await connection.execute(_CHAINS)).all():
        sequence = row.head_sequence or 0
        head = ChainHead(row.chain, sequence, bytes(row.head_hash or b"").hex())
        broken = await _first_fault(connection, head, row.sequence or 0)
        broken = broken or await _against_anchor(connection, head, (anchors or {}).get(row.chain))
        reports.append(ChainReport(head) if broken is None else ChainReport(head, *broken))
    return reports


async def _first_fault(
    connection: AsyncConnection, head: ChainHead, last: int
) -> tuple[int, str] | None:
    row = (await connection.execute(_FIRST_BROKEN, {"chain": head.chain})).one_or_none()
    if row is not None and row.sequence != row.place:
        return row.place, f"event {row.place} of {head.chain} is missing"
    if row is not None:
        who = f"{row.action} of {row.object} by {row.actor}"
        return row.sequence, f"event {row.sequence} of {head.chain} ({who}) was changed"
    if last != head.sequence:
        return last + 1, f"event {last + 1} of {head.chain} is missing at the end"
    if head.sequence and await _hash_at(connection, head.chain, last) != head.hash:
        return last, f"the head of {head.chain} was changed"
    return None


async def _against_anchor(
    connection: AsyncConnection, head: ChainHead, anchor: ChainHead | None
) -> tuple[int, str] | None:
    if anchor is None or await _hash_at(connection, head.chain, anchor.sequence) == anchor.hash:
        return None
    return (
        anchor.sequence,
        f"event {anchor.sequence} of {head.chain} is not the one that was anchored: "
        "the chain was rewritten or cut",
    )


async def _hash_at(connection: AsyncConnection, chain: str, sequence: int) -> str | None:
    at = {"chain": chain, "sequence": sequence}
    found = (await connection.execute(_HASH_AT, at)).scalar_one_or_none()
    return None if found is None else bytes(found).hex()

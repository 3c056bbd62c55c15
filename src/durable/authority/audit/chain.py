"""The audit: events are appended together with the change, and verified link by link."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import text

from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import UnreachableRegions, ask_databases

GLOBAL_CHAIN = "global"
# Below every sequence that a row can have, also where the constraint was dropped.
BEFORE_ALL = -(2**63)

_APPEND = text("""
    SELECT audit.append(:chain, :actor, :action, :object,
                        CAST(:before AS jsonb), CAST(:after AS jsonb))
""")

# The inner order is the order of the calls, and so of the links.
_APPEND_ALL = text("""
    SELECT audit.append(:chain, actor, action, object, before, after)
      FROM (SELECT * FROM jsonb_to_recordset(CAST(:events AS jsonb)) AS event(
                   place integer, actor text, action text, object text, before jsonb, after jsonb)
             ORDER BY place) AS ordered
""")


@dataclass(frozen=True)
class Event:
    """Who did what to which object."""

    actor: str
    action: str
    target: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


async def append(
    connection: AsyncConnection,
    chain: str,
    *,
    actor: str,
    action: str,
    target: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Adds one event; it commits or rolls back together with the change that it describes.

    Its role and time are the connection's and the clock's. A role appends only the actions that
    `roles.py` gives it.
    """
    await connection.execute(
        _APPEND,
        {
            "chain": chain,
            "actor": str(actor),
            "action": action,
            "object": target,
            "before": None if before is None else json.dumps(before),
            "after": None if after is None else json.dumps(after),
        },
    )


async def append_all(connection: AsyncConnection, chain: str, events: Sequence[Event]) -> None:
    """Adds events in their order, by one statement; the chain is locked once for all of them."""
    rows = [
        {
            "place": place,
            "actor": str(event.actor),
            "action": event.action,
            "object": event.target,
            "before": event.before,
            "after": event.after,
        }
        for place, event in enumerate(events)
    ]
    await connection.execute(_APPEND_ALL, {"chain": chain, "events": json.dumps(rows)})


# Reads nothing of what is over: each chain is one step in the index, and so is its last event. The
# heads alone would not do: a chain that has lost its head must be found, too.
_CHAINS = text("""
    WITH RECURSIVE named AS (
        (SELECT chain FROM audit.events ORDER BY chain LIMIT 1)
         UNION ALL
        SELECT (SELECT e.chain FROM audit.events AS e
                 WHERE e.chain > named.chain ORDER BY e.chain LIMIT 1)
          FROM named WHERE named.chain IS NOT NULL
    )
    SELECT chain, coalesce(h.sequence, 0) AS head_sequence, coalesce(h.hash, '') AS head_hash,
           coalesce(last.sequence, 0) AS sequence, coalesce(last.hash, '') AS hash
      FROM audit.heads AS h
      FULL JOIN (SELECT chain FROM named WHERE chain IS NOT NULL) AS n USING (chain)
      LEFT JOIN LATERAL (
           SELECT e.sequence, e.hash FROM audit.events AS e
            WHERE e.chain = coalesce(h.chain, n.chain)
            ORDER BY e.sequence DESC LIMIT 1) AS last ON true
     ORDER BY chain
""")

# The formula of audit.append, written again on purpose: a changed function must not verify itself.
# What comes after an anchor is linked to the anchored event, whose own hash is compared apart.
_FIRST_BROKEN = text("""
    SELECT chain, sequence, place, actor, action, object
      FROM (SELECT e.*, :before + row_number() OVER turn AS place, sha256(
                   lag(hash, 1, ''::bytea) OVER turn || convert_to(jsonb_build_array(
                   e.chain, e.sequence, extract(epoch FROM at)::text, actor, database_role, action,
                   object, before, after)::text, 'UTF8')) AS expected
              FROM audit.events AS e
             WHERE e.chain = :chain AND e.sequence >= :since
            WINDOW turn AS (ORDER BY e.sequence)) AS linked
     WHERE sequence <> place OR (hash <> expected AND sequence > :since)
     ORDER BY sequence LIMIT 1
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
    """The result for one chain; `broken_at` is the first event that cannot be trusted."""

    head: ChainHead
    broken_at: int | None = None
    sentence: str = "every link holds"


async def verify(
    connection: AsyncConnection,
    anchors: Mapping[str, ChainHead] | None = None,
    *,
    from_anchors: bool = False,
) -> list[ChainReport]:
    """Checks every chain of this database, also against heads that were kept outside.

    From the anchors on, if wanted: what is before them was checked when they were taken, and costs
    no time now.
    """
    kept = anchors or {}
    reports: list[ChainReport] = []
    for row in (await connection.execute(_CHAINS)).all():
        head = ChainHead(row.chain, row.head_sequence, bytes(row.head_hash).hex())
        anchor = kept.get(row.chain)
        since = anchor if from_anchors else None
        fault = await _broken_link(connection, row.chain, since) or _broken_end(head, row)
        fault = fault or await _against_anchor(connection, head, anchor)
        reports.append(ChainReport(head) if fault is None else ChainReport(head, *fault))
    return reports


async def verify_all(
    databases: Databases,
    anchors: Mapping[str, ChainHead] | None = None,
    *,
    from_anchors: bool = False,
) -> tuple[list[ChainReport], UnreachableRegions]:
    """Checks every chain of every region that answers, and that no anchored chain has vanished.

    And the regions that did not answer.
    """
    check = partial(verify, anchors=anchors, from_anchors=from_anchors)

    async def read(url: str) -> list[ChainReport]:
        return await transact(databases.at(url, "durable_reader"), check, doing="verify the audit")

    found, unreachable = await ask_databases(databases, read)
    reports = [report for read in found for report in read]
    known = {*unreachable, *(report.head.chain for report in reports)}
    vanished = sorted((anchors or {}).keys() - known)
    reports += [
        ChainReport(ChainHead(chain, 0, ""), 1, f"every event of {chain} is missing")
        for chain in vanished
    ]
    return reports, unreachable


async def _broken_link(
    connection: AsyncConnection, chain: str, anchor: ChainHead | None
) -> tuple[int, str] | None:
    if anchor is None or anchor.sequence == 0:
        of = {"chain": chain, "since": BEFORE_ALL, "before": 0}
    else:
        of = {"chain": chain, "since": anchor.sequence, "before": anchor.sequence - 1}
    row = (await connection.execute(_FIRST_BROKEN, of)).one_or_none()
    if row is None:
        return None
    if row.sequence != row.place:
        return row.place, f"event {row.place} of {row.chain} is missing"
    who = f"{row.action} of {row.object} by {row.actor}"
    return row.sequence, f"event {row.sequence} of {row.chain} ({who}) was changed"


def _broken_end(head: ChainHead, last: Any) -> tuple[int, str] | None:
    if last.sequence < head.sequence:
        return last.sequence + 1, f"event {last.sequence + 1} of {head.chain} is missing at the end"
    if last.sequence > head.sequence:
        added = head.sequence + 1
        return added, f"event {added} of {head.chain} was never appended: its head does not know it"
    if bytes(last.hash).hex() != head.hash:
        return last.sequence, f"the head of {head.chain} was changed"
    return None


async def _against_anchor(
    connection: AsyncConnection, head: ChainHead, anchor: ChainHead | None
) -> tuple[int, str] | None:
    if anchor is None or anchor.sequence == 0:
        return None
    if await _hash_at(connection, head.chain, anchor.sequence) == anchor.hash:
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

"""What a region knows of one placement: all that a run of it has to begin with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sqlalchemy import text

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.fair_queue import Turn
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.authority.reads.claims import CLAIM_COLUMNS, claim_of, conditions, next_ordinal
from durable.authority.reads.shares import EVIDENCE_KEPT
from durable.model.ids import Generation, NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot, RegionalClaim
from durable.model.states import TROUBLED
from durable.model.work.share import DesiredShare, PlacementFacts, PlacementPast, SlotFailures
from durable.model.work.workload import WorkloadKind, WorkloadSpec
from durable.validation.text import cut_bytes

# So many slot numbers are in one answer, whatever is in them, and so many bytes of evidence.
SLOTS_PER_PAGE = 1_000
EVIDENCE_IN_ALL = 200_000

MAX_READS_PER_CALL = 200

# One statement, so that all of it is of one moment. A placement that was just opened has no claims,
# and then nothing else has to be read.
_READ = text(f"""
    SELECT key.place, clock_timestamp() AS read_at, s.revision, s.slots, s.spec, s.release_reason,
           s.at_once, s.admitted_at, s.due_at, s.incident,
           coalesce(q.failures, 0) AS failures,
           CASE WHEN q.state <> 'placed' THEN q.enqueued_at END AS enqueued_at,
           CASE WHEN key.with_past THEN (
               SELECT max(d.attempt) FROM regional.decisions AS d
                WHERE d.region = :region AND d.tenant = key.tenant AND d.workload = key.workload
                  AND d.generation = key.generation) END AS attempts,
           (SELECT max(r.claimed_slot) FROM regional.reservations AS r
             WHERE r.region = :region AND r.tenant = key.tenant
               AND r.workload = key.workload AND r.generation = key.generation
               AND r.claimed_slot IS NOT NULL) AS last_claimed
      FROM {
    sent_rows(
        "keys",
        "key",
        "place integer, tenant text, workload text, generation bigint, known_revision bigint,"
        " with_past boolean",
    )
}
      LEFT JOIN regional.shares AS s
        ON s.region = :region AND s.tenant = key.tenant AND s.workload = key.workload
       AND s.generation = key.generation AND s.revision > key.known_revision
      LEFT JOIN regional.requests AS q
        ON q.region = :region AND q.tenant = key.tenant AND q.workload = key.workload
       AND q.generation = key.generation AND key.with_past
     ORDER BY key.place
""")

# With the ordinals that refusals have used up: a run that begins goes on after them.
_CLAIMS = text(f"""
    SELECT {CLAIM_COLUMNS}, {next_ordinal("i.outcome ->> 'kind' = 'refused'")}
      FROM regional.live_claims(statement_timestamp()) AS c
     WHERE {conditions(("tenant", "workload", "generation"))}
       AND c.claimed_slot >= :first AND c.claimed_slot < CAST(:first AS integer) + :most
     ORDER BY c.slot, c.token
""")

# How the replicas of a job have ended so far: by themselves, not because they were asked to stop.
_ENDS = text("""
    SELECT i.slot, bool_or(o.state = 'stopped') AS is_completed,
           count(*) FILTER (WHERE o.state = 'failed') AS failures,
           max(o.received_at) FILTER (WHERE o.state = 'failed') AS last_failed_at,
           (array_agg(i.outcome ->> 'node' ORDER BY o.received_at DESC)
              FILTER (WHERE o.state = 'failed'))[1] AS last_node,
           bool_or(o.state = 'failed' AND o.exit_code = ANY(CAST(:fatal AS integer[])))
               AS is_fatal
      FROM regional.intents AS i
      JOIN regional.bindings AS b
        ON b.region = i.region AND b.token = CAST(i.outcome ->> 'token' AS bigint)
      JOIN regional.observations AS o ON o.region = b.region AND o.token = b.token
     WHERE i.region = :region AND i.tenant = :tenant AND i.workload = :workload
       AND i.generation = :generation AND i.step = 'release' AND i.outcome ->> 'kind' = 'granted'
       AND b.stop_requested_at IS NULL
       AND i.slot >= :first AND i.slot < CAST(:first AS integer) + :most
     GROUP BY i.slot
""")


@dataclass(frozen=True)
class PlacementRead:
    """What a placement asks for: a share that is newer than its own, and on request the past."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    known_revision: int
    with_past: bool
    first_slot: int = 0

    @property
    def page(self) -> dict[str, Any]:
        """Which slots, as parameters of a statement."""
        which = ("tenant", "workload", "generation")
        pages = {"first": self.first_slot, "most": SLOTS_PER_PAGE}
        return {name: getattr(self, name) for name in which} | pages


class PlacementReader(Batcher[PlacementRead, Mapping[str, Any]]):
    """What a region knows of its placements; those that ask at the same time are read together."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        super().__init__(
            f"queue of placements in {region}",
            "read",
            partial(_read, databases, region),
            max_batch=MAX_READS_PER_CALL,
            turn_of=lambda read: Turn(read.tenant),
        )

    async def facts(self, read: PlacementRead) -> PlacementFacts:
        """The share, if it is newer than the known one; the claims; and on request the past."""
        row = await self.submit(read)
        is_known = row["revision"] is None
        share = None if is_known else DesiredShare.read({name: row[name] for name in _SHARE})
        last = -1 if row["last_claimed"] is None else int(row["last_claimed"])
        # After the share: a claim that is committed meanwhile is read, too.
        has_claims = last >= read.first_slot
        claims = await _read_claims(self._databases, self._region, read) if has_claims else ()
        if read.with_past and share is not None:
            last = max(last, share.spec.replicas - 1)  # what ended had one of these numbers
        end = read.first_slot + SLOTS_PER_PAGE
        return PlacementFacts(
            claims=in_short(claims),
            next_slot=end if last >= end else None,
            read_at=row["read_at"],
            share=share,
            past=await self._past(read, row, share) if read.with_past else None,
        )

    async def _past(
        self, read: PlacementRead, row: Mapping[str, Any], share: DesiredShare | None
    ) -> PlacementPast:
        ends: Sequence[Any] = ()
        if share is not None and share.spec.kind is WorkloadKind.JOB:
            ends = await _read_ends(self._databases, self._region, read, share.spec)
        return PlacementPast(
            next_attempt=(row["attempts"] or 0) + 1,
            enqueued_at=row["enqueued_at"],
            completed=tuple(sorted(end.slot for end in ends if end.is_completed)),
            failures={end.slot: _failures(end) for end in ends if end.failures},
            failures_in_all=row["failures"],
        )


_SHARE = (
    "revision", "slots", "spec", "release_reason", "at_once", "admitted_at", "due_at", "incident",
)  # fmt: skip


@regional_transaction("durable_reader", "read placements in {region}")
async def _read(
    connection: AsyncConnection, region: RegionId, reads: list[PlacementRead]
) -> list[Mapping[str, Any]]:
    keys = [{"place": place, **asdict(read)} for place, read in enumerate(reads)]
    rows = await connection.execute(_READ, {"region": region, "keys": json.dumps(keys)})
    return [dict(row) for row in rows.mappings()]


@regional_transaction("durable_reader", "read the claims of {read.workload} in {region}")
async def _read_claims(
    connection: AsyncConnection, region: RegionId, read: PlacementRead
) -> list[RegionalClaim]:
    of = {"region": region, **read.page}
    return [claim_of(row) for row in await connection.execute(_CLAIMS, of)]


@regional_transaction("durable_reader", "read the ends of {read.workload} in {region}")
async def _read_ends(
    connection: AsyncConnection, region: RegionId, read: PlacementRead, spec: WorkloadSpec
) -> Sequence[Any]:
    placement = {
        "region": region,
        **read.page,
        "fatal": [] if spec.job is None else list(spec.job.fatal_exit_codes),
    }
    return (await connection.execute(_ENDS, placement)).all()


def in_short(claims: Sequence[RegionalClaim]) -> tuple[ObservedSlot, ...]:
    """Many claims share one message, which Temporal limits: evidence only of trouble."""
    most = min(EVIDENCE_KEPT, EVIDENCE_IN_ALL // max(1, len(claims)))
    return tuple(
        claim.observed(cut_bytes(claim.evidence, most) if claim.state in TROUBLED else "")
        for claim in claims
    )


def _failures(end: Any) -> SlotFailures:
    return SlotFailures(
        count=end.failures,
        last_at=end.last_failed_at,
        node=NodeId(end.last_node),
        is_fatal=bool(end.is_fatal),
    )

"""What a region knows of one placement: all that a run of it has to begin with."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.authority.reads.claims import live_claims
from durable.authority.reads.shares import EVIDENCE_KEPT
from durable.model.ids import Generation, NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.states import TROUBLED
from durable.model.work.share import DesiredShare, PlacementFacts, PlacementPast, SlotFailures
from durable.model.work.workload import WorkloadKind

EVIDENCE_IN_ALL = 400_000

_NOW = text("SELECT clock_timestamp()")

_SHARE = text("""
    SELECT revision, slots, spec, release_reason, at_once, admitted_at, due_at,
           incident
      FROM regional.shares
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND generation = :generation AND revision > :revision
""")

_PAST = text("""
    SELECT coalesce(q.failures, 0) AS failures,
           CASE WHEN q.state <> 'placed' THEN q.enqueued_at END AS enqueued_at,
           (SELECT max(attempt) FROM regional.decisions
             WHERE region = :region AND tenant = :tenant AND workload = :workload
               AND generation = :generation) AS attempts
      FROM (VALUES (1)) AS once
      LEFT JOIN regional.requests AS q
        ON q.region = :region AND q.tenant = :tenant AND q.workload = :workload
       AND q.generation = :generation
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
     GROUP BY i.slot
""")


@regional_transaction("durable_reader", "read the placement of {tenant}/{workload} in {region}")
async def read_placement(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    *,
    known_revision: int,
    with_past: bool,
) -> PlacementFacts:
    """The share, if it is newer than the known one; the claims; and on request the past."""
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    row = (await connection.execute(_SHARE, {**of, "revision": known_revision})).mappings().first()
    share = None if row is None else DesiredShare.read(dict(row))
    # After the share: a claim that is committed meanwhile is read, too.
    claims = await live_claims(connection, region, tenant, workload, generation)
    past = await _read_past(connection, of, share) if with_past else None
    read_at = (await connection.execute(_NOW)).scalar_one()
    return PlacementFacts(claims=_in_short(claims), read_at=read_at, share=share, past=past)


def _in_short(claims: Sequence[ObservedSlot]) -> tuple[ObservedSlot, ...]:
    """Thousands of claims share one message, which Temporal limits: evidence only of trouble."""
    kept = min(EVIDENCE_KEPT, EVIDENCE_IN_ALL // max(1, len(claims)))
    return tuple(
        claim.model_copy(
            update={
                "evidence": claim.evidence[:kept] if claim.state in TROUBLED else "",
                "log_directory": None,
            }
        )
        for claim in claims
    )


async def _read_past(
    connection: AsyncConnection, of: Mapping[str, Any], share: DesiredShare | None
) -> PlacementPast:
    row = (await connection.execute(_PAST, of)).mappings().one()
    job = None if share is None else share.spec.job
    is_job = share is not None and share.spec.kind is WorkloadKind.JOB
    fatal = {"fatal": [] if job is None else list(job.fatal_exit_codes)}
    ends = (await connection.execute(_ENDS, {**of, **fatal})).all() if is_job else ()
    return PlacementPast(
        next_attempt=(row["attempts"] or 0) + 1,
        enqueued_at=row["enqueued_at"],
        completed=tuple(sorted(end.slot for end in ends if end.is_completed)),
        failures={end.slot: _failures(end) for end in ends if end.failures},
        failures_in_all=row["failures"],
    )


def _failures(end: Any) -> SlotFailures:
    return SlotFailures(
        count=end.failures,
        last_at=end.last_failed_at,
        node=NodeId(end.last_node),
        is_fatal=bool(end.is_fatal),
    )

"""A workload in one region as a plan needs it: shares, live claims, the floor and failures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.authority.reads.claims import ClaimFilter, find_claims
from durable.authority.reads.shares import request_of
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.model.work.share import DesiredShare, ShareReport

# The version comes first: what is read after it is of that version or a later one.
_REGION = text("""
    SELECT r.version, r.state = 'fenced' AS is_fenced, clock_timestamp() AS read_at, f.must_serve
      FROM regional.regions AS r
      LEFT JOIN regional.disruption_floors AS f
        ON (f.region, f.tenant, f.workload) = (r.region, :tenant, :workload)
     WHERE r.region = :region
""")

# Shares that are open, requested, or have a live claim; and those that are asked about.
_SHARES = text("""
    WITH known AS (
        SELECT generation FROM regional.shares
         WHERE region = :region AND tenant = :tenant AND workload = :workload AND closed_at IS NULL
         UNION
        SELECT generation FROM regional.requests
         WHERE region = :region AND tenant = :tenant AND workload = :workload
           AND state <> 'withdrawn'
         UNION
        SELECT generation FROM regional.reservations
         WHERE region = :region AND tenant = :tenant AND workload = :workload
           AND claimed_slot IS NOT NULL
         UNION
        SELECT unnest(CAST(:also AS bigint[])))
    SELECT known.generation, s.slots AS share, s.revision, s.spec, s.release_reason,
           s.at_once AS share_at_once, s.due_at, s.incident, s.moved, s.closed_at, r.state,
           r.pending_code, r.pending_parameters, r.waiting, cardinality(r.completed) AS completed,
           cardinality(r.given_up) AS given_up, r.completed AS completed_slots,
           r.given_up AS given_up_slots, r.ended_at, r.held_back, r.failures,
           greatest(r.at_once, s.at_once) AS at_once, cardinality(r.slots) AS slots
      FROM known
      LEFT JOIN regional.shares AS s
        ON (s.region, s.tenant, s.workload, s.generation)
         = (:region, :tenant, :workload, known.generation)
      LEFT JOIN regional.requests AS r
        ON (r.region, r.tenant, r.workload, r.generation)
         = (:region, :tenant, :workload, known.generation)
     ORDER BY known.generation
""")

_COPIES = text("""
    SELECT slot, number FROM regional.slots
     WHERE region = :region AND tenant = :tenant AND workload = :workload
""")

# What ended without being asked to, of one generation: by the intents that released it.
_FAILURES = text("""
    SELECT count(*)
      FROM regional.intents AS i
      JOIN regional.bindings AS b
        ON b.region = i.region AND b.token = CAST(i.outcome ->> 'token' AS bigint)
      JOIN regional.observations AS o ON o.region = b.region AND o.token = b.token
     WHERE i.region = :region AND i.tenant = :tenant AND i.workload = :workload
       AND i.generation = :generation AND i.step = 'release' AND i.outcome ->> 'kind' = 'granted'
       AND b.stop_requested_at IS NULL AND o.state IN ('failed', 'stopped')
""")


@dataclass(frozen=True)
class OpenShare:
    """A share that some placement looks after."""

    slots: frozenset[int]
    spec: Mapping[str, Any]
    release_reason: str | None
    # The number of the division that published it.
    revision: int
    at_once: int | None = None
    due_at: datetime | None = None
    incident: str | None = None
    moved: frozenset[int] = frozenset()

    def says_the_same_as(self, wanted: DesiredShare) -> bool:
        """Whether nothing of it has to be published again."""
        limits = (self.release_reason, self.at_once, self.due_at, self.incident)
        return (
            self.slots == frozenset(wanted.slots)
            and self.moved == frozenset(wanted.moved)
            and limits == (wanted.release_reason, wanted.at_once, wanted.due_at, wanted.incident)
            and self.spec == wanted.spec.model_dump(mode="json")
        )


@dataclass(frozen=True)
class RegionReplicas:
    """What there is of a workload in a region."""

    shares: Mapping[int, OpenShare]
    claims: tuple[RegionalClaim, ...]
    # How far each share has come; of one that is over only if it was asked about.
    reports: tuple[ShareReport, ...]
    must_serve: int | None
    # How often replicas of the generation that was asked about failed.
    failures: int
    # The slots that the region knows to be its own, with the numbers of their hand-over.
    copies: Mapping[int, int]
    # What a fenced region still has cannot be counted on.
    is_fenced: bool = False


@regional_transaction("durable_reader", "read the replicas of {tenant}/{workload} in {region}")
async def read_replicas(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    failures_of: Generation | None = None,
    also: Generation | None = None,
) -> RegionReplicas:
    """Shares first, claims after them: a claim that is committed meanwhile is read, too.

    `also` names a generation whose share is reported even if it is over.
    """
    of = {"region": region, "tenant": tenant, "workload": workload}
    at = (await connection.execute(_REGION, of)).one_or_none()
    if at is None:
        raise unknown_region(region)
    asked = {**of, "also": [] if also is None else [also]}
    rows = (await connection.execute(_SHARES, asked)).mappings().all()
    which = ClaimFilter(tenant=tenant, workload=workload)
    claims = tuple(await find_claims(connection, region, which))
    copies = {row.slot: row.number for row in await connection.execute(_COPIES, of)}
    failures = 0
    if failures_of is not None:
        named = {**of, "generation": failures_of}
        failures = (await connection.execute(_FAILURES, named)).scalar_one()
    return RegionReplicas(
        {row["generation"]: _open_share(row) for row in rows if _is_open(row)},
        claims,
        tuple(_report(region, row, claims, at) for row in rows),
        at.must_serve,
        failures,
        copies,
        at.is_fenced,
    )


def _is_open(row: Any) -> bool:
    return row["share"] is not None and row["closed_at"] is None


def _open_share(row: Any) -> OpenShare:
    return OpenShare(
        frozenset(row["share"]),
        row["spec"],
        row["release_reason"],
        row["revision"],
        row["share_at_once"],
        row["due_at"],
        row["incident"],
        frozenset(row["moved"]),
    )


def _report(region: RegionId, row: Any, claims: Iterable[RegionalClaim], at: Any) -> ShareReport:
    return ShareReport.of(
        (region, row["generation"]),
        request_of(row),
        [claim for claim in claims if claim.generation == row["generation"]],
        version=at.version,
        at=at.read_at,
        at_once=row["at_once"],
        closed_at=row["closed_at"],
    )

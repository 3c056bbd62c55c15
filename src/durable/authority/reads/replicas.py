"""A workload in one region as a plan needs it: shares, live claims, the floor and failures."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.share import DesiredShare

_SHARES = text("""
    SELECT generation, slots, spec, release_reason, at_once, due_at FROM regional.shares
     WHERE region = :region AND tenant = :tenant AND workload = :workload AND closed_at IS NULL
""")

# The clock is a stable one: with a volatile one the planner cannot look into `binding_status`.
_CLAIMS = text("""
    SELECT r.slot, r.generation, r.token, s.state, s.since, statement_timestamp() AS read_at,
           b.stop_requested_at IS NOT NULL AS is_stopping, p.token IS NOT NULL AS is_marked
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.replacements AS p USING (region, token)
      LEFT JOIN LATERAL (
           SELECT state, since FROM regional.binding_status(statement_timestamp()) AS x
            WHERE x.region = r.region AND x.token = r.token) AS s ON true
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.claimed_slot IS NOT NULL
     ORDER BY r.slot
""")

_FLOOR = text("""
    SELECT must_serve FROM regional.disruption_floors
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
    at_once: int | None = None
    due_at: datetime | None = None

    def says_the_same_as(self, wanted: DesiredShare) -> bool:
        """Whether nothing of it has to be published again."""
        limits = (self.release_reason, self.at_once, self.due_at)
        return (
            self.slots == frozenset(wanted.slots)
            and limits == (wanted.release_reason, wanted.at_once, wanted.due_at)
            and self.spec == wanted.spec.model_dump(mode="json")
        )


@dataclass(frozen=True)
class LiveClaim:
    """A slot's claim and what was last observed of it."""

    slot: int
    generation: int
    state: str | None
    # How long ago that was observed.
    age_seconds: float
    is_stopping: bool
    is_marked: bool


@dataclass(frozen=True)
class RegionReplicas:
    """What there is of a workload in a region."""

    shares: Mapping[int, OpenShare]
    claims: tuple[LiveClaim, ...]
    must_serve: int | None
    # How often replicas of the generation that was asked about failed.
    failures: int


@regional_transaction("durable_reader", "read the replicas of {tenant}/{workload} in {region}")
async def read_replicas(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    failures_of: Generation | None,
) -> RegionReplicas:
    """Shares first, claims after them: a claim that is committed meanwhile is read, too."""
    of = {"region": region, "tenant": tenant, "workload": workload}
    shares = {
        row.generation: OpenShare(
            frozenset(row.slots), row.spec, row.release_reason, row.at_once, row.due_at
        )
        for row in await connection.execute(_SHARES, of)
    }
    claims = tuple(_claim(row) for row in await connection.execute(_CLAIMS, of))
    floor = (await connection.execute(_FLOOR, of)).scalar_one_or_none()
    failures = 0
    if failures_of is not None:
        named = {**of, "generation": failures_of}
        failures = (await connection.execute(_FAILURES, named)).scalar_one()
    return RegionReplicas(shares, claims, floor, failures)


def _claim(row: Any) -> LiveClaim:
    since: datetime | None = row.since
    age = 0.0 if since is None else (row.read_at - since).total_seconds()
    return LiveClaim(
        slot=row.slot,
        generation=row.generation,
        state=row.state,
        age_seconds=age,
        is_stopping=bool(row.is_stopping) or row.state in ("failed", "stopped"),
        is_marked=row.is_marked,
    )

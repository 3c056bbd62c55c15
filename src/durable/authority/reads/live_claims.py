"""The claims of one placement that stand, for a workflow that must not rely on its own memory."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName

_STANDING = text("""
    SELECT r.slot, r.attempt, r.token, r.node, r.state AS reservation, r.expires_at,
           s.state, s.evidence, b.stop_requested_at IS NOT NULL AS stop_requested
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN LATERAL (
           SELECT state, evidence FROM regional.binding_status(clock_timestamp()) AS x
            WHERE x.region = r.region AND x.token = r.token) AS s ON true
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.generation = :generation AND r.freed_version IS NULL
     ORDER BY r.slot
""")


@dataclass(frozen=True, slots=True)
class StandingClaim:
    """One claim; `state` is the binding's, and nothing while the reservation is only held."""

    slot: int
    attempt: int
    token: int
    node: str
    expires_at: datetime
    held: bool
    state: str | None
    stop_requested: bool
    evidence: str


async def read_standing(
    databases: Databases,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> list[StandingClaim]:
    """Every claim of the placement that counts against node, grant, devices and slot."""
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}

    async def work(connection: AsyncConnection) -> list[StandingClaim]:
        return [_claim(row) for row in await connection.execute(_STANDING, of)]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the claims of {tenant}/{workload}")


def _claim(row: Any) -> StandingClaim:
    return StandingClaim(
        slot=row.slot,
        attempt=row.attempt,
        token=row.token,
        node=row.node,
        expires_at=row.expires_at,
        held=row.reservation == "held",
        state=row.state,
        stop_requested=bool(row.stop_requested),
        evidence=row.evidence or "",
    )

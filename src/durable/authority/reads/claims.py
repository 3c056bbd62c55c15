"""Claims as they are now: those of one placement, single ones, and stops that are awaited."""

from datetime import datetime
from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.authority.quota.quotas import amount_of
from durable.model.claims import Binding, ObservedSlot, Reservation
from durable.model.ids import Generation, NodeId, RegionId, Slot, TenantId, WorkloadName
from durable.validation.value import Value

_LIVE_CLAIMS = text("""
    SELECT r.slot, r.token, r.attempt, r.node, s.state, coalesce(s.evidence, '') AS evidence,
           s.log_directory, s.since, b.stop_requested_at IS NOT NULL AS stop_requested,
           CASE WHEN r.state = 'held' THEN r.expires_at END AS expires_at
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN LATERAL (
           SELECT state, evidence, log_directory, since
             FROM regional.binding_status(clock_timestamp()) AS x
            WHERE x.region = r.region AND x.token = r.token) AS s ON true
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.generation = :generation AND r.freed_version IS NULL
     ORDER BY r.slot
""")


@regional_transaction("durable_reader", "read the claims of {tenant}/{workload}")
async def read_live_claims(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> list[ObservedSlot]:
    """Every claim of the placement that counts against node, grant, devices and slot."""
    placement = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    rows = (await connection.execute(_LIVE_CLAIMS, placement)).mappings()
    return [ObservedSlot.model_validate(dict(row)) for row in rows]


MAX_READ = 10_000

_RESERVATIONS = text("""
    SELECT * FROM regional.reservations
     WHERE region = :region AND (freed_version IS NULL OR NOT :live) ORDER BY token LIMIT :most
""")

_BINDINGS = text("""
    SELECT * FROM regional.binding_status(coalesce(CAST(:now AS timestamptz), clock_timestamp()))
     WHERE region = :region AND (state <> 'released' OR NOT :active) ORDER BY token LIMIT :most
""")

_STOPS = text("""
    SELECT r.region, r.slot, r.node, b.stop_requested_at AS requested_at,
           l.expires_at AS lease_expires_at, clock_timestamp() AS read_at
      FROM regional.reservations AS r
      JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.freed_version IS NULL AND r.state = 'bound' AND b.stop_requested_at IS NOT NULL
     ORDER BY r.slot
""")

_CLAIM_FIELDS = (
    "region", "token", "tenant", "workload", "generation", "slot", "attempt", "node", "budget",
    "policy_revision", "state", "reserved_at", "expires_at", "ended_at", "created_version",
    "freed_version", "actor", "evidence",
)  # fmt: skip


class Stop(Value):
    """A slot that was asked to stop and whose node has not reported yet that it did."""

    region: RegionId
    slot: Slot
    node: NodeId
    requested_at: AwareDatetime
    lease_expires_at: AwareDatetime | None
    read_at: AwareDatetime

    @property
    def is_silent(self) -> bool:
        """Whether nobody renews the node's lease any more."""
        return self.lease_expires_at is None or self.lease_expires_at <= self.read_at


@regional_transaction("durable_reader", "read the reservations of {region}")
async def read_reservations(
    connection: AsyncConnection, region: RegionId, *, live: bool = True
) -> list[Reservation]:
    """The reservations of a region whose claims are live, or all of them."""
    of = {"region": region, "live": live, "most": MAX_READ}
    return [_reservation(row) for row in (await connection.execute(_RESERVATIONS, of)).mappings()]


def _reservation(row: Any) -> Reservation:
    fields = {name: row[name] for name in _CLAIM_FIELDS}
    return Reservation(**fields, resources=amount_of(row), devices=tuple(row["devices"]))


@regional_transaction("durable_reader", "read the bindings of {region}")
async def read_bindings(
    connection: AsyncConnection,
    region: RegionId,
    *,
    active: bool = True,
    now: datetime | None = None,
) -> list[Binding]:
    """The bindings of a region with what was last observed of them; released ones on request."""
    of = {"region": region, "active": active, "most": MAX_READ, "now": now}
    rows = (await connection.execute(_BINDINGS, of)).mappings()
    return [Binding(**dict(row)) for row in rows]


@regional_transaction("durable_reader", "read what stops in {region}")
async def read_stops(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, workload: WorkloadName
) -> list[Stop]:
    """Which slots of a workload are being stopped in a region, by slot."""
    of = {"region": region, "tenant": tenant, "workload": workload}
    return [Stop(**dict(row)) for row in (await connection.execute(_STOPS, of)).mappings()]

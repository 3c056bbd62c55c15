"""Claims as they are now: those of one placement, single ones, lapsed ones, and awaited stops."""

from datetime import datetime
from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.authority.quota.quotas import amount_of
from durable.model.ids import (
    ActorId,
    Generation,
    NodeId,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
)
from durable.model.placement.claims import Binding, HeldSlot, ObservedSlot, Reservation
from durable.model.placement.intents import Expire
from durable.validation.value import Value

# `binding_status` is given a stable clock: with a volatile one the planner cannot look into it, and
# would compute the status of everything that ever was.
_LIVE_CLAIMS = text("""
    SELECT r.slot, r.token, r.attempt, r.node, s.state, coalesce(s.evidence, '') AS evidence,
           s.log_directory, s.since, s.exit_code, b.stop_requested_at IS NOT NULL AS stop_requested,
           b.stop_requested_at, CASE WHEN r.state = 'held' THEN r.expires_at END AS expires_at
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN LATERAL (
           SELECT state, evidence, log_directory, since, exit_code
             FROM regional.binding_status(statement_timestamp()) AS x
            WHERE x.region = r.region AND x.token = r.token) AS s ON true
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.generation = :generation AND r.claimed_slot IS NOT NULL
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
    return await live_claims(connection, region, tenant, workload, generation)


async def live_claims(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> list[ObservedSlot]:
    """The same within a transaction of the caller's."""
    placement = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    rows = (await connection.execute(_LIVE_CLAIMS, placement)).mappings()
    return [ObservedSlot.read(dict(row)) for row in rows]


_HELD = text("""
    SELECT r.slot, r.generation, r.node, r.cpu_millis, r.memory_mib, r.gpus, s.state
      FROM regional.reservations AS r
      LEFT JOIN LATERAL (
           SELECT state FROM regional.binding_status(statement_timestamp()) AS x
            WHERE x.region = r.region AND x.token = r.token) AS s ON true
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.claimed_slot IS NOT NULL
     ORDER BY r.slot
""")


@regional_transaction("durable_reader", "read what {tenant}/{workload} uses")
async def read_held_slots(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, workload: WorkloadName
) -> list[HeldSlot]:
    """Every claim of a workload, of whichever generation, with what it uses."""
    of = {"region": region, "tenant": tenant, "workload": workload}
    return [
        HeldSlot(
            slot=row["slot"],
            node=row["node"],
            generation=row["generation"],
            resources=amount_of(row),
            state=row["state"],
        )
        for row in (await connection.execute(_HELD, of)).mappings()
    ]


MAX_READ = 10_000

_RESERVATIONS = """
    SELECT * FROM regional.reservations
     WHERE region = :region {which} ORDER BY token LIMIT :most
"""
_ALL_RESERVATIONS = text(_RESERVATIONS.format(which=""))
_LIVE_RESERVATIONS = text(_RESERVATIONS.format(which="AND freed_version IS NULL"))

_BINDINGS = """
    SELECT s.* FROM regional.reservations AS r
      JOIN regional.binding_status(coalesce(CAST(:now AS timestamptz), statement_timestamp())) AS s
     USING (region, token)
     WHERE r.region = :region {which} ORDER BY token LIMIT :most
"""
_ALL_BINDINGS = text(_BINDINGS.format(which=""))
_ACTIVE_BINDINGS = text(_BINDINGS.format(which="AND r.freed_version IS NULL"))

_STOPS = text("""
    SELECT r.region, r.slot, r.node, b.stop_requested_at AS requested_at,
           l.expires_at AS lease_expires_at, clock_timestamp() AS read_at
      FROM regional.reservations AS r
      JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.claimed_slot IS NOT NULL AND r.state = 'bound' AND b.stop_requested_at IS NOT NULL
     ORDER BY r.slot
""")

# An intent to expire it that was refused before has used up its ordinal.
_LAPSED = text("""
    SELECT r.region, r.tenant, r.workload, r.generation, r.slot, r.attempt, r.token, r.expires_at,
           (SELECT coalesce(max(i.ordinal), 0) + 1 FROM regional.intents AS i
             WHERE i.region = r.region AND i.tenant = r.tenant AND i.workload = r.workload
               AND i.generation = r.generation AND i.slot = r.slot AND i.attempt = r.attempt
               AND i.step = 'expire' AND i.cause = '') AS ordinal
      FROM regional.reservations AS r
     WHERE r.region = :region AND r.state = 'held'
       AND r.expires_at <= statement_timestamp() - make_interval(secs => :grace_seconds)
     ORDER BY r.expires_at LIMIT :most
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


class LapsedReservation(Value):
    """A reservation whose lease ran out and that nobody has freed."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    token: Token
    ordinal: int
    expires_at: AwareDatetime

    def expire(self, actor: ActorId, epoch: int) -> Expire:
        """The intent that frees it."""
        evidence = f"its lease ran out at {self.expires_at.isoformat()} and nobody freed it"
        return Expire(
            **self.model_dump(exclude={"expires_at"}), actor=actor, epoch=epoch, evidence=evidence
        )


@regional_transaction("durable_reader", "read the lapsed reservations of {region}")
async def read_lapsed_reservations(
    connection: AsyncConnection, region: RegionId, *, grace_seconds: float, most: int
) -> list[LapsedReservation]:
    """Those whose lease ran out at least so long ago, the oldest first."""
    of = {"region": region, "grace_seconds": grace_seconds, "most": most}
    rows = (await connection.execute(_LAPSED, of)).mappings()
    return [LapsedReservation(**dict(row)) for row in rows]


@regional_transaction("durable_reader", "read the reservations of {region}")
async def read_reservations(
    connection: AsyncConnection, region: RegionId, *, live: bool = True
) -> list[Reservation]:
    """The reservations of a region whose claims are live, or all of them."""
    statement = _LIVE_RESERVATIONS if live else _ALL_RESERVATIONS
    rows = await connection.execute(statement, {"region": region, "most": MAX_READ})
    return [_reservation(row) for row in rows.mappings()]


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
    statement = _ACTIVE_BINDINGS if active else _ALL_BINDINGS
    of = {"region": region, "most": MAX_READ, "now": now}
    return [Binding(**dict(row)) for row in (await connection.execute(statement, of)).mappings()]


@regional_transaction("durable_reader", "read what stops in {region}")
async def read_stops(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, workload: WorkloadName
) -> list[Stop]:
    """Which slots of a workload are being stopped in a region, by slot."""
    of = {"region": region, "tenant": tenant, "workload": workload}
    return [Stop(**dict(row)) for row in (await connection.execute(_STOPS, of)).mappings()]

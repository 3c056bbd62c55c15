"""A revision in each region as it is: its state, what became of its replicas, what goes on."""

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import ask_regions
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import list_regions
from durable.model.ids import (
    Generation,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    WorkloadName,
)
from durable.model.policy.rollout import RegionPolicy, RolledBack, RolledBackShare
from durable.model.states import PolicyState

_READ = text("""
    SELECT state, number,
           greatest(0, extract(epoch FROM clock_timestamp() - changed_at))::float8 AS age_seconds
      FROM regional.policy_states
     WHERE region = :region AND revision = :revision
""")

_REPORT = text("""
    SELECT report, report_count FROM regional.policy_states
     WHERE region = :region AND revision = :revision
""")

_IN_FORCE = text("""
    SELECT revision, state FROM regional.policy_states
     WHERE region = :region AND state IN ('canary', 'active')
""")

# Of one placement: what goes on although the revision behind it was rolled back.
_WITHDRAWN = text("""
    SELECT r.policy_revision, array_agg(r.slot ORDER BY r.slot) AS slots
      FROM regional.reservations AS r
      JOIN regional.policy_states AS p
        ON p.region = r.region AND p.revision = r.policy_revision AND p.state = 'rolled_back'
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.generation = :generation AND r.claimed_slot IS NOT NULL AND r.state = 'bound'
     GROUP BY r.policy_revision ORDER BY r.policy_revision
""")


@regional_transaction("durable_reader", "read policy {revision} in {region}")
async def read_region_policy(
    connection: AsyncConnection, region: RegionId, revision: PolicyRevision
) -> RegionPolicy:
    return await find_region_policy(connection, region, revision)


@regional_transaction("durable_reader", "read which policy is in force in {region}")
async def read_in_force(
    connection: AsyncConnection, region: RegionId
) -> dict[PolicyRevision, PolicyState]:
    """The active revision, and the canary where there is one."""
    rows = await connection.execute(_IN_FORCE, {"region": region})
    return {row.revision: PolicyState(row.state) for row in rows}


@regional_transaction("durable_reader", "read what became of policy {revision} in {region}")
async def read_report(
    connection: AsyncConnection, region: RegionId, revision: PolicyRevision
) -> RolledBack:
    return await find_report(connection, region, revision)


async def read_reports(databases: Databases, revision: PolicyRevision) -> RolledBack:
    """The same of every region that answers."""
    regions = await list_regions(databases)
    found = await ask_regions(regions, lambda region: read_report(databases, region, revision))
    return RolledBack.of_all(found.by_region.values())


@regional_transaction("durable_reader", "read which slots of {tenant}/{workload} go on")
async def read_withdrawn(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> dict[PolicyRevision, tuple[Slot, ...]]:
    """The slots that run under a decision of a revision that was rolled back since."""
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    rows = await connection.execute(_WITHDRAWN, of)
    return {row.policy_revision: tuple(row.slots) for row in rows}


async def find_region_policy(
    connection: AsyncConnection, region: RegionId, revision: PolicyRevision
) -> RegionPolicy:
    of = {"region": region, "revision": revision}
    row = (await connection.execute(_READ, of)).one_or_none()
    if row is None:
        return RegionPolicy(state=PolicyState.PUBLISHED)
    return RegionPolicy(
        state=PolicyState(row.state), number=row.number, age_seconds=row.age_seconds
    )


async def find_report(
    connection: AsyncConnection, region: RegionId, revision: PolicyRevision
) -> RolledBack:
    of = {"region": region, "revision": revision}
    row = (await connection.execute(_REPORT, of)).one_or_none()
    if row is None:
        return RolledBack()
    shares = tuple(RolledBackShare.read({**one, "region": region}) for one in row.report or ())
    return RolledBack(shares=shares, count=row.report_count)

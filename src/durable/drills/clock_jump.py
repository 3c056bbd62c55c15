"""Has a region's lease renewed by a clock that is ahead, and sets it right: nothing passes by it.

The machine's clock is left alone: the drill renews the lease once itself, with a moment that is
ahead.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from durable.authority.db.clock import read_regional_time
from durable.authority.reads.readiness import RegionReadiness, read_readiness
from durable.authority.recovery.region_leases import read_lease, renew
from durable.controllers.region_lease import LEASE_SECONDS
from durable.drills.checks import all_serve, audit_tells, becomes, invariants_hold
from durable.drills.drill import Expectation
from durable.drills.world import World, busiest_region, small_workload
from durable.health.findings import FindingCode
from durable.health.regions import unready
from durable.model.ids import RegionId

AHEAD = timedelta(minutes=5)
WORKLOAD, WHY = "clock-drill", "drill: a clock jumped"
WITHIN_SECONDS = 120.0


async def run(world: World) -> AsyncIterator[Expectation]:
    """The busiest region of the most important service."""
    subject = await world.subject()
    region = busiest_region(subject)
    databases = world.databases
    ahead = await read_regional_time(databases, region) + AHEAD
    await renew(databases, region, "a drill", lease_seconds=LEASE_SECONDS, now=ahead)
    left = await read_lease(databases, region)
    findings = unready(await _readiness(world, region))
    yield Expectation(
        what=f"the lease of {region} from a clock that was {AHEAD} ahead counts for nothing",
        met=left.has_jumped and left.seconds == 0,
        seen=f"{left.seconds:.0f} s are left" if left.seconds else "",
    )
    yield Expectation(
        what="`durable status` says so",
        met=FindingCode.CLOCK_JUMPED in [one.code for one in findings],
        seen="; ".join(map(str, findings)),
    )
    yield await becomes(
        "its worker settles that and renews the lease",
        lambda: read_lease(databases, region),
        lambda lease: not lease.has_jumped and (lease.seconds or 0) > 0,
        WITHIN_SECONDS,
        lambda lease: f"{lease.seconds or 0:.0f} s are left",
    )
    yield await audit_tells(world, f"region/{region}", ["settle clock"])
    manifest = small_workload(subject.tenant, WORKLOAD, regions=[region])
    async with world.removed_afterwards(subject.tenant, WORKLOAD, reason=WHY):
        await world.durable.apply(manifest, reason=WHY)
        await world.durable.wait(subject.tenant, WORKLOAD, within_seconds=WITHIN_SECONDS)
        yield Expectation(what="new work is placed there again", met=True)
    yield await all_serve(world)
    yield await invariants_hold(world)


async def _readiness(world: World, region: RegionId) -> Sequence[RegionReadiness]:
    rows = await read_readiness(world.databases, world.databases.url_of(region))
    return [one for one in rows if one.region == region]

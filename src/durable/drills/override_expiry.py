"""Avoids a zone for a while: work moves, the override ends by itself, and the audit tells it."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

from durable.authority.cache.region_read import read_whole
from durable.authority.overrides.reads import obeyed_overrides
from durable.client import Durable
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.expectations import audit_tells, invariants_hold
from durable.drills.subject import find_subject
from durable.drills.world import World
from durable.model.ids import RegionId, TenantId, WorkloadName, ZoneId
from durable.model.overrides.override import Override
from durable.model.states import BindingState, OverrideState
from durable.signals.names import override_id

LASTS = timedelta(seconds=30)
# It ends by itself; whoever looks may be late.
END_SECONDS = 120.0
TOLD = ("propose override", "activate override", "put override in force", "end override")


async def run(world: World) -> AsyncIterator[Expectation]:
    """Avoids the zone with the most replicas of the most important service."""
    durable = world.durable
    subject = await find_subject(durable)
    async for one in avoid_a_zone(durable, subject.tenant, subject.workload, LASTS):
        yield one


async def avoid_a_zone(
    durable: Durable, tenant: TenantId, workload: WorkloadName, lasts: timedelta
) -> AsyncIterator[Expectation]:
    """The same for any workload."""
    found = await _busiest_zone(durable, tenant, workload)
    if found is None:
        yield Expectation(what=f"{tenant}/{workload} runs in a region of two zones", met=False)
        return
    region, zone, replicas = found
    override, _ = await durable.overrides.create(
        "avoid-zone",
        {"region": region, "zone": zone, "tenant": tenant, "workload": workload},
        reason=f"drill: avoid {zone}",
        effect={"move": True},
        ttl=lasts,
    )

    async def has_left() -> bool:
        counted = await _replicas_by_zone(durable, tenant, workload)
        status = await durable.status(tenant, workload)
        return not counted[region, zone] and status.serving >= status.wanted

    yield Expectation(
        what=f"{replicas} replicas of {tenant}/{workload} leave {zone}, and all serve elsewhere",
        met=await come_true(has_left, lasts.total_seconds()),
        seen=f"override {override.id}, {lasts.seconds} s",
    )
    async for one in _ends_by_itself(durable, override, region):
        yield one
    yield await invariants_hold(durable)


async def _ends_by_itself(
    durable: Durable, override: Override, region: RegionId
) -> AsyncIterator[Expectation]:
    async def has_ended() -> bool:
        found = await durable.overrides.read(override.id)
        return found.has_ended and override.id not in await obeyed_overrides(
            durable.databases, region
        )

    await come_true(has_ended, END_SECONDS)
    ended = await durable.overrides.read(override.id)
    yield Expectation(
        what="the override ends by itself, not before its time",
        met=ended.state is OverrideState.EXPIRED
        and ended.ended_at is not None
        and ended.ended_at >= override.expires_at,
        seen=f"{ended.state} at {ended.ended_at:%H:%M:%S}Z" if ended.ended_at else ended.state,
    )
    obeyed = await obeyed_overrides(durable.databases, region)
    yield Expectation(what=f"{region} obeys it no longer", met=override.id not in obeyed)
    yield await audit_tells(durable, override_id(override.id), TOLD)


async def _busiest_zone(
    durable: Durable, tenant: TenantId, workload: WorkloadName
) -> tuple[RegionId, ZoneId, int] | None:
    """Of regions with another zone to go to."""
    for (region, zone), count in (await _replicas_by_zone(durable, tenant, workload)).most_common():
        read = await read_whole(durable.databases, region)
        if len({node.zone for node in read.nodes}) > 1:
            return region, zone, count
    return None


async def _replicas_by_zone(
    durable: Durable, tenant: TenantId, workload: WorkloadName
) -> Counter[tuple[RegionId, ZoneId]]:
    counted: Counter[tuple[RegionId, ZoneId]] = Counter()
    for one in (await durable.explain(tenant, workload)).regions:
        read = await read_whole(durable.databases, one.region)
        zones = {node.node: ZoneId(node.zone) for node in read.nodes}
        for slot in one.observed:
            if slot.state is not BindingState.RELEASED and slot.node in zones:
                counted[one.region, zones[slot.node]] += 1
    return counted


DRILL = Drill(
    name="override-expiry",
    sentence="Avoid a zone for thirty seconds: work moves, and the override ends by itself.",
    runbook="runbooks/avoid-zone.md",
    run=run,
)

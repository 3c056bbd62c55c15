"""Avoids a zone for a while: work moves, the override ends by itself, and the audit tells it."""

from collections.abc import AsyncIterator
from datetime import timedelta

from durable.authority.cache.region_read import read_whole
from durable.drills.checks import audit_tells, becomes, invariants_hold, obeying, override_ends
from durable.drills.drill import Expectation
from durable.drills.world import World
from durable.model.ids import RegionId, ZoneId
from durable.model.states import OverrideState
from durable.model.work.workload import AdmittedWorkload
from durable.signals.names import override_id

LASTS = timedelta(seconds=30)
# It ends by itself, and is read a little later.
END_SECONDS = 120.0
TOLD = ("propose override", "activate override", "put override in force", "end override")


async def run(world: World) -> AsyncIterator[Expectation]:
    """Avoids the zone with the most replicas of the most important service."""
    subject = await world.subject()
    name = f"{subject.tenant}/{subject.workload}"
    busiest = await _busiest_zone(world, subject)
    if busiest is None:
        yield Expectation(what=f"{name} runs in a region of two zones", met=False)
        return
    region, zone, replicas = busiest
    world.say(f"Avoiding {zone} for {LASTS.seconds} s, with what runs of {name}")
    override, _ = await world.durable.overrides.create(
        "avoid-zone",
        {
            "region": region,
            "zone": zone,
            "tenant": subject.tenant,
            "workload": subject.workload,
        },
        reason=f"drill: avoid {zone}",
        effect={"move": True},
        ttl=LASTS,
    )

    async def has_left() -> bool:
        serves = await world.serves(subject.tenant, subject.workload)
        return serves and not (await world.replicas_by_zone(subject))[region, zone]

    yield await becomes(
        f"{replicas} replicas of {name} leave {zone}, and all serve elsewhere",
        has_left,
        bool,
        LASTS.total_seconds(),
        lambda _: f"override {override.id}, {LASTS.seconds} s",
    )
    what = "the override ends by itself, not before its time"
    yield await override_ends(world, override, what, OverrideState.EXPIRED, END_SECONDS)
    obeyed = await obeying(world, override.id)
    yield Expectation(what=f"{region} obeys it no longer", met=region not in obeyed)
    yield await audit_tells(world, override_id(override.id), TOLD)
    yield await invariants_hold(world)


async def _busiest_zone(
    world: World, subject: AdmittedWorkload
) -> tuple[RegionId, ZoneId, int] | None:
    """Of regions with another zone to go to."""
    for (region, zone), count in (await world.replicas_by_zone(subject)).most_common():
        nodes = (await read_whole(world.databases, region)).nodes
        if len({node.zone for node in nodes}) > 1:
            return region, zone, count
    return None

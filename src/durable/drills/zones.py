"""Drills about a zone: avoided for a while by an override, or lost with all its nodes."""

from collections.abc import AsyncIterator
from datetime import timedelta

from durable.authority.cache.region_read import read_whole
from durable.authority.recovery.region_facts import read_fact
from durable.drills.checks import (
    all_serve,
    audit_tells,
    becomes,
    invariants_hold,
    obeying,
    override_ends,
)
from durable.drills.drill import Expectation
from durable.drills.faults import BrokenNodes
from durable.drills.world import World, busiest_region
from durable.model.ids import RegionId, ZoneId
from durable.model.states import OverrideState, RegionState
from durable.model.work.workload import AdmittedWorkload
from durable.signals.names import override_id
from durable.validation.text import counted

LASTS = timedelta(seconds=30)
# It ends by itself, and is read a little later.
END_SECONDS = 120.0
# Leases lapse, nodes count as lost, and their work is placed again.
MOVE_SECONDS = 240.0
TOLD = ("propose override", "activate override", "put override in force", "end override")


async def override_expiry(world: World) -> AsyncIterator[Expectation]:
    """Avoids the zone with the most replicas of the most important service."""
    subject = await world.subject()
    name = f"{subject.tenant}/{subject.workload}"
    busiest = await _busiest_zone(world, subject)
    if busiest is None:
        yield Expectation(what=f"{name} runs in a region of two zones", met=False)
        return
    region, zone, replicas = busiest
    world.say(f"Avoiding {zone} for {LASTS.seconds} s, with what runs of {name}")
    where = {"region": region, "zone": zone}
    override, _ = await world.durable.overrides.create(
        "avoid-zone",
        {**where, "tenant": subject.tenant, "workload": subject.workload},
        reason=f"drill: avoid {zone}",
        effect={"move": True},
        ttl=LASTS,
    )
    seen = f"override {override.id}, {LASTS.seconds} s"
    within = LASTS.total_seconds()
    yield await _leaves(world, subject, region, zone, replicas, within, seen)
    what = "the override ends by itself, not before its time"
    yield await override_ends(world, override, what, OverrideState.EXPIRED, END_SECONDS)
    obeyed = await obeying(world, override.id)
    yield Expectation(what=f"{region} obeys it no longer", met=region not in obeyed)
    yield await audit_tells(world, override_id(override.id), TOLD)
    yield await invariants_hold(world)


async def zone_loss(world: World) -> AsyncIterator[Expectation]:
    """The zone with the most replicas of the most important service, in its largest region."""
    subject = await world.subject()
    region = busiest_region(subject)
    counts = await world.replicas_by_zone(subject)
    replicas, zone = max(
        (count, zone) for (where, zone), count in counts.items() if where == region
    )
    with BrokenNodes(world.directory) as nodes:
        nodes.lose(region=str(region), zone=zone)
        yield await _leaves(world, subject, region, zone, replicas, MOVE_SECONDS)
        fact = await read_fact(world.databases, region)
        yield Expectation(
            what=f"{region} is not taken for lost",
            met=fact.state is RegionState.OPEN,
            seen=fact.state,
        )
        yield await invariants_hold(world)
    yield await all_serve(world)


async def _leaves(
    world: World,
    subject: AdmittedWorkload,
    region: RegionId,
    zone: ZoneId,
    replicas: int,
    within_seconds: float,
    seen: str = "",
) -> Expectation:
    """Whether no replica is in the zone any more, and all of them serve."""

    async def has_left() -> bool:
        serves = await world.serves(subject.tenant, subject.workload)
        return serves and not (await world.replicas_by_zone(subject))[region, zone]

    name = f"{subject.tenant}/{subject.workload}"
    what = f"{counted(replicas, 'replica')} of {name} leave {zone}, and all serve elsewhere"
    return await becomes(what, has_left, bool, within_seconds, lambda _: seen)


async def _busiest_zone(
    world: World, subject: AdmittedWorkload
) -> tuple[RegionId, ZoneId, int] | None:
    """Of regions with another zone to go to."""
    for (region, zone), count in (await world.replicas_by_zone(subject)).most_common():
        nodes = (await read_whole(world.databases, region)).nodes
        if len({node.zone for node in nodes}) > 1:
            return region, zone, count
    return None

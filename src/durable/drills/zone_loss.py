"""Loses a zone: its work goes to other zones, and the region is not taken for lost."""

from collections.abc import AsyncIterator

from durable.authority.recovery.region_facts import read_fact
from durable.drills.checks import all_serve, becomes, invariants_hold
from durable.drills.drill import Expectation
from durable.drills.faults import BrokenNodes
from durable.drills.world import World, busiest_region
from durable.model.states import RegionState
from durable.validation.text import counted

# Leases lapse, nodes count as lost, and their work is placed again.
MOVE_SECONDS = 240.0


async def run(world: World) -> AsyncIterator[Expectation]:
    """The zone with the most replicas of the most important service, in its largest region."""
    subject = await world.subject()
    region, name = busiest_region(subject), f"{subject.tenant}/{subject.workload}"
    counts = await world.replicas_by_zone(subject)
    replicas, zone = max(
        (count, zone) for (where, zone), count in counts.items() if where == region
    )
    with BrokenNodes(world.directory) as nodes:
        nodes.lose(region=str(region), zone=zone)

        async def has_moved() -> bool:
            serves = await world.serves(subject.tenant, subject.workload)
            return serves and not (await world.replicas_by_zone(subject))[region, zone]

        yield await becomes(
            f"{counted(replicas, 'replica')} of {name} leave {zone} and serve elsewhere",
            has_moved,
            bool,
            MOVE_SECONDS,
        )
        fact = await read_fact(world.databases, region)
        yield Expectation(
            what=f"{region} is not taken for lost",
            met=fact.state is RegionState.OPEN,
            seen=fact.state,
        )
        yield await invariants_hold(world)
    yield await all_serve(world)

"""Loses a zone: its work goes to other zones, and the region is not taken for lost."""

from collections import Counter
from collections.abc import AsyncIterator

from durable.authority.cache.region_read import read_whole
from durable.authority.recovery.region_facts import read_fact
from durable.client import Durable
from durable.drills.broken_nodes import BrokenNodes
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.expectations import invariants_hold
from durable.drills.region_loss import all_serve
from durable.drills.subject import busiest_region, find_subject
from durable.drills.world import World
from durable.model.ids import RegionId
from durable.model.states import BindingState, RegionState
from durable.model.work.workload import AdmittedWorkload
from durable.validation.text import counted

# Leases lapse, nodes count as lost, and their work is placed again.
MOVE_SECONDS = 240.0


async def run(world: World) -> AsyncIterator[Expectation]:
    """The zone with the most replicas of the most important service, in its largest region."""
    durable = world.durable
    subject = await find_subject(durable)
    region, name = busiest_region(subject), f"{subject.tenant}/{subject.workload}"
    zone, replicas = (await _by_zone(durable, subject, region)).most_common(1)[0]
    with BrokenNodes(world.directory) as nodes:
        nodes.lose(region=str(region), zone=zone)

        async def has_moved() -> bool:
            status = await durable.status(subject.tenant, subject.workload)
            there = (await _by_zone(durable, subject, region))[zone]
            return not there and status.serving >= status.wanted

        yield Expectation(
            what=f"{counted(replicas, 'replica')} of {name} leave {zone} and serve elsewhere",
            met=await come_true(has_moved, MOVE_SECONDS),
        )
        fact = await read_fact(durable.databases, region)
        yield Expectation(
            what=f"{region} is not taken for lost",
            met=fact.state is RegionState.OPEN,
            seen=fact.state,
        )
        yield await invariants_hold(durable)
    yield await all_serve(durable)


async def _by_zone(durable: Durable, subject: AdmittedWorkload, region: RegionId) -> Counter[str]:
    read = await read_whole(durable.databases, region)
    zones = {node.node: node.zone for node in read.nodes}
    explained = await durable.explain(subject.tenant, subject.workload)
    return Counter(
        zones[slot.node]
        for one in explained.regions
        if one.region == region
        for slot in one.observed
        if slot.state is not BindingState.RELEASED and slot.node in zones
    )


DRILL = Drill(
    name="zone-loss",
    sentence="Lose a zone: its work goes to other zones, and the region is not taken for lost.",
    runbook="runbooks/partition.md",
    run=run,
)

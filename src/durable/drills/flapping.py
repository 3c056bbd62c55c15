"""Loses a region, gives it back and loses it again at once: one loss, one recovery."""

import asyncio
from collections.abc import AsyncIterator

from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_fact
from durable.drills.broken_nodes import BrokenNodes
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.region_loss import fail_back, lose_region
from durable.drills.subject import busiest_region, find_subject
from durable.drills.world import World
from durable.model.states import RegionState

SUSPECT_SECONDS = 90.0
# Shorter than the calm that would end the suspicion.
BACK_FOR_SECONDS = 4.0


async def run(world: World) -> AsyncIterator[Expectation]:
    """Lost, back, and lost again within a minute."""
    durable = world.durable
    region = busiest_region(await find_subject(durable))
    with BrokenNodes(world.directory) as nodes:
        before = {str(one.key) for one in await list_recoveries(durable.databases, ended=True)}
        nodes.lose(region=str(region))

        async def is_suspected() -> bool:
            fact = await read_fact(durable.databases, region)
            return fact.state is not RegionState.OPEN

        yield Expectation(
            what=f"{region} falls silent and is suspected",
            met=await come_true(is_suspected, SUSPECT_SECONDS),
        )
        nodes.give_back()
        await asyncio.sleep(BACK_FOR_SECONDS)
        seen, now = await lose_region(durable, nodes, region, world.follow)
        for one in seen:
            yield one
        known = await list_recoveries(durable.databases, ended=True)
        found = sorted(str(one.key) for one in known if str(one.key) not in before)
        yield Expectation(what="it is one recovery", met=len(found) == 1, seen=", ".join(found))
        if now is None:
            return
        async for one in fail_back(durable, nodes, region, world.follow):
            yield one


DRILL = Drill(
    name="flapping",
    sentence="A region that is lost, back and lost again within a minute is one loss.",
    runbook="runbooks/failback.md",
    run=run,
)

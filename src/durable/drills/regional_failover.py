"""Loses a region: it is detected, fenced and emptied, and gets its work back."""

from collections.abc import AsyncIterator

from durable.drills.broken_nodes import BrokenNodes
from durable.drills.drill import Drill, Expectation
from durable.drills.region_loss import fail_back, lose_region
from durable.drills.subject import busiest_region, find_subject
from durable.drills.world import World


async def run(world: World) -> AsyncIterator[Expectation]:
    """The region with the most replicas of the most important service."""
    durable = world.durable
    region = busiest_region(await find_subject(durable))
    with BrokenNodes(world.directory) as nodes:
        seen, now = await lose_region(durable, nodes, region, world.follow)
        for one in seen:
            yield one
        if now is None:
            return
        async for one in fail_back(durable, nodes, region, world.follow):
            yield one


DRILL = Drill(
    name="regional-failover",
    sentence="Lose a region: its critical work serves elsewhere in time, and goes back.",
    runbook="runbooks/regional-failover.md",
    run=run,
)

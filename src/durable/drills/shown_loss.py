"""The loss of a region before people's eyes: live while it happens, and a report afterwards."""

import asyncio

from durable.drills.broken_nodes import BrokenNodes
from durable.drills.drill import Expectation
from durable.drills.load_meter import ControlPlaneLoad, LoadMeter
from durable.drills.region_loss import lose_region
from durable.drills.subject import busiest_region, find_subject
from durable.drills.world import World
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.model.recovery.recoveries import RecoveryProgress
from durable.validation.value import Value


class LostRegion(Value):
    """How a lost region was recovered, and what that cost the control plane."""

    region: RegionId
    expectations: tuple[Expectation, ...]
    recovery: RecoveryProgress | None
    load: ControlPlaneLoad

    @property
    def failure(self) -> str | None:
        """The first thing that was not as it had to be."""
        missed = next((one for one in self.expectations if not one.met), None)
        return missed and f"The loss of {self.region} did not go as it should: {missed}."


async def show_loss(world: World) -> LostRegion:
    """Takes down the region that hurts the most important service, and shows how it comes back."""
    durable = world.durable
    region = busiest_region(await find_subject(durable))
    meter = LoadMeter(durable)
    await meter.measure_calm()
    world.say(f"Taking {region} down, with everything that runs there")
    measuring = asyncio.create_task(meter.run())
    try:
        with BrokenNodes(world.directory) as nodes:
            seen, now = await lose_region(durable, nodes, region, world.follow)
    finally:
        await end_all([measuring])
    return LostRegion(region=region, expectations=tuple(seen), recovery=now, load=meter.load)

"""The loss of a region before people's eyes: live while it happens, and a report afterwards."""

import asyncio
from pathlib import Path

from durable.cli.drills.broken_nodes import BrokenNodes
from durable.cli.drills.drill import Expectation
from durable.cli.drills.load_meter import ControlPlaneLoad, LoadMeter
from durable.cli.drills.region_loss import lose_region
from durable.cli.drills.subject import busiest_region, find_subject
from durable.cli.render.output import print_lines, progress, results
from durable.cli.render.recoveries import print_recovery
from durable.cli.render.recovery_view import RecoveryView
from durable.client import Durable
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


async def show_loss(durable: Durable, directory: Path) -> LostRegion:
    """Takes down the region that hurts the most important service, and shows how it comes back."""
    region = busiest_region(await find_subject(durable))
    meter = LoadMeter(durable)
    await meter.measure_calm()
    progress.print(f"Taking {region} down, with everything that runs there")
    measuring = asyncio.create_task(meter.run())
    try:
        with RecoveryView() as view, BrokenNodes(directory) as nodes:
            seen, now = await lose_region(durable, nodes, region, view.show)
    finally:
        await end_all([measuring])
    return LostRegion(region=region, expectations=tuple(seen), recovery=now, load=meter.load)


def print_lost(lost: LostRegion) -> None:
    """What was expected and seen, what was moved and what waits, and the load of it."""
    results.print(f"{lost.region} was lost, and its work came back elsewhere:\n")
    print_lines((f"{'✓' if one.met else '✗'} {one}" for one in lost.expectations), indent=2)
    if lost.recovery is not None:
        results.print("")
        print_recovery(lost.recovery)
    load = lost.load
    results.print(
        f"Transactions of the authority in a second: {load.calm_per_second} before the loss, "
        f"{load.mean_per_second} during the recovery, {load.peak_per_second} at most.\n"
    )

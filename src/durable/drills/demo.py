"""The demo: drills in a row. A workload rolls out, another leaves a zone, and a region is lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from durable.agent.simulated.faults import ASKED_FOR
from durable.authority.reads.transactions import count_commits
from durable.client import Durable, WaitTimeoutError
from durable.drills.drill import Expectation
from durable.drills.faults import BrokenNodes
from durable.drills.region_loss import RegionLoss
from durable.drills.world import World
from durable.drills.zones import override_expiry
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.model.recovery.recoveries import RecoveryProgress
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import WorkloadManifest
from durable.validation.value import Value

# Of the examples: what changes while people watch.
ROLLED = "billing-api"
WAIT_SECONDS = 120.0


class ControlPlaneLoad(Value):
    """Transactions that the authority committed in a second, before the loss and during it."""

    calm_per_second: float
    mean_per_second: float
    peak_per_second: float


class LoadMeter:
    """Counts what the database commits, once a second."""

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._rates: list[float] = []
        self._calm = 0.0

    async def measure_calm(self, seconds: float = 3.0) -> None:
        """What goes on while nothing is lost."""
        self._calm = await self._rate(seconds)

    async def run(self) -> None:
        while True:
            self._rates.append(await self._rate(1.0))

    @property
    def load(self) -> ControlPlaneLoad:
        rates = self._rates or [0.0]
        return ControlPlaneLoad(
            calm_per_second=round(self._calm, 1),
            mean_per_second=round(sum(rates) / len(rates), 1),
            peak_per_second=round(max(rates), 1),
        )

    async def _rate(self, seconds: float) -> float:
        before, began = await count_commits(self._durable.databases), time.monotonic()
        await asyncio.sleep(seconds)
        after = await count_commits(self._durable.databases)
        return (after - before) / (time.monotonic() - began)


class LostRegion(Value):
    """How a lost region was recovered, and what that cost the control plane."""

    region: RegionId
    expectations: tuple[Expectation, ...]
    recovery: RecoveryProgress | None
    load: ControlPlaneLoad


class DemoReport(Value):
    """What the demo expected and saw."""

    rollouts: tuple[Expectation, ...]
    avoided_zone: tuple[Expectation, ...]
    lost_region: LostRegion

    @property
    def failure(self) -> str | None:
        """The first thing that was not as it had to be."""
        expectations = (*self.rollouts, *self.avoided_zone, *self.lost_region.expectations)
        missed = next((each for each in expectations if not each.met), None)
        return missed and f"The demo did not go as it should: {missed}."


async def run(world: World, manifests: Sequence[WorkloadManifest]) -> DemoReport:
    """Finds the manifests applied and serving."""
    rollouts, avoided_zone = await asyncio.gather(
        _all_of(roll_out(world, manifests)), _all_of(override_expiry(world))
    )
    lost = await lose_region(world)
    return DemoReport(rollouts=rollouts, avoided_zone=avoided_zone, lost_region=lost)


async def _all_of(expectations: AsyncIterator[Expectation]) -> tuple[Expectation, ...]:
    return tuple([each async for each in expectations])


async def roll_out(
    world: World, manifests: Sequence[WorkloadManifest]
) -> AsyncIterator[Expectation]:
    """A good version of a workload serves, and one that crashes is rolled back by itself."""
    for manifest in manifests:
        if manifest.name != ROLLED:
            continue
        yield await _rolls_out(world, manifest, "version 2", {"VERSION": "2"}, crashes=False)
        bad = {"VERSION": "3", ASKED_FOR: "crash"}
        yield await _rolls_out(world, manifest, "version 3, which crashes,", bad, crashes=True)


async def _rolls_out(
    world: World,
    manifest: WorkloadManifest,
    version: str,
    environment: dict[str, str],
    *,
    crashes: bool,
) -> Expectation:
    name, durable = f"{manifest.tenant}/{manifest.name}", world.durable
    world.say(f"Rolling out version {environment['VERSION']} of {name}")
    run = manifest.spec.run.model_copy(update={"environment": environment})
    spec = manifest.spec.model_copy(update={"run": run})
    what = f"{version} of {name} {'is rolled back by itself' if crashes else 'serves'}"
    try:
        await durable.apply(manifest.model_copy(update={"spec": spec}), reason="durable demo")
        status = await durable.wait(manifest.tenant, manifest.name, within_seconds=WAIT_SECONDS)
    except RefusedError as error:
        is_rolled_back = error.refusal.code is RefusalCode.ROLLED_BACK
        return Expectation(what=what, met=crashes and is_rolled_back, seen=error.refusal.sentence)
    except WaitTimeoutError as error:
        return Expectation(what=what, met=False, seen=str(error))
    seen = f"generation {status.generation}, {status.serving} of {status.wanted} serving"
    return Expectation(what=what, met=not crashes, seen=seen)


async def lose_region(world: World) -> LostRegion:
    """Takes down the region that hurts the most important service, and measures the load of it."""
    region, meter = await world.busiest_region(), LoadMeter(world.durable)
    await meter.measure_calm()
    world.say(f"Taking {region} down, with everything that runs there")
    measuring = asyncio.create_task(meter.run())
    try:
        with BrokenNodes(world.directory) as nodes:
            loss = RegionLoss(world, nodes, region)
            expectations = await _all_of(loss.lose())
    finally:
        await end_all([measuring])
    return LostRegion(
        region=region, expectations=expectations, recovery=loss.progress, load=meter.load
    )

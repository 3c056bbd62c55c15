"""Cuts a region's agents off: its work moves, and what it still had ends when it is back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from durable.agent.simulated.faults import FaultKind
from durable.authority.reads.invariants import violations_everywhere
from durable.drills.broken_nodes import BrokenNodes
from durable.drills.drill import Drill, Expectation
from durable.drills.region_loss import fail_back, lose_region
from durable.drills.subject import busiest_region, find_subject
from durable.drills.world import World
from durable.ending import end_all

SAMPLE_SECONDS = 1.0


@dataclass
class Samples:
    """How often the invariants were looked at, and which were found broken."""

    count: int = 0
    broken: set[str] = field(default_factory=set[str])

    async def take(self, look: Callable[[], Awaitable[Iterable[object]]]) -> None:
        while True:
            self.broken.update(map(str, await look()))
            self.count += 1
            await asyncio.sleep(SAMPLE_SECONDS)

    def judge(self, failure: BaseException | None) -> Expectation:
        """Who has not looked has seen nothing broken: that is no proof."""
        seen = [f"{self.count} samples", *sorted(self.broken)]
        if failure is not None:
            seen.append(f"sampling failed: {failure}")
        return Expectation(
            what="no slot had two owners at any moment",
            met=self.count > 0 and failure is None and not self.broken,
            seen=", ".join(seen),
        )


async def run(world: World) -> AsyncIterator[Expectation]:
    """The invariants are looked at all the time, not only at the end."""
    durable = world.durable
    region = busiest_region(await find_subject(durable))
    samples = Samples()
    sampling = asyncio.create_task(samples.take(lambda: violations_everywhere(durable.databases)))
    try:
        with BrokenNodes(world.directory) as nodes:
            seen, now = await lose_region(durable, nodes, region, world.follow, FaultKind.CUT_OFF)
            for one in seen:
                yield one
            if now is None:
                return
            async for one in fail_back(durable, nodes, region, world.follow):
                yield one
        yield samples.judge(sampling.exception() if sampling.done() else None)
    finally:
        await end_all([sampling])


DRILL = Drill(
    name="partition",
    sentence="Cut a region off: its work moves once, and what it still had ends when it is back.",
    runbook="runbooks/partition.md",
    run=run,
)

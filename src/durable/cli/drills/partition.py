"""Cuts a region's agents off: its work moves, and what it still had ends when it is back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from durable.authority.reads.invariants import violations_everywhere
from durable.cli.drills.broken_nodes import BrokenNodes
from durable.cli.drills.drill import Drill, Expectation
from durable.cli.drills.region_loss import fail_back, lose_region
from durable.cli.drills.subject import busiest_region, find_subject
from durable.cli.render.recoveries import RecoveryLines
from durable.client import Durable
from durable.ending import end_all

SAMPLE_SECONDS = 1.0


async def run(durable: Durable, directory: Path) -> AsyncIterator[Expectation]:
    """The invariants are looked at all the time, not only at the end."""
    region = busiest_region(await find_subject(durable))
    lines, broken = RecoveryLines(), set[str]()
    sampling = asyncio.create_task(_sample(durable, broken))
    try:
        with BrokenNodes(directory) as nodes:
            seen, now = await lose_region(durable, nodes, region, lines.show)
            for one in seen:
                yield one
            if now is None:
                return
            async for one in fail_back(durable, nodes, region, lines.show):
                yield one
    finally:
        await end_all([sampling])
    yield Expectation(
        what="no slot had two owners at any moment", met=not broken, seen=", ".join(sorted(broken))
    )


async def _sample(durable: Durable, broken: set[str]) -> None:
    while True:
        broken.update(map(str, await violations_everywhere(durable.databases)))
        await asyncio.sleep(SAMPLE_SECONDS)


DRILL = Drill(
    name="partition",
    sentence="Cut a region off: its work moves once, and what it still had ends when it is back.",
    runbook="runbooks/partition.md",
    run=run,
)

"""Loses a region: it is detected, fenced and emptied, and gets its work back."""

from collections.abc import AsyncIterator
from pathlib import Path

from durable.cli.drills.broken_nodes import BrokenNodes
from durable.cli.drills.drill import Drill, Expectation
from durable.cli.drills.region_loss import fail_back, lose_region
from durable.cli.drills.subject import busiest_region, find_subject
from durable.cli.render.recoveries import RecoveryLines
from durable.client import Durable


async def run(durable: Durable, directory: Path) -> AsyncIterator[Expectation]:
    """The region with the most replicas of the most important service."""
    region = busiest_region(await find_subject(durable))
    lines = RecoveryLines()
    with BrokenNodes(directory) as nodes:
        seen, now = await lose_region(durable, nodes, region, lines.show)
        for one in seen:
            yield one
        if now is None:
            return
        async for one in fail_back(durable, nodes, region, lines.show):
            yield one


DRILL = Drill(
    name="regional-failover",
    sentence="Lose a region: its critical work serves elsewhere in time, and goes back.",
    runbook="runbooks/regional-failover.md",
    run=run,
)

"""A worker is killed, or its answer lost, after every step of a drain: it ends all the same."""

from pathlib import Path

import pytest

from durable.failpoints import Failpoint
from durable.model.fleet.drain import DrainState
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import manifest, small_fleet
from tests.workflows.processes import AGENT, WORKER, process
from tests.workflows.serving_log import ServingLog
from tests.workflows.test_drain import CRITICAL, FIRST, begin, node, on_nodes
from tests.workflows.test_killed_workers import ACTIONS, insist, revive

DRAINING = (Failpoint.AFTER_CORDON, Failpoint.AFTER_MARK, Failpoint.AFTER_END_DRAIN)
REPLACING = (Failpoint.AFTER_ASSIGN_SLOTS, Failpoint.AFTER_EVICT, Failpoint.AFTER_RELEASE)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("points", [DRAINING, REPLACING], ids=["draining", "replacing"])
async def test_a_drain_ends_whatever_dies_meanwhile(
    make_plane: MakePlane, tmp_path: Path, points: tuple[Failpoint, ...], action: str
) -> None:
    plane = await make_plane()
    await plane.load(small_fleet(nodes=3))
    armed = ",".join(f"{point}={action}:{tmp_path / point}" for point in points)
    with process(plane.settings, AGENT):
        with process(plane.settings, WORKER):
            for one in (manifest("api", replicas=6), manifest("critical", replicas=3, **CRITICAL)):
                await plane.durable.apply(one)
                await plane.durable.wait("risk", one["name"], within_seconds=180)
        log = ServingLog(plane)
        with process(plane.settings, WORKER, armed) as worker:
            reviving = plane.background(revive(worker, armed))
            await insist(lambda: begin(plane, node()))
            drain = await begin(plane, node())
            done = await plane.durable.drains.wait(drain, within_seconds=300)
            for name in ("api", "critical"):
                await plane.durable.wait("risk", name, within_seconds=180)
            reviving.cancel()
    assert done.state is DrainState.DRAINED
    assert all((tmp_path / point).exists() for point in points), "each point was met"
    assert all(FIRST not in nodes for nodes in (await on_nodes(plane)).values())
    lowest = log.lowest()
    assert lowest["api"] >= 5
    assert lowest["critical"] == 3
    await plane.no_invariant_is_broken()

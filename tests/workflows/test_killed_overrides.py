"""A worker is killed, or its answer lost, between each step of an override and its effect."""

from pathlib import Path

import pytest

from durable.authority.audit.events import read_events
from durable.authority.overrides.reads import obeyed_overrides
from durable.failpoints import Failpoint
from durable.model.ids import RegionId
from durable.model.states import OverrideState
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import manifest, small_fleet, until
from tests.workflows.processes import AGENT, WORKER, process
from tests.workflows.test_killed_workers import insist, revive

EAST = RegionId("east")
POINTS = (
    Failpoint.AFTER_PROPOSE_OVERRIDE,
    Failpoint.AFTER_CHANGE_OVERRIDE,
    Failpoint.AFTER_COPY_OVERRIDE,
)


@pytest.mark.parametrize("action", ["kill", "lose"])
async def test_an_override_takes_effect_once_and_ends_whatever_dies_meanwhile(
    make_plane: MakePlane, tmp_path: Path, action: str
) -> None:
    plane = await make_plane()
    await plane.load(small_fleet("east", nodes=2))
    armed = ",".join(f"{point}={action}:{tmp_path / point}" for point in POINTS)
    overrides = plane.durable.overrides
    scope = {"tenant": "risk", "workload": "api"}
    with process(plane.settings, AGENT), process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: plane.durable.apply(manifest(replicas=1), request_id="a"))
        await plane.durable.wait("risk", "api", within_seconds=180)
        await insist(
            lambda: overrides.create("hold", scope, reason="INC-1", id="o-1", request_id="p")
        )
        assert await obeyed_overrides(plane.databases, EAST) == ["o-1"]
        await insist(lambda: overrides.revoke("o-1", reason="done", request_id="r"))

        async def is_over() -> bool:
            return not await obeyed_overrides(plane.databases, EAST)

        await until(is_over, "the region knows that it has ended")
        reviving.cancel()
    assert all((tmp_path / point).exists() for point in POINTS), "each point was met"
    assert (await overrides.read("o-1")).state is OverrideState.REVOKED
    events, _ = await read_events(plane.databases, last=500)
    told = [(one.chain, one.action) for one in events if one.object == "override/o-1"]
    assert [one for one in told if one[0] == "global"] == [
        ("global", "propose override"), ("global", "activate override"), ("global", "end override"),
    ]  # fmt: skip
    assert [one for one in told if one[0] == "east"] == [
        ("east", "put override in force"), ("east", "end override"),
    ]  # fmt: skip
    await plane.no_invariant_is_broken()

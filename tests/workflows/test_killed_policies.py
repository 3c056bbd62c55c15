"""A worker is killed, or its answer lost, after every step of a policy: it is rolled back once."""

from pathlib import Path

import pytest

from durable.authority.policies.rows import read_orders, read_rollout
from durable.failpoints import Failpoint
from durable.model.policy.rollout import PolicyOrderKind, PolicyPhase
from durable.model.states import PolicyState
from tests.authority.policies.world import have_operators
from tests.authority.world import TEST, World
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import Plane, manifest, small_fleet, until
from tests.workflows.processes import AGENT, WORKER, process
from tests.workflows.test_killed_workers import ACTIONS, insist, revive
from tests.workflows.test_policy import WHO, in_force, policy, revisions_of

POINTS = (
    Failpoint.AFTER_POLICY_ORDER,
    Failpoint.AFTER_ENTER_REGION,
    Failpoint.AFTER_LEAVE_REGION,
)


async def reaches(plane: Plane, phase: PolicyPhase) -> None:
    async def is_there() -> bool:
        return (await read_rollout(plane.databases, 2)).phase is phase

    await until(is_there, f"revision 2 is {phase}", seconds=180)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_policy_goes_there_and_back_whatever_dies_meanwhile(
    make_plane: MakePlane, tmp_path: Path, action: str
) -> None:
    plane = await make_plane()
    await plane.load(small_fleet(nodes=3))
    have_operators(World(plane.databases), TEST)
    armed = ",".join(f"{point}={action}:{tmp_path / point}" for point in POINTS)
    policies = plane.durable.policies
    with process(plane.settings, AGENT), process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: policies.publish(policy(), reason="pack"))
        await insist(lambda: policies.promote(2, request_id="up", **WHO))
        await reaches(plane, PolicyPhase.EVERYWHERE)
        await insist(lambda: plane.durable.apply(manifest("api"), request_id="apply"))
        await plane.durable.wait("risk", "api", within_seconds=180)
        await insist(lambda: policies.roll_back(2, request_id="down", reroll=True, **WHO))
        await reaches(plane, PolicyPhase.ROLLED_BACK)

        async def is_replaced() -> bool:
            return await revisions_of(plane) == {1}

        await until(is_replaced, "what it had placed is replaced", seconds=180)
        await plane.durable.wait("risk", "api", within_seconds=180)
        reviving.cancel()
    assert all((tmp_path / point).exists() for point in POINTS), "each point was met"
    taken = [one.kind for one in await read_orders(plane.databases, 2)]
    assert taken == [PolicyOrderKind.ROLLBACK, PolicyOrderKind.PROMOTE], "each counts once"
    assert await in_force(plane) == {1: PolicyState.ACTIVE}
    await plane.no_invariant_is_broken()

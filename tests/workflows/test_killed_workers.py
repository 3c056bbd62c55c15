"""A worker is killed between every two steps, and answers are lost after each commit."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from durable.authority.workloads.generations import list_generations
from durable.failpoints import Failpoint
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusedError
from durable.model.states import BindingState
from durable.state_dir.record import StackError
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import Plane, manifest, until
from tests.workflows.processes import AGENT, WORKER, Process, process
from tests.workflows.replays import every_history_replays
from tests.workflows.serving_log import ServingLog
from tests.workflows.test_trouble import set_faults

# On the way to serving and back to nothing, in the order in which they are met.
ADMISSION = (
    Failpoint.BEFORE_ADMIT_WORKLOAD,
    Failpoint.AFTER_ADMIT_WORKLOAD,
    Failpoint.AFTER_ASSIGN_SLOTS,
    Failpoint.AFTER_PUBLISH_SHARES,
    Failpoint.AFTER_OPEN_PLACEMENTS,
    Failpoint.AFTER_EVICT,
)
CLAIMING = (
    Failpoint.AFTER_DECISION,
    Failpoint.AFTER_RESERVE,
    Failpoint.AFTER_BIND,
    Failpoint.AFTER_RELEASE,
)
STARTING = (
    Failpoint.BEFORE_ENQUEUE,
    Failpoint.AFTER_ENQUEUE,
    Failpoint.BEFORE_START,
    Failpoint.AFTER_START,
)
# One step of each of the three.
FEW = (Failpoint.AFTER_ASSIGN_SLOTS, Failpoint.AFTER_RESERVE, Failpoint.AFTER_START)

# To what a step wrote, a lost answer is what a kill is. A kill takes longer, because others wait
# until the tasks of the dead worker time out.
ACTIONS = (pytest.param("kill", marks=pytest.mark.soak), "lose")


async def serves_once(plane: Plane, replicas: int) -> None:
    """Every slot serves, each has one binding, and nothing else is claimed."""
    status = await plane.durable.wait("risk", "api", within_seconds=300)
    assert status.serving == replicas
    bindings = await plane.bindings()
    assert {slot for _, slot in bindings} == set(range(replicas))
    assert {binding.state for binding in bindings.values()} == {BindingState.SERVING}
    await plane.no_invariant_is_broken()


async def revive(worker: Process, armed: str) -> None:
    """Whatever kills the worker, another is started in its place."""
    while True:
        await until(lambda: _ended(worker), "the worker dies", seconds=3600)
        worker.start(armed)


async def _ended(worker: Process) -> bool:
    return worker.exit_code is not None


async def insist(ask: Callable[[], Awaitable[object]]) -> None:
    """As a client that was not answered in time does: sends the same request again."""
    for _ in range(5):
        with suppress(StackError):
            await ask()
            return
    raise AssertionError("nobody answered")


async def live_through(plane: Plane, points: tuple[Failpoint, ...], fired: Path) -> None:
    """From apply to serving to deleted, with the worker killed once at each of these points."""
    await plane.load()
    armed = ",".join(f"{point}=kill:{fired / point}" for point in points)
    with process(plane.settings, AGENT), process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: plane.durable.apply(manifest(replicas=3), request_id="one"))
        await serves_once(plane, 3)
        await insist(lambda: plane.durable.delete("risk", "api", request_id="two"))
        await plane.durable.wait("risk", "api", until="deleted", within_seconds=300)
        reviving.cancel()
    assert await plane.bindings() == {}
    await plane.no_invariant_is_broken()
    assert [point for point in points if not (fired / point).exists()] == []
    await every_history_replays(plane)


async def test_a_worker_that_is_killed_harms_nothing(plane: Plane, tmp_path: Path) -> None:
    await live_through(plane, FEW, tmp_path)


@pytest.mark.soak
async def test_a_worker_killed_between_any_two_steps_harms_nothing(
    make_plane: MakePlane, tmp_path: Path
) -> None:
    # Most of it is waiting for a dead worker's tasks to time out, so three live through it at once.
    async with asyncio.TaskGroup() as group:
        for points in (ADMISSION, CLAIMING, STARTING):
            group.create_task(live_through(await make_plane(), points, tmp_path))


async def test_an_answer_that_is_lost_after_each_commit_changes_nothing(
    plane: Plane, tmp_path: Path
) -> None:
    await plane.load()
    lost = [p for p in (*ADMISSION, *CLAIMING, *STARTING) if not p.startswith("before")]
    armed = ",".join(f"{point}=lose:{tmp_path / point}" for point in lost)
    with process(plane.settings, AGENT), process(plane.settings, WORKER, armed):
        await plane.durable.apply(manifest(replicas=3), request_id="one")
        await serves_once(plane, 3)
        await plane.durable.delete("risk", "api")
        await plane.durable.wait("risk", "api", until="deleted", within_seconds=300)
    assert [point for point in lost if not (tmp_path / point).exists()] == []
    assert await plane.bindings() == {}
    await plane.no_invariant_is_broken()


ROLLING = (
    Failpoint.AFTER_ASSIGN_SLOTS,
    Failpoint.AFTER_PUBLISH_SHARES,
    Failpoint.AFTER_OPEN_PLACEMENTS,
    Failpoint.AFTER_EVICT,
    Failpoint.AFTER_RELEASE,
    Failpoint.AFTER_BEGIN_ROLLBACK,
)


@pytest.mark.soak
async def test_a_worker_killed_at_any_step_of_a_rollout_harms_nothing(
    plane: Plane, tmp_path: Path
) -> None:
    """A good version rolls out and a bad one is undone, never below the floor."""
    await plane.load()
    set_faults(plane, {"kind": "fail_to_start", "generation": 3})
    log = ServingLog(plane)
    agent = (*AGENT, "--faults", str(plane.faults))
    with process(plane.settings, agent), process(plane.settings, WORKER) as worker:
        await plane.durable.apply(_version(1), request_id="one")
        await serves_once(plane, 4)
        worker.kill()
        armed = ",".join(f"{point}=kill:{tmp_path / point}" for point in ROLLING)
        worker.start(armed)
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: plane.durable.apply(_version(2), request_id="two"))
        await until(lambda: _came_to(plane, 2, "complete"), "version 2 is good", seconds=300)
        await insist(lambda: plane.durable.apply(_version(3), request_id="three"))
        await until(lambda: _came_to(plane, 3, "rolled_back"), "3 is undone", seconds=300)
        await until(lambda: _is_out(plane, 2), "version 2 serves again", seconds=300)
        reviving.cancel()
        with pytest.raises(RefusedError, match="was rolled back"):
            await plane.durable.wait("risk", "api")
        await serves_once(plane, 4)
    assert log.fewest(4) >= 3
    assert [point for point in ROLLING if not (tmp_path / point).exists()] == []
    await every_history_replays(plane)


def _version(number: int) -> dict[str, Any]:
    run = {"environment": {"VERSION": str(number)}}
    return manifest(replicas=4, run=run, rollout={"bake": None, "progress_deadline": "1m"})


async def _is_out(plane: Plane, generation: int) -> bool:
    bindings = await plane.bindings()
    slots = {slot: binding.generation for (_, slot), binding in bindings.items()}
    return slots == dict.fromkeys(range(4), generation)


async def _came_to(plane: Plane, generation: int, outcome: str) -> bool:
    found = await list_generations(plane.databases, TenantId("risk"), WorkloadName("api"))
    return [one.outcome.value for one in found if one.generation == generation] == [outcome]

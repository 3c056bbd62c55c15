"""Drills of what people decide: they say what is not so, and leave nothing behind."""

import asyncio
from pathlib import Path

import pytest

from durable.authority.fleet.policies import publish_policy
from durable.drills import checks
from durable.drills.drill import Drill, Expectation
from durable.drills.registry import DRILLS
from durable.drills.rehearsal import differences, read_state, rehearse
from durable.drills.world import World
from durable.model.ids import ActorId
from durable.model.policy.rollout import PolicyPhase
from durable.scheduling.policies import first_policy
from tests.workflows.plane import Plane, manifest, small_fleet, until

AS_FOUND = "the stack is as the drill found it"
# By drill: where it is interrupted, and what does not hold without the demand for signatures.
REHEARSED = [
    ("recovery-override", "from ordinary work for incident", "without their key"),
    ("break-glass", "approves it with their key", "without a signature is refused"),
    ("lost-operator-key", "is declared lost", "the same without a signature"),
]


@pytest.fixture
async def serving(plane: Plane) -> Plane:
    await plane.load(small_fleet("east", "west", nodes=2))
    await (await plane.host()).work()
    await plane.durable.apply(manifest(replicas=1))
    await plane.durable.wait("risk", "api")
    return plane


async def demand_no_signatures(plane: Plane) -> None:
    policy = first_policy().model_copy(update={"signed_verbs": ()})
    spec, actor = policy.model_dump(mode="json"), ActorId("test")
    await publish_policy(plane.databases, 2, spec, actor, phase=PolicyPhase.EVERYWHERE)


async def test_what_does_not_hold_is_said_and_the_stack_is_as_it_was(
    serving: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody waits for the refusals, which never come.
    monkeypatch.setattr(checks, "AUDIT_SECONDS", 0.0)
    await demand_no_signatures(serving)
    world = World(serving.durable, Path())
    for name, _, wrong in REHEARSED:
        shown: list[Expectation] = []
        seen = await rehearse(DRILLS[name], world, stays=True, show=shown.append)
        assert seen == shown
        assert any(wrong in one.what for one in seen if not one.met), seen
        assert (seen[-1].what, seen[-1].met) == (AS_FOUND, True), seen[-1].seen


async def test_a_drill_that_is_interrupted_leaves_nobody_and_nothing_behind(serving: Plane) -> None:
    world = World(serving.durable, Path())
    before = await read_state(world)
    drills = [(name, last) for name, last, _ in REHEARSED]
    for name, last in [*drills, ("policy-rollback", "is placed under it")]:
        shown = await interrupted(world, DRILLS[name], last)
        assert [one for one in shown if not one.met] == []

        async def is_as_it_was() -> bool:
            return not differences(before, await read_state(world))

        await until(is_as_it_was, f"{name} left nothing")
    await serving.no_invariant_is_broken()


async def test_the_drill_of_a_clock_that_jumped_finds_the_lease_renewed(serving: Plane) -> None:
    """In real time: the worker of the region finds the jump at its own next renewal."""
    shown: list[Expectation] = []
    world = World(serving.durable, Path())
    seen = await rehearse(DRILLS["clock-jump"], world, stays=True, show=shown.append)
    assert [one for one in seen if not one.met] == []
    assert len(seen) > 6


async def interrupted(world: World, drill: Drill, last: str) -> list[Expectation]:
    """What it showed until somebody pressed Ctrl-C, which cancels the task."""
    shown: list[Expectation] = []

    def show(one: Expectation) -> None:
        shown.append(one)
        if last in one.what:
            task.cancel()

    task = asyncio.create_task(rehearse(drill, world, stays=True, show=show))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert last in shown[-1].what
    return shown

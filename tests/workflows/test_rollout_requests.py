"""What services ask of a rollout through the SDK, and what they are told."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import GenerationOutcome, RolloutStep
from durable.signals.status import WorkloadStatus
from tests.workflows.plane import Plane, manifest, small_fleet, until

WORKLOAD = "workload/risk/api"


def version(number: int, replicas: int = 4, **rollout: Any) -> dict[str, Any]:
    """The workload in one of its versions, one replica replaced at a time."""
    settings = {"bake": None, "max_surge": 1, "max_unavailable": 0, **rollout}
    run = {"environment": {"VERSION": str(number)}}
    return manifest(replicas=replicas, rollout=settings, run=run)


async def serving(plane: Plane, first: dict[str, Any]) -> None:
    await (await (await plane.load(small_fleet())).host()).work()
    await plane.durable.apply(first)
    await plane.durable.wait("risk", "api")


async def seen(plane: Plane, is_so: Callable[[WorkloadStatus], bool], what: str) -> None:
    async def condition() -> bool:
        return is_so(await plane.durable.status("risk", "api"))

    await until(condition, what)


def stands_at(step: RolloutStep) -> Callable[[WorkloadStatus], bool]:
    return lambda status: status.progress is not None and status.progress.step is step


async def test_a_rollout_stops_at_its_pause_point_until_it_is_promoted(plane: Plane) -> None:
    await serving(plane, version(1))
    durable = plane.durable
    await durable.apply(version(2, pauses=[1]))
    await seen(plane, stands_at(RolloutStep.PAUSE_POINT), "it stands at the pause point")
    promoted = await durable.promote("risk", "api", request_id="p1")
    assert promoted == "Promoted past pause point 1 of 1."
    status = await durable.wait("risk", "api")
    assert (status.generation, status.updated) == (2, 4)
    assert await durable.promote("risk", "api", request_id="p1") == promoted


async def test_a_paused_rollout_can_be_rolled_back_and_its_waiter_is_told(plane: Plane) -> None:
    await serving(plane, version(1))
    durable = plane.durable
    # The pause point keeps it from being over before it is paused.
    assert (await durable.apply(version(2, pauses=[1]))).generation == 2
    await durable.pause("risk", "api", reason="metrics")
    status = await durable.status("risk", "api")
    assert status.rollout is not None
    assert str(status.rollout.pause) == "test: metrics"
    assert "paused by test: metrics" in await durable.resume("risk", "api")

    other = await type(durable).connect(plane.settings, actor="operator")
    async with other:
        await other.rollback("risk", "api", reason="too slow")
        assert (await other.wait("risk", "api")).generation == 1
    with pytest.raises(RefusedError, match="rolled back: operator: too slow") as no:
        await durable.wait("risk", "api")
    assert no.value.refusal.code is RefusalCode.ROLLED_BACK
    assert (await durable.wait("risk", "api")).generation == 1, "it was said once"

    first, second = await durable.generations("risk", "api")
    assert (first.outcome, first.actor) == (GenerationOutcome.COMPLETE, "test")
    assert second.outcome is GenerationOutcome.ROLLED_BACK


async def test_a_bad_version_ends_the_wait_of_whoever_placed_it(plane: Plane) -> None:
    plane.faults.write_text("[]")
    await serving(plane, version(1, replicas=2))
    plane.faults.write_text(yaml.safe_dump([{"kind": "fail_to_start", "workload": "risk/api"}]))
    bad = version(2, replicas=2, max_failures=1)
    with pytest.raises(RefusedError, match="rolled back: its replicas failed") as no:
        await plane.durable.place(bad, request_id="bad")
    assert no.value.refusal.code is RefusalCode.ROLLED_BACK
    plane.faults.write_text("[]")
    status = await plane.durable.wait("risk", "api")
    assert (status.generation, status.updated) == (1, 2)
    await plane.no_invariant_is_broken()


async def test_slots_are_replaced_and_the_wait_ends_when_they_are(plane: Plane) -> None:
    await serving(plane, version(1))
    before = await plane.bindings()
    answer = await plane.durable.replace("risk", "api", slots=[1], request_id="r1")
    assert answer.startswith("Replacing 1 of 1 slots")
    status = await plane.durable.wait("risk", "api")
    after = await plane.bindings()
    moved = {slot for slot in before if after[slot].token != before[slot].token}
    assert moved == {("api", 1)}
    assert (status.generation, status.serving) == (1, 4)
    assert await plane.durable.replace("risk", "api", slots=[1], request_id="r1") == answer
    await plane.durable.wait("risk", "api")
    assert await plane.bindings() == after


async def test_requests_find_a_workload_whose_workflow_is_gone(plane: Plane) -> None:
    await serving(plane, version(1))
    durable, handle = plane.durable, plane.durable.client.get_workflow_handle(WORKLOAD)
    await durable.apply(version(2, pauses=[1]))
    await seen(plane, stands_at(RolloutStep.PAUSE_POINT), "it stands at the pause point")
    for ask in (
        durable.pause("risk", "api", request_id="p"),
        durable.resume("risk", "api", request_id="r"),
        durable.promote("risk", "api", request_id="m"),
        durable.replace("risk", "api", slots=[0], request_id="s"),
        durable.rollback("risk", "api", to=1, request_id="b"),
    ):
        await handle.terminate("lost")
        assert await ask
    await handle.terminate("lost")
    # Recorded answers need no workflow at all.
    assert await durable.pause("risk", "api", request_id="p")
    assert (await durable.rollback("risk", "api", to=1, request_id="b")).startswith("Going back")
    assert await durable.scale("risk", "api", 4)
    assert (await durable.wait("risk", "api")).generation == 1
    await plane.no_invariant_is_broken()


Ask = Callable[[Plane], Awaitable[object]]
SETTLED: list[tuple[Ask, RefusalCode, str]] = [
    (lambda p: p.durable.pause("risk", "api"), RefusalCode.WRONG_STATE, "is not rolling out"),
    (lambda p: p.durable.resume("risk", "api"), RefusalCode.WRONG_STATE, "is not rolling out"),
    (lambda p: p.durable.promote("risk", "api"), RefusalCode.WRONG_STATE, "is not rolling out"),
    (lambda p: p.durable.rollback("risk", "api"), RefusalCode.WRONG_STATE, "no other generation"),
    (
        lambda p: p.durable.rollback("risk", "api", to=7),
        RefusalCode.UNKNOWN_GENERATION,
        r"no generation 7 .* known: 1",
    ),
    (lambda p: p.durable.rollback("risk", "api", to=0), RefusalCode.INVALID, "to: "),
    (
        lambda p: p.durable.replace("risk", "api", slots=[4]),
        RefusalCode.UNKNOWN_SLOT,
        "no slot 4; it has 4, from 0",
    ),
    (lambda p: p.durable.replace("risk", "api", slots=[-1]), RefusalCode.INVALID, "slots"),
    (
        lambda p: p.durable.pause("risk", "none"),
        RefusalCode.UNKNOWN_WORKLOAD,
        "There is no workload risk/none",
    ),
    (
        lambda p: p.durable.generations("risk", "none"),
        RefusalCode.UNKNOWN_WORKLOAD,
        "There is no workload risk/none",
    ),
]


async def test_what_makes_no_sense_now_is_refused_and_changes_nothing(plane: Plane) -> None:
    await serving(plane, version(1))
    before = await plane.bindings(), await plane.durable.generations("risk", "api")
    for ask, code, sentence in SETTLED:
        with pytest.raises(RefusedError, match=sentence) as no:
            await ask(plane)
        assert no.value.refusal.code is code
    assert (await plane.bindings(), await plane.durable.generations("risk", "api")) == before


async def test_a_rollout_refuses_what_it_cannot_do(plane: Plane) -> None:
    await serving(plane, version(1))
    durable = plane.durable
    await durable.apply(version(2, pauses=[1]))
    await seen(plane, stands_at(RolloutStep.PAUSE_POINT), "it stands at the pause point")
    refused = [
        (durable.resume("risk", "api"), "is not paused"),
        (durable.rollback("risk", "api", to=2), r"Generation 2 .* was never good; good ones: 1"),
    ]
    for ask, sentence in refused:
        with pytest.raises(RefusedError, match=sentence):
            await ask
    await durable.pause("risk", "api", request_id="once")
    for ask, sentence in (
        (durable.pause("risk", "api"), "was paused already, by test: "),
        (durable.resume("risk", "api", request_id="once"), "was used for the pause"),
        (durable.replace("risk", "api", slots=[0], request_id="once"), "was used for the pause"),
    ):
        with pytest.raises(RefusedError, match=sentence):
            await ask
    await durable.rollback("risk", "api", request_id="back")
    with pytest.raises(RefusedError, match="with another payload") as no:
        await durable.rollback("risk", "api", to=1, request_id="back")
    assert no.value.refusal.code is RefusalCode.KEY_CONFLICT
    assert (await durable.wait("risk", "api")).generation == 1

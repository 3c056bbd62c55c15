"""A division gets its number only if nobody changed or divided the workload since it was read."""

from typing import Any

import pytest

from durable.authority.recovery.readiness import keep_readiness
from durable.authority.workloads.generations import GENERATIONS_KEPT, list_generations
from durable.authority.workloads.rollout_requests import RolloutRequest, request_rollout
from durable.authority.workloads.rollouts import (
    Completion,
    begin_division,
    begin_rollback,
    complete_generations,
    read_to_divide,
)
from durable.authority.workloads.rows import read_workload
from durable.model.ids import RegionId
from durable.model.recovery.readiness import Recoverable
from durable.model.refusal import RefusedError
from durable.model.work.running import Run
from tests.authority.workloads.test_workloads import apply, manifest
from tests.authority.world import (
    API,
    EAST,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    workload_message,
)


def rollout_request(name: str, request: str, **content: Any) -> RolloutRequest:
    return RolloutRequest(RISK, API, workload_message(name, request, **content))


async def rolling(world: World) -> None:
    """Generation 1 was good, and generation 2 rolls out."""
    await apply(world, "one")
    await complete_generations(world.databases, [Completion(RISK, API, 1)], actor=TEST)
    await apply(world, "two", manifest(run=Run(image="two")))


async def test_of_two_divisions_that_read_the_same_only_one_is_numbered(ready_world: World) -> None:
    await rolling(ready_world)
    read = await read_to_divide(ready_world.databases, RISK, API)
    number = await begin_division(ready_world.databases, read.workload, read.workload.rollout)
    assert number == read.workload.revision + 1
    again = await begin_division(ready_world.databases, read.workload, read.workload.rollout)
    assert again is None


async def test_a_pause_is_not_lost_to_a_division_that_read_the_workload_before(
    ready_world: World,
) -> None:
    await rolling(ready_world)
    read = await read_to_divide(ready_world.databases, RISK, API)
    await request_rollout(ready_world.databases, rollout_request("pause", "p", reason="look first"))
    assert await begin_division(ready_world.databases, read.workload, read.workload.rollout) is None
    found = await read_workload(ready_world.databases, RISK, API)
    assert found is not None
    assert found.rollout is not None
    assert found.rollout.pause is not None
    assert str(found.rollout.pause) == f"{TEST}: look first"


async def test_a_finished_rollout_is_not_written_back_by_a_division_that_read_it_before(
    ready_world: World,
) -> None:
    await rolling(ready_world)
    read = await read_to_divide(ready_world.databases, RISK, API)
    completion = Completion(RISK, API, 2, read.workload.revision)
    [number] = await complete_generations(ready_world.databases, [completion], actor=TEST)
    assert number == read.workload.revision + 1
    assert await begin_division(ready_world.databases, read.workload, read.workload.rollout) is None
    found = await read_workload(ready_world.databases, RISK, API)
    assert found is not None
    assert (found.rollout, found.stable_generation, found.revision) == (None, 2, number)
    again = await complete_generations(
        ready_world.databases, [Completion(RISK, API, 2)], actor=TEST
    )
    assert again == [None], "a second time changes nothing, so it takes no number"


async def test_a_rollout_is_not_undone_by_a_division_that_read_it_before_it_was_paused(
    ready_world: World,
) -> None:
    await rolling(ready_world)
    read = await read_to_divide(ready_world.databases, RISK, API)
    await request_rollout(ready_world.databases, rollout_request("pause", "p"))
    name, why = (ready_world.databases, RISK, API), "too many failures"
    await begin_rollback(*name, read.workload.revision, reason=why, actor=TEST)
    paused = await read_workload(*name)
    assert paused is not None
    assert paused.rollout is not None
    assert (paused.generation, paused.rollout.rollback) == (2, None)
    await begin_rollback(*name, paused.revision, reason=why, actor=TEST)
    undone = await read_workload(*name)
    assert undone is not None
    assert undone.rollout is not None
    assert (undone.generation, undone.rollout.rollback) == (1, why)


async def test_a_generation_that_no_division_has_seen_is_not_settled(ready_world: World) -> None:
    await apply(ready_world, "one")
    assert (await read_to_divide(ready_world.databases, RISK, API)).is_settled
    await apply(ready_world, "two", manifest(run=Run(image="two")))
    assert not (await read_to_divide(ready_world.databases, RISK, API)).is_settled


async def admit_in(world: World, request: str, region: RegionId, replicas: int = 2) -> None:
    await admit_workload(
        world.databases,
        manifest(replicas=replicas, requirements={"regions": [region]}),
        request=request,
        actor=TEST,
        divide=lambda _: {region: tuple(range(replicas))},
    )


async def regions_of(world: World) -> tuple[dict[RegionId, tuple[int, ...]], list[str]]:
    found = await read_workload(world.databases, RISK, API)
    assert found is not None
    return dict(found.share), [str(region) for region in found.spec.requirements.regions]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_version_that_is_undone_leaves_the_slots_where_the_good_one_had_them(
    neighbours: World, by_hand: bool
) -> None:
    world = neighbours
    await admit_in(world, "one", WEST)
    await complete_generations(world.databases, [Completion(RISK, API, 1)], actor=TEST)
    await admit_in(world, "two", EAST)
    await admit_in(world, "more", EAST, replicas=3)
    assert await regions_of(world) == ({EAST: (0, 1, 2)}, ["us-east"])
    if by_hand:
        asked = rollout_request("rollback", "b")
        await request_rollout(world.databases, asked)
    else:
        read = await read_to_divide(world.databases, RISK, API)
        of = (world.databases, RISK, API, read.workload.revision)
        await begin_rollback(*of, reason="too many failures", actor=TEST)
    assert await regions_of(world) == ({WEST: (0, 1, 2)}, ["us-west"])


async def test_an_older_version_is_rolled_out_again_where_it_was(neighbours: World) -> None:
    world = neighbours
    await admit_in(world, "one", WEST)
    await complete_generations(world.databases, [Completion(RISK, API, 1)], actor=TEST)
    await admit_in(world, "two", EAST)
    await complete_generations(world.databases, [Completion(RISK, API, 2)], actor=TEST)
    for request, share in (("back", {WEST: (0, 1)}), ("and back", {EAST: (0, 1)})):
        asked = rollout_request("rollback", request)
        await request_rollout(world.databases, asked)
        assert (await regions_of(world))[0] == share
        read = await read_to_divide(world.databases, RISK, API)
        now = read.workload.generation
        await complete_generations(world.databases, [Completion(RISK, API, now)], actor=TEST)


async def test_what_goes_back_already_does_not_go_back_further(ready_world: World) -> None:
    await rolling(ready_world)
    await complete_generations(ready_world.databases, [Completion(RISK, API, 2)], actor=TEST)
    await apply(ready_world, "three", manifest(run=Run(image="three")))
    read = await read_to_divide(ready_world.databases, RISK, API)
    of = (ready_world.databases, RISK, API, read.workload.revision)
    await begin_rollback(*of, reason="too many failures", actor=TEST)
    asked = rollout_request("rollback", "b")
    with pytest.raises(RefusedError, match="goes back to generation 2 already"):
        await request_rollout(ready_world.databases, asked)
    on = rollout_request("rollback", "c", to=1)
    assert "which is what 1 was" in await request_rollout(ready_world.databases, on)


async def test_the_last_generations_are_kept_and_the_good_one_beyond_them(
    ready_world: World,
) -> None:
    await rolling(ready_world)
    last = GENERATIONS_KEPT + 3
    for number in range(3, last + 1):
        await apply(ready_world, f"v{number}", manifest(run=Run(image=f"v{number}")))
    records = await list_generations(ready_world.databases, RISK, API)
    kept = range(last - GENERATIONS_KEPT + 1, last + 1)
    assert [record.generation for record in records] == [1, *kept]
    asked = rollout_request("rollback", "b")
    answer = await request_rollout(ready_world.databases, asked)
    assert answer.startswith("Going back to generation 1")


async def test_a_division_reads_whether_the_workload_would_come_back(ready_world: World) -> None:
    await apply(ready_world, "one")
    assert (await read_to_divide(ready_world.databases, RISK, API)).recoverable is None
    found = Recoverable(is_met=False, sentence="No region has room for it.")
    await keep_readiness(ready_world.databases, {(RISK, API): found})
    assert (await read_to_divide(ready_world.databases, RISK, API)).recoverable == found

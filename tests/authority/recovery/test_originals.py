"""Whether the original of a moved slot goes on in its lost region, or makes way."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from durable.authority.db.connection import Databases
from durable.authority.reads.claims import read_claims
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.moves import Divide, list_affected, move_back, move_out
from durable.authority.recovery.originals import read_kept
from durable.authority.recovery.recoveries import (
    reach_phase,
    read_moves,
    recovery_of_incident,
    take_order,
)
from durable.authority.workloads.deletion import request_delete
from durable.authority.workloads.rollouts import Completion, complete_generations, read_to_divide
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import (
    RecoveryKey,
    RecoveryOrderKind,
    RecoveryPhase,
)
from durable.model.states import RegionState
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import (
    API,
    EAST,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    seconds,
    workload_message,
)

LOST, AGAIN = (RecoveryKey(region=EAST, epoch=epoch) for epoch in (2, 3))
NAME = (str(RISK), str(API))
ORIGINAL: dict[str, Any] = {"on_reconnect": "original"}
# When the lease of every node has lapsed.
LATER = seconds(600)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Slot 1 runs in us-east."""
    async with Databases(database_url) as databases:
        world = await (await World(databases).with_two_regions()).with_slots(2)
        await world.running(1, node="e1")
        yield world


async def apply(world: World, replicas: int = 2, **run: Any) -> None:
    """Wanted in us-east at first; once that is lost, in us-west."""
    is_lost = await recovery_of_incident(world.databases, LOST.incident) is not None
    share = {WEST if is_lost else EAST: tuple(range(replicas))}
    spec = {"replicas": replicas, "resources": {"cpu": "100m"}, "run": run}
    asked = WorkloadManifest(tenant=RISK, name=API, spec=WorkloadSpec.model_validate(spec))
    name = f"apply-{replicas}-{sorted(run)}"
    await admit_workload(world.databases, asked, request=name, actor=TEST, divide=lambda _: share)


async def order(world: World, kind: RecoveryOrderKind, key: RecoveryKey = LOST) -> None:
    asked = OperatorMessage.unsigned(
        str(key), kind, actor=TEST, reason="a test", request_id=f"{kind}"
    )
    await take_order(world.databases, asked, by_policy=True)


async def lose(world: World, key: RecoveryKey = LOST) -> None:
    """Fences us-east, and moves what it has."""
    databases = world.databases
    await order(world, RecoveryOrderKind.CONFIRM, key)
    await fence(databases, EAST, expected_epoch=key.epoch - 1, actor=TEST, reason="a test")
    await list_affected(databases, key)
    begun = await recovery_of_incident(databases, key.incident)
    assert begun is not None
    await reach_phase(databases, begun, RecoveryPhase.MOVING, actor=TEST, reason="a test")
    moves = await read_moves(databases, key)
    await move_out(databases, key, moves, {NAME: lambda _: {WEST: (0, 1)}}, actor=TEST)


async def moved(world: World, **run: Any) -> None:
    await apply(world, **run)
    await complete_generations(world.databases, [Completion(RISK, API, 1)], actor=TEST)
    await lose(world)


async def released(world: World, epoch: int = 2) -> int:
    done = await release_fenced(world.databases, EAST, epoch=epoch, most=100, now=LATER)
    assert done.waiting == 0
    return done.released


async def kept(world: World) -> frozenset[int]:
    """As recoveries and divisions read it, which must not differ."""
    divided = (await read_to_divide(world.databases, RISK, API)).kept
    assert (await read_kept(world.databases, EAST, [NAME])).get(NAME, frozenset()) == divided
    return divided


async def test_an_original_keeps_its_claim_and_its_region_opens_with_it(world: World) -> None:
    before = await read_claims(world.databases, EAST, now=world.now)
    await moved(world, **ORIGINAL)
    assert await kept(world) == {0, 1}
    assert await released(world) == 0
    status = await reopen(world.databases, EAST, expected_epoch=2, actor=TEST, reason="back")
    assert status.state is RegionState.OPEN
    assert await kept(world) == {0, 1}, "until it is given back"
    moves = await read_moves(world.databases, LOST)
    home: dict[tuple[str, str], Divide] = {NAME: lambda _: {EAST: (0, 1)}}
    await move_back(world.databases, LOST, moves, home, to=LOST, actor=TEST)
    assert await kept(world) == frozenset()
    assert await released(world) == 0, "it is wanted where it is"
    assert await read_claims(world.databases, EAST, now=world.now) == before
    await assert_promises_hold(world.databases)


@pytest.mark.parametrize("run", [{}, {"on_reconnect": "replacement"}, {"on_disconnect": "stop"}])
async def test_what_does_not_ask_for_its_original_makes_way(
    world: World, run: dict[str, Any]
) -> None:
    await moved(world, **run)
    assert await kept(world) == frozenset()
    assert await released(world) == 1
    await assert_promises_hold(world.databases)


async def settle(world: World) -> None:
    await order(world, RecoveryOrderKind.SETTLE)


async def delete(world: World) -> None:
    await request_delete(world.databases, RISK, API, workload_message("delete", "end"))


async def scale(world: World) -> None:
    await apply(world, 1, **ORIGINAL)


async def change(world: World) -> None:
    await apply(world, command=["true"], **ORIGINAL)


@pytest.mark.parametrize("ends", [settle, delete, scale, change])
async def test_an_original_makes_way_when_its_region_is_not_to_have_it_back(
    world: World, ends: Callable[[World], Awaitable[None]]
) -> None:
    await moved(world, **ORIGINAL)
    assert await released(world) == 0
    await ends(world)
    assert 1 not in await kept(world)
    assert await released(world) == 1
    await assert_promises_hold(world.databases)


async def test_a_region_that_is_lost_again_keeps_what_it_kept_before(world: World) -> None:
    await moved(world, **ORIGINAL)
    await reopen(world.databases, EAST, expected_epoch=2, actor=TEST, reason="back")
    await lose(world, AGAIN)
    assert await kept(world) == {0, 1}
    assert await released(world, epoch=3) == 0

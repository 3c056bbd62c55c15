"""Two writers on two real connections want the same thing at the same time: one gets it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import psycopg
import pytest

from durable.authority.db.connection import Databases
from durable.authority.fleet.observations import Observation, observe
from durable.authority.reads.invariants import violations
from durable.authority.recovery.fence import fence
from durable.authority.slots.shares import Publication, publish
from durable.model.ids import NodeId
from durable.model.placement.intents import AnyIntent, Granted, Refused, ReleaseCause
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from durable.model.states import ObservedState
from tests.authority.waiting import until_waiting
from tests.authority.world import API, BILLING, EAST, RISK, TEST, World, node, seconds


@pytest.fixture
def world(ready_world: World) -> World:
    return ready_world


@pytest.fixture
async def other(world: World) -> AsyncIterator[World]:
    """A second writer with connections of its own to the same authority."""
    async with Databases(world.databases.urls[0]) as databases:
        yield replace(world, databases=databases)


async def raced(
    first: tuple[World, AnyIntent], second: tuple[World, AnyIntent]
) -> tuple[list[Granted], list[Refused]]:
    """Sends both while a third connection holds the region, then lets go: neither has a start."""
    async with await psycopg.AsyncConnection.connect(first[0].databases.urls[0]) as gate:
        await gate.execute("SELECT FROM regional.regions WHERE region = 'us-east' FOR UPDATE")
        tasks = [asyncio.create_task(world.send(intent)) for world, intent in (first, second)]
        await until_waiting(gate, 2)
        await gate.commit()
    outcomes = [outcome for sent in await asyncio.gather(*tasks) for outcome in sent]
    async with first[0].databases.at_global("durable_reader").begin() as connection:
        assert await violations(connection) == []
    granted = [outcome for outcome in outcomes if isinstance(outcome, Granted)]
    return granted, [outcome for outcome in outcomes if isinstance(outcome, Refused)]


async def test_the_last_gpu_goes_to_one(world: World, other: World) -> None:
    await world.with_nodes(node(gpus=1))
    gpu = Resources.of(100, 100, 1)
    granted, refused = await raced(
        (world, world.reserve(0, resources=gpu)),
        (other, other.reserve(1, resources=gpu)),
    )
    assert len(granted) == 1
    assert [no.refusal.code for no in refused] == [RefusalCode.NODE_FULL]


async def test_the_last_unit_of_quota_goes_to_one(world: World, other: World) -> None:
    await world.with_nodes(node("n2"))
    await world.with_tenant(BILLING, grant=Resources.of(1000, 1024))
    await world.with_slots(2, BILLING)
    granted, refused = await raced(
        (world, world.reserve(0, node="n1", tenant=BILLING)),
        (other, other.reserve(1, node="n2", tenant=BILLING)),
    )
    assert len(granted) == 1
    assert [no.refusal.code for no in refused] == [RefusalCode.GRANT_EXHAUSTED]


async def test_one_slot_goes_to_one(world: World, other: World) -> None:
    await world.with_nodes(node("n2"))
    granted, refused = await raced(
        (world, world.reserve(0, node="n1")),
        (other, other.reserve(0, node="n2", attempt=2)),
    )
    assert len(granted) == 1
    assert [no.refusal.code for no in refused] == [RefusalCode.SLOT_TAKEN]


async def test_one_intent_sent_by_two_happens_once(world: World, other: World) -> None:
    granted, refused = await raced((world, world.reserve()), (other, other.reserve()))
    assert len(granted) == 2
    assert granted[0] == granted[1]
    assert refused == []


async def test_expiry_against_bind_ends_in_one_of_them(world: World, other: World) -> None:
    token = (await world.granted(world.reserve())).token
    # The clocks of the two differ by the lease: for one it is valid, for the other it is over.
    world.now, other.now = seconds(29), seconds(31)
    granted, refused = await raced((world, world.bind(token)), (other, other.expire(token)))
    assert len(granted) == 1
    assert [no.refusal.code for no in refused] == [RefusalCode.WRONG_STATE]


async def test_released_twice_is_freed_once(world: World, other: World) -> None:
    token = (await world.granted(world.reserve())).token
    granted, refused = await raced(
        (world, world.release(token)),
        (other, other.release(token, ordinal=2)),
    )
    assert len(granted) == 1
    assert [no.refusal.code for no in refused] == [RefusalCode.WRONG_STATE]


async def test_start_against_evict_never_loses_the_stop(world: World, other: World) -> None:
    token = (await world.granted(world.reserve())).token
    await world.granted(world.bind(token))
    granted, refused = await raced((world, world.start(token)), (other, other.evict(token)))
    assert {no.refusal.code for no in refused} <= {RefusalCode.STOP_REQUESTED}
    assert len(granted) + len(refused) == 2


async def two_serve_and_one_has_to(world: World, *nodes: str) -> list[int]:
    """The tokens of slots 0 and 1; one of them may be stopped by choice."""
    await publish(world.databases, EAST, [Publication(RISK, API, 2, must_serve=1)])
    return await serving(world, dict(enumerate(nodes or ("n1", "n1"))))


async def serving(world: World, nodes: Mapping[int, str]) -> list[int]:
    """The tokens of what serves in these slots, each on its node."""
    tokens = [await world.running(slot, node=name) for slot, name in nodes.items()]
    reports = [
        Observation(
            token=token, node=NodeId(name), session=1, sequence=token, state=ObservedState.SERVING,
            evidence="ready",
        )
        for token, name in zip(tokens, nodes.values(), strict=True)
    ]  # fmt: skip
    answers = await observe(world.databases, EAST, reports, observer=TEST, now=world.now)
    assert answers == [None] * len(tokens)
    return tokens


async def test_two_evictions_in_one_batch_stay_within_the_allowance(world: World) -> None:
    first, second = await two_serve_and_one_has_to(world)
    outcomes = await world.send(world.evict(first, 0), world.evict(second, 1))
    assert isinstance(outcomes[0], Granted)
    assert isinstance(outcomes[1], Refused)
    assert outcomes[1].refusal.code is RefusalCode.DISRUPTION_ALLOWANCE
    forced = world.evict(second, 1, ordinal=2, is_forced=True)
    assert isinstance((await world.send(forced))[0], Granted), "whoever forces it is not refused"


async def test_what_a_silent_node_runs_is_stopped_whatever_the_allowance(world: World) -> None:
    """Nothing that serves is lost by it, as its node's lease has lapsed."""
    await world.with_nodes(node("n2"), lease_seconds=60)
    first, second = await two_serve_and_one_has_to(world, "n1", "n2")
    world.now = seconds(61)
    assert isinstance((await world.send(world.evict(second, 1)))[0], Granted)
    assert await world.refused(world.evict(first, 0)) is RefusalCode.DISRUPTION_ALLOWANCE


async def test_a_stop_on_a_silent_node_uses_none_of_its_batchs_allowance(world: World) -> None:
    await world.with_nodes(node("n2"), lease_seconds=60)
    first, second = await two_serve_and_one_has_to(world, "n1", "n1")
    (silent,) = await serving(world, {2: "n2"})
    world.now = seconds(61)
    outcomes = await world.send(
        world.evict(silent, 2), world.evict(first, 0), world.evict(second, 1)
    )
    assert [type(outcome) for outcome in outcomes] == [Granted, Granted, Refused]


async def test_two_writers_evict_within_the_allowance(world: World, other: World) -> None:
    first, second = await two_serve_and_one_has_to(world)
    granted, refused = await raced((world, world.evict(first, 0)), (other, other.evict(second, 1)))
    assert len(granted) == 1
    assert [no.refusal.code for no in refused] == [RefusalCode.DISRUPTION_ALLOWANCE]


async def test_a_fence_that_wins_the_lock_stops_the_writer_behind_it(world: World) -> None:
    token = await world.running()
    async with await psycopg.AsyncConnection.connect(world.databases.urls[0]) as gate:
        await gate.execute("SELECT FROM regional.regions WHERE region = 'us-east' FOR UPDATE")
        fencing = asyncio.create_task(
            fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="race")
        )
        late = world.release(token, cause=ReleaseCause.NODE_LOST)
        writer = asyncio.create_task(world.send(late))
        await until_waiting(gate, 2)
        await gate.commit()
    await fencing
    (outcome,) = await writer
    assert isinstance(outcome, Refused)
    assert outcome.refusal.code in (RefusalCode.FENCED_WRITER, RefusalCode.STILL_RUNNING)

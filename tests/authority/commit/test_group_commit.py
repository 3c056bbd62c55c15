"""Intents that arrive together share a transaction and nothing else: each has its own outcome."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.commit import regional_commit
from durable.authority.commit.regional_commit import GroupCommit
from durable.authority.db.errors import AuthorityError, AuthorityUnreachableError
from durable.authority.fleet.regions import read_region
from durable.model.placement.intents import Granted, Refused
from durable.model.refusal import RefusalCode
from durable.model.resources import Capacity, Resources
from tests.authority.invariants import assert_promises_hold
from tests.authority.waiting import until_waiting
from tests.authority.world import EAST, WEST, World, node

ROOMY = Capacity(cpu_millis=1_000_000, memory_mib=1_000_000)


@pytest.fixture
async def world(ready_world: World) -> AsyncIterator[World]:
    """A roomy node with a lease on the database's own clock, which is the queue's too."""
    ready_world.now = datetime.now(UTC)
    await ready_world.with_nodes(node(capacity=ROOMY))
    yield ready_world
    await assert_promises_hold(ready_world.databases)


def queue_of(world: World) -> GroupCommit:
    return GroupCommit(world.databases, EAST)


async def version_of(world: World) -> int:
    return (await read_region(world.databases, EAST)).version


async def reservations(world: World) -> int:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("SELECT count(*) FROM regional.reservations")
        return (await connection.execute(query)).scalar_one()


async def test_many_intents_at_once_share_few_transactions(world: World) -> None:
    await world.with_slots(500)
    before = await version_of(world)
    async with queue_of(world) as queue:
        intents = [world.reserve(slot, resources=Resources.of(10)) for slot in range(500)]
        outcomes = await asyncio.gather(*map(queue.submit, intents))
    tokens = {outcome.token for outcome in outcomes if isinstance(outcome, Granted)}
    assert len(tokens) == 500
    assert await version_of(world) - before <= 10


async def test_one_after_the_other_each_has_its_own_transaction(world: World) -> None:
    before = await version_of(world)
    async with queue_of(world) as queue:
        outcomes = [await queue.submit(world.reserve(slot)) for slot in range(3)]
    versions = [outcome.version for outcome in outcomes if isinstance(outcome, Granted)]
    assert versions == [before + 1, before + 2, before + 3]


async def test_a_refusal_is_its_callers_alone(world: World) -> None:
    async with queue_of(world) as queue:
        good, bad, also_good = await asyncio.gather(
            queue.submit(world.reserve(0)),
            queue.submit(world.reserve(1, node="nowhere")),
            queue.submit(world.reserve(2)),
        )
    assert isinstance(good, Granted)
    assert isinstance(also_good, Granted)
    assert isinstance(bad, Refused)
    assert bad.refusal.code is RefusalCode.UNKNOWN_NODE


async def test_an_intent_for_another_region_is_its_callers_alone(world: World) -> None:
    async with queue_of(world) as queue:
        good, bad = await asyncio.gather(
            queue.submit(world.reserve(0)),
            queue.submit(world.at(WEST).reserve(1)),
            return_exceptions=True,
        )
    assert isinstance(good, Granted)
    assert isinstance(bad, AssertionError)


async def test_the_same_key_at_once_is_one_reservation(world: World) -> None:
    async with queue_of(world) as queue, queue_of(world) as other:
        outcomes = await asyncio.gather(
            *(one.submit(world.reserve()) for one in (queue, other) for _ in range(20))
        )
    assert isinstance(outcomes[0], Granted)
    assert outcomes == [outcomes[0]] * 40
    assert await reservations(world) == 1


async def test_a_caller_that_gives_up_harms_nobody_and_finds_its_outcome_later(
    world: World,
) -> None:
    async with queue_of(world) as queue:
        callers = [asyncio.create_task(queue.submit(world.reserve(slot))) for slot in range(3)]
        await asyncio.sleep(0)  # they are in the queue now
        callers[1].cancel()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(outcomes[0], Granted)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert isinstance(outcomes[2], Granted)
        assert isinstance(await queue.submit(world.reserve(1)), Granted)
    assert await reservations(world) == 3


async def test_closing_waits_for_the_last_batch_and_takes_nothing_more(world: World) -> None:
    queue = queue_of(world)
    async with queue:
        callers = [asyncio.create_task(queue.submit(world.reserve(slot))) for slot in range(8)]
        await asyncio.sleep(0)
    assert all(caller.done() and isinstance(caller.result(), Granted) for caller in callers)
    with pytest.raises(AuthorityUnreachableError, match="queue of us-east is closing; send the"):
        await queue.submit(world.reserve(0, attempt=2))


async def test_a_full_queue_refuses_with_a_sentence_and_serves_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regional_commit, "MAX_WAITING", 3)
    async with queue_of(world) as queue:
        intents = [world.reserve(slot) for slot in range(5)]
        outcomes = await asyncio.gather(*map(queue.submit, intents), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[:3]] == [Granted] * 3
        assert [str(outcome) for outcome in outcomes[3:]] == [
            "The commit queue of us-east is full; send the same intent again shortly."
        ] * 2
        assert isinstance(await queue.submit(intents[4]), Granted)


async def test_more_than_a_batch_is_served_in_several(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regional_commit, "MAX_BATCH", 3)
    before = await version_of(world)
    async with queue_of(world) as queue:
        intents = [world.reserve(slot) for slot in range(8)]
        outcomes = await asyncio.gather(*map(queue.submit, intents))
    assert all(isinstance(outcome, Granted) for outcome in outcomes)
    assert await version_of(world) - before == 3


async def test_an_error_of_the_database_reaches_every_caller_and_the_queue_goes_on(
    world: World,
) -> None:
    async with queue_of(world) as queue:
        rename(world, "intents", "hidden")
        intents = [world.reserve(slot) for slot in range(4)]
        errors = await asyncio.gather(*map(queue.submit, intents), return_exceptions=True)
        rename(world, "hidden", "intents")
        assert [str(error) for error in errors if isinstance(error, AuthorityError)] == [
            "Could not commit to us-east: a table is missing: run `durable migrate` first."
        ] * 4
        outcomes = await asyncio.gather(*map(queue.submit, intents))
    assert all(isinstance(outcome, Granted) for outcome in outcomes)


def rename(world: World, table: str, name: str) -> None:
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute(f"ALTER TABLE regional.{table} RENAME TO {name}".encode())


async def test_a_lost_connection_is_survived_in_silence(world: World) -> None:
    async with queue_of(world) as queue:
        first = await queue.submit(world.reserve(0))
        with psycopg.connect(world.databases.urls[0], autocommit=True) as owner:
            ended = owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'durable_commit' AND datname = current_database()"
            ).fetchall()
        assert ended == [(True,)]
        assert await queue.submit(world.reserve(0)) == first
        assert isinstance(await queue.submit(world.reserve(1)), Granted)


@pytest.mark.parametrize("started", [False, True])
async def test_every_waiting_caller_fails_when_the_queue_itself_is_cancelled(
    ready_world: World, started: bool
) -> None:
    commits = queue_of(ready_world)
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as gate:
        await gate.execute("SELECT FROM regional.regions FOR UPDATE")
        await commits.__aenter__()
        caller = asyncio.create_task(commits.submit(ready_world.reserve(0)))
        if started:
            await until_waiting(gate)
        runner = commits._runner  # pyright: ignore[reportPrivateUsage]
        assert runner is not None
        runner.cancel()
        with pytest.raises(AuthorityUnreachableError, match="send the same intent again"):
            await caller

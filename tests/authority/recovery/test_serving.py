"""What a region says of moved work: since when it serves by the asker's clock, and what is done."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.fleet.observations import Observation, observe
from durable.authority.queue.requests import write_requests
from durable.authority.recovery.serving import read_done, read_serving
from durable.model.ids import NodeId
from durable.model.placement.intents import ReleaseCause
from durable.model.resources import Resources
from durable.model.states import ObservedState, RequestState
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec
from tests.authority.queue.test_requests import request
from tests.authority.world import API, EAST, RISK, TEST, World

NAME = (str(RISK), str(API))


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with Databases(database_url) as databases:
        yield await World(databases, now=datetime.now(UTC)).ready()


async def report(world: World, token: int, state: ObservedState) -> None:
    seen = Observation(
        token=token, node=NodeId("n1"), session=1, sequence=1, state=state, evidence="a test"
    )
    assert await observe(world.databases, EAST, [seen], observer=TEST, now=world.now) == [None]


async def test_since_when_a_replica_serves_is_told_by_the_clock_of_whoever_asks(
    world: World,
) -> None:
    """The region's own is two hours behind, or ahead, and nothing served before it was lost."""
    await report(world, await world.running(), ObservedState.SERVING)
    here = await read_time(world.databases)
    for hours in (-2, 2):
        now = here + timedelta(hours=hours)
        found = await read_serving(world.databases, EAST, [NAME], now)
        age = now - found[NAME].serving_since[0]
        assert timedelta(0) <= age < timedelta(hours=1)


async def test_the_slots_of_many_jobs_that_are_done_are_read_at_once(world: World) -> None:
    done, stopped = await world.running(0), await world.running(1)
    await report(world, done, ObservedState.STOPPED)
    await world.granted(world.release(done, 0, cause=ReleaseCause.STOPPED))
    await world.granted(world.evict(stopped, 1))
    job = AdmittedWorkload(
        tenant=RISK,
        workload=API,
        generation=1,
        spec=WorkloadSpec(replicas=2, resources=Resources.of(100, 128)),
    )
    assert await read_done(world.databases, EAST, [job]) == {NAME: frozenset({0})}
    assert await read_done(world.databases, EAST, []) == {}


async def test_what_a_placement_has_done_or_given_up_has_ended_there(world: World) -> None:
    """No other region tries again what was given up."""
    given_up = request(state=RequestState.PLACED, waiting=0, completed=(0,), given_up=(1,))
    await write_requests(world.databases, EAST, [given_up])
    job = AdmittedWorkload(tenant=RISK, workload=API, generation=1, spec=given_up.spec)
    assert await read_done(world.databases, EAST, [job]) == {NAME: frozenset({0, 1})}

"""A region's queue says who waits, for what and since when, whatever order writes arrive in."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable.authority.db import pages
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.queue import requests
from durable.authority.queue.requests import (
    RequestQueue,
    read_queue,
    read_request,
    read_waiting,
    write_requests,
)
from durable.model.ids import WorkloadName
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.request import SchedulingRequest
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from durable.model.states import REQUEST_MOVES, RequestState
from durable.model.work.workload import WorkloadSpec
from tests.authority.world import API, EAST, RISK, World, seconds
from tests.model.pending import pending

SPEC = WorkloadSpec(replicas=2, resources=Resources.of(1000, 512))
NO_ROOM = pending(PendingCode.CAPACITY, "no room")


def request(**overrides: Any) -> SchedulingRequest:
    values: dict[str, Any] = {
        "region": EAST,
        "tenant": RISK,
        "workload": API,
        "generation": 1,
        "slots": (0, 1),
        "priority": 100,
        "state": RequestState.PENDING,
        "pending": NO_ROOM,
        "enqueued_at": seconds(0),
        "deadline": seconds(3600),
        "spec": SPEC,
        "waiting": 2,
    }
    return SchedulingRequest(**{**values, **overrides})


async def read(world: World, workload: str = "api") -> SchedulingRequest | None:
    return await read_request(world.databases, EAST, RISK, WorkloadName(workload), 1)


async def test_a_request_is_read_back_as_it_was_written(ready_world: World) -> None:
    assert await read(ready_world) is None
    assert await write_requests(ready_world.databases, EAST, [request()]) == [None]
    assert await read(ready_world) == request()


async def test_since_when_it_waits_and_what_it_runs_stay_as_first_written(
    ready_world: World,
) -> None:
    other = WorkloadSpec(replicas=9, resources=Resources.of(1, 1))
    later = request(enqueued_at=seconds(60), spec=other, attempts=3, slots=(0, 1, 2))
    await write_requests(ready_world.databases, EAST, [request()])
    await write_requests(ready_world.databases, EAST, [later])
    assert await read(ready_world) == request(attempts=3, slots=(0, 1, 2))


async def test_what_was_placed_and_waits_again_waits_since_then(ready_world: World) -> None:
    placed = request(state=RequestState.PLACED, waiting=0)
    again = request(enqueued_at=seconds(60))
    for row in (request(), placed, again):
        await write_requests(ready_world.databases, EAST, [row])
    assert await read(ready_world) == again


async def test_what_a_job_has_done_is_counted_as_it_happens(ready_world: World) -> None:
    done = request(state=RequestState.PLACED, waiting=0, completed=(1,))
    for row in (request(), done):
        await write_requests(ready_world.databases, EAST, [row])
    assert await read(ready_world) == done
    too_many = request(state=RequestState.PLACED, waiting=0, completed=(0, 1, 2))
    with pytest.raises(BrokenConstraintError):
        await write_requests(ready_world.databases, EAST, [too_many])


@pytest.mark.parametrize(
    "statement", ["SET spec = '{}'", "SET enqueued_at = deadline - interval '1s'"]
)
async def test_not_even_the_owner_changes_what_a_request_runs(
    ready_world: World, statement: str
) -> None:
    await write_requests(ready_world.databases, EAST, [request()])
    with (
        psycopg.connect(ready_world.databases.urls[0]) as owner,
        pytest.raises(
            psycopg.errors.IntegrityConstraintViolation, match=r"never change|was placed"
        ),
    ):
        owner.execute(f"UPDATE regional.requests {statement}".encode())


async def test_every_move_of_the_table_is_written_and_every_other_refused(
    ready_world: World,
) -> None:
    for before in RequestState:
        for after in RequestState:
            name = WorkloadName(f"{before}-{after}".replace("_", "-"))
            await write_requests(
                ready_world.databases, EAST, [request(workload=name, state=before)]
            )
            (answer,) = await write_requests(
                ready_world.databases, EAST, [request(workload=name, state=after)]
            )
            found = await read(ready_world, name)
            assert found is not None
            if before is after or REQUEST_MOVES.allows(before, after):
                assert (answer, found.state) == (None, after)
            else:
                assert answer is not None
                assert (answer.code, found.state) == (RefusalCode.ILLEGAL_MOVE, before)


async def test_a_withdrawn_request_is_its_callers_alone(ready_world: World) -> None:
    gone = request(state=RequestState.WITHDRAWN)
    await write_requests(ready_world.databases, EAST, [gone])
    other = request(workload=WorkloadName("other"))
    answers = await write_requests(ready_world.databases, EAST, [request(), other])
    assert [answer is None for answer in answers] == [False, True]
    assert await read(ready_world) == gone
    assert await read(ready_world, "other") == other


async def test_what_did_not_change_is_not_written(ready_world: World) -> None:
    query = "SELECT written_in, xmin::text FROM regional.requests"
    await write_requests(ready_world.databases, EAST, [request()])
    with psycopg.connect(ready_world.databases.urls[0], autocommit=True) as owner:
        before = owner.execute(query).fetchall()
        await write_requests(ready_world.databases, EAST, [request()])
        assert owner.execute(query).fetchall() == before
        await write_requests(ready_world.databases, EAST, [request(waiting=1)])
        assert owner.execute(query).fetchall() > before


async def test_the_queue_is_ordered_by_priority_then_by_arrival(ready_world: World) -> None:
    waiting = {"late": (100, 20), "early": (100, 10), "urgent": (900, 30), "lax": (1, 0)}
    rows = [
        request(workload=WorkloadName(name), priority=priority, enqueued_at=seconds(at))
        for name, (priority, at) in waiting.items()
    ]
    placed = request(workload=WorkloadName("placed"), state=RequestState.PLACED)
    await write_requests(ready_world.databases, EAST, [*rows, placed])
    queue = await read_queue(ready_world.databases, EAST)
    assert [str(one.workload) for one in queue] == ["urgent", "early", "late", "lax"]
    assert [one.position for one in queue] == [1, 2, 3, 4]
    ages = {str(one.workload): one.age_seconds for one in queue}
    assert ages["early"] - ages["late"] == pytest.approx(10, abs=1)


async def test_no_queue_ends_before_its_last_page(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stands behind many of another is found, in the same order as on one page."""
    databases = ready_world.databases
    rows = [
        request(workload=WorkloadName(f"w{number}"), priority=100, enqueued_at=seconds(number % 4))
        for number in range(7)
    ]
    await write_requests(databases, EAST, rows)
    queue, woken = await read_queue(databases, EAST), await read_waiting(databases, EAST)
    for module in (requests, pages):
        monkeypatch.setattr(module, "ROWS_PER_PAGE", 2)
    paged = await read_queue(databases, EAST)
    assert [(one.workload, one.position) for one in paged] == [
        (one.workload, one.position) for one in queue
    ]
    assert len(paged) == 7
    assert await read_waiting(databases, EAST) == woken
    assert [one.enqueued_at for one in woken] == sorted(one.enqueued_at for one in rows)


async def test_many_requests_share_a_transaction_and_the_last_of_one_counts(
    ready_world: World,
) -> None:
    async with RequestQueue(ready_world.databases, EAST) as log:
        await asyncio.gather(*(log.submit(request(attempts=count)) for count in range(200)))
    found = await read(ready_world)
    assert found is not None
    assert found.attempts == 199


async def test_a_row_that_the_schema_refuses_does_not_harm_its_neighbours(
    ready_world: World,
) -> None:
    await write_requests(ready_world.databases, EAST, [request(enqueued_at=seconds(100))])
    early = seconds(100) - timedelta(seconds=1)
    other = request(workload=WorkloadName("other"))
    async with RequestQueue(ready_world.databases, EAST) as log:
        broken, fine = await asyncio.gather(
            log.submit(request(deadline=early)), log.submit(other), return_exceptions=True
        )
    assert isinstance(broken, BrokenConstraintError)
    assert fine is None
    assert await read(ready_world, "other") == other

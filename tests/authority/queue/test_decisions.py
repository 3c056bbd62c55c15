"""One attempt has one decision, whoever decided; and everything behind it can be read again."""

import asyncio
from typing import Any

import psycopg
import pytest

from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import (
    DecisionLog,
    read_decisions,
    read_newest_attempt,
    record_decisions,
)
from durable.authority.reads.intents import read_intents
from durable.model.ids import WorkloadName
from durable.model.placement.intents import Granted, Refused
from durable.model.placement.records import Decision
from tests.authority.waiting import until_waiting
from tests.authority.world import API, EAST, RISK, World, seconds


def decision(attempt: int = 1, **overrides: Any) -> Decision:
    values: dict[str, Any] = {
        "region": EAST,
        "tenant": RISK,
        "workload": API,
        "generation": 1,
        "attempt": attempt,
        "policy_revision": 1,
        "cache_version": 7,
        "evidence": {"nodes": 3, "scores": [1.5, 0.25], "why": None},
        "decided_at": seconds(1.25),
    }
    return Decision(**{**values, **overrides})


async def test_the_first_decision_of_an_attempt_is_the_one(ready_world: World) -> None:
    first, other = decision(), decision(evidence={"nodes": 4}, cache_version=9)
    assert await record_decisions(ready_world.databases, EAST, [first]) == [first]
    answers = await record_decisions(ready_world.databases, EAST, [other, decision(2)])
    assert answers == [first, decision(2)]
    assert await read_decisions(ready_world.databases, EAST, RISK, API) == [first, decision(2)]


async def test_of_two_in_one_batch_the_first_is_the_one(ready_world: World) -> None:
    first, other = decision(), decision(cache_version=9)
    assert await record_decisions(ready_world.databases, EAST, [first, other]) == [first, first]


async def test_two_writers_at_once_are_answered_the_same(ready_world: World) -> None:
    url = ready_world.databases.urls[0]
    async with (
        Databases(url) as here,
        Databases(url) as there,
        DecisionLog(here, EAST) as log,
        DecisionLog(there, EAST) as other,
    ):
        answers = await asyncio.gather(
            *(
                writer.submit(decision(attempt, cache_version=version))
                for version, writer in enumerate((log, other))
                for attempt in range(1, 51)
            )
        )
    assert answers[:50] == answers[50:]
    stored = await read_decisions(ready_world.databases, EAST, RISK, API, last=100)
    assert stored == answers[:50]


async def test_a_writer_waits_for_the_one_before_it_and_sees_its_decision(
    ready_world: World,
) -> None:
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as gate:
        await gate.execute(
            "INSERT INTO regional.decisions VALUES ('us-east', 'risk', 'api', 1, 1, 1, 99,"
            " '{}', now())"
        )
        late = asyncio.create_task(record_decisions(ready_world.databases, EAST, [decision()]))
        await until_waiting(gate)
        await gate.commit()
        (answer,) = await late
    assert answer.cache_version == 99


# ── the same again ──────────────────────────────────────────────────────────────────────────────


async def read_all(world: World) -> list[Decision]:
    return await read_decisions(world.databases, EAST, RISK, API)


async def test_a_decision_that_finds_the_same_again_is_counted_and_not_recorded(
    ready_world: World,
) -> None:
    first = decision(1, findings="full")
    await record_decisions(ready_world.databases, EAST, [first])
    for later in (2, 5, 9):
        again = decision(2, findings="full", decided_at=seconds(later), cache_version=later)
        [answer] = await record_decisions(ready_world.databases, EAST, [again])
        assert answer.attempt == 1
    [stored] = await read_all(ready_world)
    assert stored == first.model_copy(update={"repeats": 3, "repeated_at": seconds(9)})


@pytest.mark.parametrize("findings", ["other", None])
async def test_a_decision_that_differs_or_places_something_is_recorded(
    ready_world: World, findings: str | None
) -> None:
    made = [decision(1, findings="full"), decision(2, findings=findings)]
    for one in made:
        assert await record_decisions(ready_world.databases, EAST, [one]) == [one]
    assert await read_all(ready_world) == made


async def test_what_was_found_before_something_else_counts_as_new(ready_world: World) -> None:
    made = [decision(n, findings=f) for n, f in enumerate(("full", "other", "full"), start=1)]
    for one in made:
        await record_decisions(ready_world.databases, EAST, [one])
    assert await read_all(ready_world) == made


async def test_an_attempt_that_was_recorded_stays_what_it_is(ready_world: World) -> None:
    made = [decision(1, findings="full"), decision(2, findings="other")]
    await record_decisions(ready_world.databases, EAST, made)
    again = decision(2, findings="full", cache_version=99)
    assert await record_decisions(ready_world.databases, EAST, [again]) == [made[1]]
    assert await read_all(ready_world) == made


async def test_the_newest_attempt_of_a_placement_is_one_read(ready_world: World) -> None:
    async def newest(generation: int) -> int:
        return await read_newest_attempt(ready_world.databases, EAST, RISK, API, generation)

    assert await newest(1) == 0
    made = [decision(attempt) for attempt in range(1, 301)]
    await record_decisions(ready_world.databases, EAST, made)
    assert (await newest(1), await newest(2)) == (300, 0)


async def test_decisions_are_read_by_generation_and_attempt(ready_world: World) -> None:
    made = [decision(attempt, generation=g) for g in (1, 2) for attempt in (1, 2, 3)]
    await record_decisions(ready_world.databases, EAST, made)

    async def read(**which: Any) -> list[Decision]:
        return await read_decisions(ready_world.databases, EAST, RISK, API, **which)

    assert await read() == made
    assert await read(last=2) == made[-2:]
    assert await read(generation=1) == made[:3]
    assert await read(generation=2, attempt=2) == [made[4]]
    assert await read_decisions(ready_world.databases, EAST, RISK, WorkloadName("x")) == []


# ── why ─────────────────────────────────────────────────────────────────────────────────────────


async def test_the_intents_of_a_generation_are_read_in_the_order_of_commits(
    ready_world: World,
) -> None:
    token = await ready_world.running(0)
    await ready_world.refused(ready_world.reserve(1, node="nowhere"))
    await ready_world.granted(ready_world.reserve(1, attempt=2))
    await ready_world.granted(ready_world.reserve(2, attempt=12))
    await ready_world.granted(ready_world.reserve(3, generation=12))

    async def steps(generation: int, attempt: int | None = None) -> list[tuple[int, int, str]]:
        read = await read_intents(ready_world.databases, EAST, RISK, API, generation, attempt)
        assert {intent.generation for intent in read} == {generation}
        return [(intent.slot, intent.attempt, intent.step) for intent in read]

    assert await steps(1) == [
        (0, 1, "reserve"), (0, 1, "bind"), (0, 1, "start"),
        (1, 1, "reserve"), (1, 2, "reserve"), (2, 12, "reserve"),
    ]  # fmt: skip
    assert await steps(1, 2) == [(1, 2, "reserve")]
    assert await steps(12) == [(3, 1, "reserve")]
    read = await read_intents(ready_world.databases, EAST, RISK, API, 1, 1)
    assert isinstance(read[0].outcome, Granted)
    assert read[0].outcome.token == token
    assert isinstance(read[-1].outcome, Refused)


async def test_the_intents_of_a_generation_are_found_without_reading_all(
    ready_world: World,
) -> None:
    with psycopg.connect(ready_world.databases.urls[0]) as owner:
        owner.execute("SET enable_seqscan = off")
        plan = owner.execute(
            "EXPLAIN SELECT FROM regional.intents"
            " WHERE region = 'us-east' AND tenant = 'risk' AND workload = 'api'"
            " AND generation = 1"
        ).fetchall()
    assert any("Index Cond" in line and "generation = 1" in line for (line,) in plan)


async def test_every_move_of_a_token_is_recorded_with_who_made_it(ready_world: World) -> None:
    token = await ready_world.running(0)
    await ready_world.running(1)
    query = """
        SELECT kind, to_state, database_role FROM regional.transitions
         WHERE region = 'us-east' AND token = %s ORDER BY version, ordinal
    """
    with psycopg.connect(ready_world.databases.urls[0]) as reader:
        moves = reader.execute(query, [token]).fetchall()
    assert [(kind, state) for kind, state, _ in moves] == [
        ("reservation", "held"), ("reservation", "bound"),
        ("binding", "bound"), ("binding", "starting"),
    ]  # fmt: skip
    assert {role for _, _, role in moves} == {"durable_commit"}


@pytest.mark.parametrize("verb", ["UPDATE", "DELETE"])
async def test_a_decision_is_never_changed(ready_world: World, verb: str) -> None:
    await record_decisions(ready_world.databases, EAST, [decision()])
    sql = {"UPDATE": "UPDATE regional.decisions SET attempt = 9",
           "DELETE": "DELETE FROM regional.decisions"}[verb]  # fmt: skip
    with (
        psycopg.connect(ready_world.databases.urls[0]) as owner,
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"),
    ):
        owner.execute(sql.encode())

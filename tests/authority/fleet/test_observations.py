"""Reports merge: in whatever order, groups or number they arrive, they end in the same row."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import text

from durable.authority.commit.regional_commit import _commit_batch  # pyright: ignore[reportPrivateUsage]
from durable.authority.fleet.node_sessions import register_nodes, renew_leases
from durable.authority.fleet.observations import Observation, observe
from durable.model.ids import NodeId, RegionId
from durable.model.refusal import RefusalCode
from durable.model.states import ObservedState
from tests.authority.world import EAST, TEST, World, node, seconds

ENDS = (ObservedState.FAILED, ObservedState.STOPPED)


def report(token: int = 1, **overrides: Any) -> Observation:
    values: dict[str, Any] = {
        "token": token,
        "node": NodeId("n1"),
        "session": 1,
        "sequence": 1,
        "state": ObservedState.RUNNING,
        "evidence": "seen by a test",
    }
    return Observation(**{**values, **overrides})


async def send(world: World, *reports: Observation) -> list[RefusalCode | None]:
    answers = await observe(world.databases, EAST, reports, observer=TEST, now=world.now)
    return [answer and answer.code for answer in answers]


async def merged(world: World) -> list[tuple[Any, ...]]:
    query = text("""
        SELECT token, session, sequence, state, evidence, log_directory, observer, received_at
          FROM regional.observations ORDER BY token
    """)
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        return [tuple(row) for row in await connection.execute(query)]


async def state_of(world: World, token: int) -> str:
    query = text("SELECT state FROM regional.live_claims(:now, true) WHERE token = :token")
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        of = {"now": world.now, "token": token}
        return (await connection.execute(query, of)).scalar_one()


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Observation], list[list[Observation]]]:
    """Some reports on two bindings, and a way for them to arrive: shuffled, repeated, grouped."""
    states = draw(st.lists(st.sampled_from(ObservedState), min_size=1, max_size=6))
    sent = [
        report(
            draw(st.sampled_from((1, 2))),
            sequence=sequence,
            state=state,
            evidence=f"{sequence}",
            log_directory=f"/logs/{sequence}",
        )
        for sequence, state in enumerate(states, start=1)
    ]
    repeated = draw(st.lists(st.sampled_from(sent), max_size=4))
    order = draw(st.permutations([*sent, *repeated]))
    cuts = sorted(draw(st.sets(st.integers(0, len(order)), max_size=3)))
    groups = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    return sent, groups


def greatest(sent: Sequence[Observation]) -> list[tuple[Any, ...]]:
    """What must be left: per binding the end of its process, else the highest sequence."""
    best: dict[int, Observation] = {}
    for one in sorted(sent, key=lambda one: (one.state in ENDS, one.sequence)):
        best[one.token] = one
    return [
        (token, 1, one.sequence, one.state, one.evidence, one.log_directory, TEST, seconds(0))
        for token, one in sorted(best.items())
    ]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arrival=arrivals())
async def test_reports_end_in_the_same_row_in_whatever_way_they_arrive(
    ready_world: World, arrival: tuple[list[Observation], list[list[Observation]]]
) -> None:
    if not await started(ready_world):
        await ready_world.running(0)
        await ready_world.running(1)
    forget(ready_world)
    sent, groups = arrival
    for group in groups:
        assert await send(ready_world, *group) == [None] * len(group)
    assert await merged(ready_world) == greatest(sent)


async def started(world: World) -> bool:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("SELECT count(*) FROM regional.bindings")
        return bool((await connection.execute(query)).scalar_one())


def forget(world: World) -> None:
    """Each example begins without observations; no role may delete them, so the owner does."""
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("DELETE FROM regional.observations")


@pytest.mark.parametrize("end", ENDS)
async def test_the_end_of_a_process_is_final(ready_world: World, end: ObservedState) -> None:
    token = await ready_world.running(0)
    await send(ready_world, report(token, sequence=5, state=end))
    await send(ready_world, report(token, sequence=9, state=ObservedState.SERVING))
    assert await state_of(ready_world, token) == end
    await world_comes_back(ready_world)
    await send(ready_world, report(token, session=2, sequence=1, state=ObservedState.RUNNING))
    assert await state_of(ready_world, token) == end


async def world_comes_back(world: World) -> None:
    await register_nodes(
        world.databases, EAST, [node()], epoch=1, lease_ttl_seconds=600, now=world.now
    )


async def test_a_later_session_counts_from_the_start(ready_world: World) -> None:
    token = await ready_world.running(0)
    await send(ready_world, report(token, sequence=9, state=ObservedState.SERVING))
    await world_comes_back(ready_world)
    await send(ready_world, report(token, session=2, sequence=1, state=ObservedState.STARTING))
    assert await state_of(ready_world, token) == "starting"


async def test_a_replica_is_in_its_state_since_it_was_first_reported(ready_world: World) -> None:
    token = await ready_world.running(0)

    async def since(second: float, **fields: Any) -> Any:
        await observe(
            ready_world.databases, EAST, [report(token, **fields)], observer=TEST,
            now=seconds(second),
        )  # fmt: skip
        return (await merged(ready_world))[0][-1]

    serving = ObservedState.SERVING
    assert await since(1, sequence=9, state=serving) == seconds(1)
    await world_comes_back(ready_world)
    assert await since(5, session=2, state=serving) == seconds(1), "an agent that came back"
    assert await since(6, session=2, sequence=2, state=ObservedState.RUNNING) == seconds(6)
    assert await since(7, session=2, sequence=3, state=serving) == seconds(7)


async def test_a_replaced_agent_cannot_report(ready_world: World) -> None:
    token = await ready_world.running(0)
    await world_comes_back(ready_world)
    old, new = report(token, sequence=9, state=ObservedState.FAILED), report(token, session=2)
    assert await send(ready_world, old, new) == [RefusalCode.FENCED_AGENT, None]
    assert await state_of(ready_world, token) == "running"


async def test_what_nobody_bound_cannot_be_reported(ready_world: World) -> None:
    token = await ready_world.running(0)
    held = await ready_world.granted(ready_world.reserve(1))
    answers = await send(
        ready_world,
        report(99),
        report(token, node=NodeId("n2")),
        report(held.token),
        report(token),
    )
    assert answers == [RefusalCode.UNKNOWN_TOKEN] * 3 + [None]
    nowhere = await observe(
        ready_world.databases, RegionId("nowhere"), [report(token)], observer=TEST
    )
    assert [answer and answer.code for answer in nowhere] == [RefusalCode.UNKNOWN_TOKEN]


@pytest.mark.parametrize("field", ["session", "sequence"])
@pytest.mark.parametrize("value", [0, 2**63, True, 1.0])
def test_a_counter_that_no_agent_has_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        report(**{field: value})


async def test_agents_never_wait_for_a_commit_that_is_under_way(ready_world: World) -> None:
    token = await ready_world.running(0)
    databases = ready_world.databases
    async with databases.at_region(EAST, "durable_commit").begin() as connection:
        # It holds the region's lock and has changed the very binding that is reported.
        await _commit_batch(connection, EAST, [ready_world.evict(token)], ready_world.now)
        async with asyncio.timeout(4):  # a wait for the lock would last until its timeout
            assert await send(ready_world, report(token)) == [None]
            renewed = await renew_leases(
                databases, EAST, {NodeId("n1"): 1}, lease_ttl_seconds=600, now=seconds(60)
            )
    assert renewed == {"n1"}
    assert await state_of(ready_world, token) == "running"

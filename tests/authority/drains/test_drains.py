"""A drain in its region: begun once, marked while it runs, ended once, and undone by a cancel."""

from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.cache.region_read import read_whole
from durable.authority.drains.orders import begin_drain, end_drain, mark_drained
from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_drains
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.operators.authorization import check_message
from durable.model.fleet.drain import Drain, DrainOrder, DrainState, NodesKind, NodesTarget
from durable.model.ids import Identifier
from durable.model.operators.rights import OperatorMessage, Scope, Verb
from durable.model.operators.signature import sign
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import drain_id
from tests.authority.overrides.asking import KEYS, give_keys
from tests.authority.world import EAST, TEST, World, node
from tests.conftest import DEPLOYMENT


def nodes(name: str = "n1", kind: NodesKind = NodesKind.NODE) -> NodesTarget:
    return NodesTarget(region=EAST, kind=kind, name=Identifier(name))


def order(target: NodesTarget | None = None, request: str = "one", **fields: Any) -> DrainOrder:
    given: dict[str, Any] = {"actor": TEST, "reason": "INC-42", "request_id": request, **fields}
    wanted = target or nodes()
    message = OperatorMessage.unsigned(drain_id(wanted), "drain", **given)
    asked = {name: fields[name] for name in fields if name in DrainOrder.model_fields}
    return DrainOrder(target=wanted, message=message, **asked)


async def begin(world: World, *arguments: Any, **fields: Any) -> Drain:
    return await begin_drain(world.databases, EAST, order(*arguments, **fields))


async def end(world: World, drain: Drain, state: DrainState) -> Drain:
    ended = await end_drain(world.databases, EAST, drain, state, actor=TEST, outcome="so it was")
    return ended.drain


async def refusal(world: World, *arguments: Any, **fields: Any) -> RefusalCode:
    with pytest.raises(RefusedError) as no:
        await begin(world, *arguments, **fields)
    return no.value.refusal.code


async def cordons(world: World) -> dict[str, str | None]:
    read = await read_whole(world.databases, EAST)
    return {one.node: one.cordon_reason for one in read.nodes}


async def rows(world: World, query: str) -> list[tuple[Any, ...]]:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]


async def marks(world: World) -> list[tuple[Any, ...]]:
    return await rows(world, "SELECT token, kind, cause FROM regional.replacements ORDER BY token")


async def test_a_drain_cordons_marks_what_runs_there_and_ends_cordoned(ready_world: World) -> None:
    token = await ready_world.running(0)
    drain = await begin(ready_world)
    assert (drain.state, drain.replicas, drain.cordoned) == ("draining", 1, ("n1",))
    assert await ready_world.refused(ready_world.reserve(1)) is RefusalCode.NODE_CORDONED
    assert len(await mark_drained(ready_world.databases, EAST, drain)) == 1
    assert len(await mark_drained(ready_world.databases, EAST, drain)) == 0
    assert await marks(ready_world) == [(token, "drain", drain.request)]

    progress = await read_progress(ready_world.databases, EAST, drain)
    assert (progress.left, progress.is_overdue) == (1, False)
    ended = await end(ready_world, drain, DrainState.DRAINED)
    assert (ended.state, ended.outcome) == ("drained", "so it was")
    assert await cordons(ready_world) == {"n1": "drain/us-east/n1: INC-42"}


async def test_a_cancel_removes_its_marks_and_its_cordons_alone(ready_world: World) -> None:
    await ready_world.with_nodes(node(), node("n2"), node("n3"))
    await cordon_nodes(ready_world.databases, nodes("n2"), actor=TEST, reason="a fan")
    staying = await ready_world.running(0)
    leaving = await ready_world.running(1)
    drain = await begin(ready_world, nodes("a", NodesKind.ZONE))
    assert drain.cordoned == ("n1", "n3")
    await cordon_nodes(ready_world.databases, nodes("n3"), actor=TEST, reason="another fan")
    await mark_drained(ready_world.databases, EAST, drain)
    await ready_world.granted(ready_world.evict(leaving, 1))

    await end(ready_world, drain, DrainState.CANCELLED)
    assert await cordons(ready_world) == {"n1": None, "n2": "a fan", "n3": "another fan"}
    assert staying not in [token for token, *_ in await marks(ready_world)]
    # An attempt that comes late marks nothing, and ends nothing again.
    assert len(await mark_drained(ready_world.databases, EAST, drain)) == 0
    assert (await end(ready_world, drain, DrainState.DRAINED)).state is DrainState.CANCELLED


async def test_one_that_gives_up_says_so_in_its_cordon_and_may_be_tried_again(
    ready_world: World,
) -> None:
    await ready_world.running(0)
    drain = await begin(ready_world)
    await end(ready_world, drain, DrainState.GAVE_UP)
    assert await cordons(ready_world) == {"n1": "drain/us-east/n1 gave up: INC-42"}
    again = await begin(ready_world, request="two")
    assert again.cordoned == ("n1",), "its own cordon is its own again"
    await end(ready_world, again, DrainState.CANCELLED)
    assert await cordons(ready_world) == {"n1": None}


async def test_a_request_counts_once(ready_world: World) -> None:
    await ready_world.running(0)
    drain = await begin(ready_world)
    assert await begin(ready_world) == drain
    ended = await end(ready_world, drain, DrainState.CANCELLED)
    assert await begin(ready_world) == ended, "sent again, it is what became of it"
    assert await refusal(ready_world, nodes("a", NodesKind.ZONE)) is RefusalCode.KEY_CONFLICT
    for other in ({"actor": "eve"}, {"deadline": "2h"}, {"wait_for_jobs": True}):
        assert await refusal(ready_world, **other) is RefusalCode.KEY_CONFLICT, other
    assert [one.request for one in await read_drains(ready_world.databases, EAST)] == []
    assert len(await read_drains(ready_world.databases, EAST, ended=5)) == 1
    begun = "SELECT count(*) FROM audit.events WHERE action = 'begin drain'"
    assert await rows(ready_world, begun) == [(1,)]


async def test_an_order_that_was_taken_is_answered_without_the_right(ready_world: World) -> None:
    databases, scope = ready_world.databases, Scope(region=EAST)
    await ready_world.running(0)
    taken = order()
    await begin_drain(databases, EAST, taken)
    with psycopg.connect(databases.urls[0]) as owner:
        owner.execute("UPDATE global.operators SET removed_at = now()")
    await check_message(databases, taken.message, Verb.DRAIN, scope)
    for other, code in (
        (order(request="two"), RefusalCode.UNKNOWN_OPERATOR),
        (order(wait_for_jobs=True), RefusalCode.KEY_CONFLICT),
        (order(actor="eve"), RefusalCode.KEY_CONFLICT),
    ):
        with pytest.raises(RefusedError) as no:
            await check_message(databases, other.message, Verb.DRAIN, scope)
        assert no.value.refusal.code is code


async def test_an_order_that_was_signed_is_answered_only_if_it_is_signed(
    ready_world: World,
) -> None:
    databases, scope = ready_world.databases, Scope(region=EAST)
    await ready_world.running(0)
    await give_keys(databases)
    plain = order(actor="ann").message
    signature = sign(KEYS["ann"], plain, DEPLOYMENT)
    signed = plain.model_copy(update={"payload": {**plain.payload, "signature": signature}})
    await begin_drain(databases, EAST, DrainOrder(target=nodes(), message=signed))
    await check_message(databases, signed, Verb.DRAIN, scope)
    with pytest.raises(RefusedError, match="was signed when it was first sent"):
        await check_message(databases, plain, Verb.DRAIN, scope)


async def test_what_drains_is_neither_drained_twice_nor_uncordoned(ready_world: World) -> None:
    await ready_world.running(0)
    drain = await begin(ready_world)
    assert await refusal(ready_world, request="two") is RefusalCode.BEING_DRAINED
    zone = nodes("a", NodesKind.ZONE)
    with pytest.raises(RefusedError, match="drain/us-east/n1"):
        await begin(ready_world, zone, request="three")
    with pytest.raises(RefusedError, match="drain/us-east/n1"):
        await uncordon_nodes(ready_world.databases, nodes(), actor=TEST, reason="too early")
    await end(ready_world, drain, DrainState.CANCELLED)
    await uncordon_nodes(ready_world.databases, nodes(), actor=TEST, reason="done")


async def test_what_is_empty_and_cordoned_is_drained_already(ready_world: World) -> None:
    drain = await begin(ready_world)
    assert (await read_progress(ready_world.databases, EAST, drain)).left == 0
    await end(ready_world, drain, DrainState.DRAINED)
    assert await refusal(ready_world, request="two") is RefusalCode.ALREADY_DRAINED


async def test_a_deadline_is_the_regions_own(ready_world: World) -> None:
    await ready_world.running(0)
    drain = await begin(ready_world, deadline="1s")
    assert (drain.deadline_at - drain.started_at).total_seconds() == 1.0
    past = drain.model_copy(update={"deadline_at": drain.started_at})
    assert (await read_progress(ready_world.databases, EAST, past)).is_overdue


@pytest.mark.parametrize("deadline", ["0s", "0", 0, "-1s", "31d", ""])
def test_a_deadline_that_makes_no_sense_is_refused(deadline: Any) -> None:
    with pytest.raises(ValueError, match="allowed"):
        order(deadline=deadline)

"""Cordons: operators keep new work off nodes, one by one or together."""

from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.cache.region_read import read_whole
from durable.authority.drains.orders import begin_drain
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.fleet.node_targets import locate_nodes
from durable.model.fleet.drain import DrainOrder, NodesKind, NodesTarget
from durable.model.ids import ActorId, Identifier, RegionId
from durable.model.operators.rights import OperatorMessage
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import drain_id
from tests.authority.world import EAST, TEST, WEST, World, node

NOWHERE = RegionId("nowhere")
ALICE = ActorId("alice@example.com")


def nodes(name: str = "n1", kind: NodesKind = NodesKind.NODE, region: RegionId = EAST) -> Any:
    return NodesTarget(region=region, kind=kind, name=Identifier(name))


async def cordons(world: World) -> dict[str, tuple[str | None, str | None]]:
    read = await read_whole(world.databases, EAST)
    return {one.node: (one.cordon_reason, one.cordoned_by) for one in read.nodes}


async def audited(world: World) -> list[tuple[Any, ...]]:
    query = text(
        "SELECT actor, action, object, after ->> 'reason', database_role FROM audit.events"
        " WHERE action LIKE '%cordon%' ORDER BY sequence"
    )
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        return [tuple(row) for row in await connection.execute(query)]


async def test_a_cordoned_node_takes_no_new_work_and_keeps_what_it_has(
    ready_world: World,
) -> None:
    token = await ready_world.running(0)
    changed = await cordon_nodes(ready_world.databases, nodes(), actor=ALICE, reason="a fan")
    assert changed == ["n1"]
    assert await ready_world.refused(ready_world.reserve(1)) is RefusalCode.NODE_CORDONED
    assert await cordons(ready_world) == {"n1": ("a fan", ALICE)}
    await ready_world.granted(ready_world.evict(token))
    assert await cordon_nodes(ready_world.databases, nodes(), actor=TEST, reason="a fan") == []

    await uncordon_nodes(ready_world.databases, nodes(), actor=ALICE, reason="replaced")
    await ready_world.granted(ready_world.reserve(1, attempt=2))
    assert await audited(ready_world) == [
        (ALICE, "cordon nodes", "node/n1", "a fan", "durable_operator"),
        (ALICE, "uncordon nodes", "node/n1", "replaced", "durable_operator"),
    ]


async def test_a_cordon_is_the_operators_and_outlasts_the_agents_return(
    ready_world: World,
) -> None:
    await cordon_nodes(ready_world.databases, nodes(), actor=TEST, reason="a fan")
    await ready_world.with_nodes(node())
    assert await ready_world.refused(ready_world.reserve()) is RefusalCode.NODE_CORDONED


async def test_a_zone_and_a_pool_are_cordoned_together(ready_world: World) -> None:
    more = (node("n2"), node("n3", zone="b", pool="other"))
    await ready_world.with_nodes(node(), *more)
    zone = nodes("a", NodesKind.ZONE)
    changed = await cordon_nodes(ready_world.databases, zone, actor=TEST, reason="a flood")
    assert changed == ["n1", "n2"]
    pool = nodes("other", NodesKind.POOL)
    assert await cordon_nodes(ready_world.databases, pool, actor=TEST, reason="old") == ["n3"]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (nodes("n9"), RefusalCode.UNKNOWN_NODE),
        (nodes("n9", NodesKind.ZONE), RefusalCode.UNKNOWN_ZONE),
        (nodes("n9", NodesKind.POOL), RefusalCode.UNKNOWN_POOL),
        (nodes(region=NOWHERE), RefusalCode.UNKNOWN_REGION),
    ],
)
async def test_what_is_unknown_is_neither_cordoned_nor_drained(
    ready_world: World, target: NodesTarget, code: RefusalCode
) -> None:
    before = (await read_whole(ready_world.databases, EAST)).version
    message = OperatorMessage.unsigned(
        drain_id(target), "drain", actor=TEST, reason="INC-42", request_id="one"
    )
    order = DrainOrder(target=target, message=message)
    for attempt in (
        cordon_nodes(ready_world.databases, target, actor=TEST, reason="a fan"),
        uncordon_nodes(ready_world.databases, target, actor=TEST, reason="a fan"),
        begin_drain(ready_world.databases, target.region, order),
    ):
        with pytest.raises(RefusedError) as no:
            await attempt
        assert no.value.refusal.code is code
    assert (await read_whole(ready_world.databases, EAST)).version == before
    assert await audited(ready_world) == []


async def test_a_name_is_found_in_its_region_and_refused_where_it_is_not_clear(
    two_regions: World,
) -> None:
    databases, general = two_regions.databases, Identifier("general")
    found = await locate_nodes(databases, NodesKind.NODE, Identifier("w1"))
    assert found == nodes("w1", region=WEST)
    named = await locate_nodes(databases, NodesKind.POOL, general, WEST)
    assert named == nodes("general", NodesKind.POOL, WEST)
    for name, region, code in (
        (general, None, RefusalCode.UNKNOWN_POOL),
        (Identifier("none"), None, RefusalCode.UNKNOWN_POOL),
        (general, NOWHERE, RefusalCode.UNKNOWN_REGION),
    ):
        with pytest.raises(RefusedError) as no:
            await locate_nodes(databases, NodesKind.POOL, name, region)
        assert no.value.refusal.code is code

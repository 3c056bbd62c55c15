"""Nodes: agents say what they are and that they live, operators say what they may take."""

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.cache.region_read import read_whole
from durable.authority.fleet.node_sessions import register_nodes, renew_leases
from durable.authority.recovery.fence import fence, reopen
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import DeviceId, NodeId, RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Capacity, Resources
from durable.scheduling.snapshot.region import NodeFacts
from tests.authority.world import EAST, TEST, World, labels, node, seconds

N1, N2 = NodeId("n1"), NodeId("n2")
NOWHERE = RegionId("nowhere")


async def register(
    world: World, *nodes: NodeSpec, epoch: int = 1, at: float = 0, lease_seconds: int = 60
) -> dict[NodeId, int]:
    return await register_nodes(
        world.databases,
        EAST,
        nodes or (node(),),
        epoch=epoch,
        lease_ttl_seconds=lease_seconds,
        now=seconds(at),
    )


async def renew(world: World, at: float, lease_seconds: int = 60, **sessions: int) -> set[str]:
    renewed = await renew_leases(
        world.databases,
        EAST,
        {NodeId(name): session for name, session in sessions.items()},
        lease_ttl_seconds=lease_seconds,
        now=seconds(at),
    )
    return {str(name) for name in renewed}


async def shown(world: World, name: str = "n1") -> NodeFacts:
    found = {view.node: view for view in (await read_whole(world.databases, EAST)).nodes}
    return found[name]


async def lease_of(world: World, name: str = "n1") -> tuple[datetime, datetime]:
    query = text("SELECT renewed_at, expires_at FROM regional.node_leases WHERE node = :node")
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        row = (await connection.execute(query, {"node": name})).one()
    return row.renewed_at, row.expires_at


async def rows(world: World, query: str) -> list[tuple[Any, ...]]:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]


# ── registration ────────────────────────────────────────────────────────────────────────────────


async def test_a_registered_node_is_as_its_agent_described_it(world: World) -> None:
    await world.with_region()
    special = node(gpus=2, labels=labels(disk="ssd"), dedicated_to=TenantId("risk"), pool="fast")
    assert await register(world, special, node("n2")) == {N1: 1, N2: 1}
    view = await shown(world)
    assert (view.capacity, view.used) == ((8000, 32_768, 2), (0, 0, 0))
    assert (view.labels, view.dedicated_to, view.pool) == ({"disk": "ssd"}, "risk", "fast")
    assert (view.state, view.lease_epoch) == ("ready", 1)
    assert view.lease_expires_at == seconds(60).timestamp()
    assert await rows(world, "SELECT node, device FROM regional.devices ORDER BY device") == [
        ("n1", "gpu-0"),
        ("n1", "gpu-1"),
    ]


async def test_registering_again_begins_a_new_session_and_updates_the_node(
    ready_world: World,
) -> None:
    grown = node(gpus=1, capacity=Capacity(cpu_millis=16_000, memory_mib=65_536, gpus=1))
    assert await register(ready_world, grown) == {N1: 2}
    assert (await shown(ready_world)).capacity == (16_000, 65_536, 1)
    assert await register(ready_world) == {N1: 3}
    assert (await shown(ready_world)).capacity == (8000, 32_768, 0)
    assert await rows(ready_world, "SELECT * FROM regional.devices") == []


async def test_what_runs_on_a_node_stays_when_its_agent_comes_back(ready_world: World) -> None:
    await ready_world.running(0)
    await register(ready_world)
    assert (await shown(ready_world)).used == (1000, 1024, 0)


async def test_a_node_does_not_shrink_below_what_it_holds(ready_world: World) -> None:
    await ready_world.granted(ready_world.reserve(resources=Resources.of(3000, 1024)))
    before = await shown(ready_world)
    small = node(capacity=Capacity(cpu_millis=2999, memory_mib=32_768))
    with pytest.raises(RefusedError, match="Node n1 holds 3 cpu, 1Gi") as no:
        await register(ready_world, node("n2"), small)
    assert no.value.refusal.code is RefusalCode.CAPACITY_IN_USE
    snapshot = await read_whole(ready_world.databases, EAST)
    assert snapshot.nodes == (before,), "nor did its neighbour register"

    exact = node(capacity=Capacity(cpu_millis=3000, memory_mib=1024))
    await register(ready_world, exact)
    assert (await shown(ready_world)).capacity == (3000, 1024, 0)


async def test_a_device_that_is_held_cannot_be_taken_away(ready_world: World) -> None:
    await ready_world.with_nodes(node(gpus=2))
    held = await ready_world.granted(ready_world.reserve(resources=Resources.of(1000, 0, 1)))
    assert held.devices == (DeviceId("gpu-0"),)
    one = Capacity(cpu_millis=8000, memory_mib=32_768, gpus=1)
    with pytest.raises(RefusedError, match="no longer offers gpu-0, which is held") as no:
        await register(ready_world, node(capacity=one, devices=(DeviceId("gpu-1"),)))
    assert no.value.refusal.code is RefusalCode.CAPACITY_IN_USE

    await register(ready_world, node(capacity=one, devices=(DeviceId("gpu-0"),)))
    more = ready_world.reserve(1, resources=Resources.of(1000, 0, 1))
    assert await ready_world.refused(more) is RefusalCode.NODE_FULL


async def test_an_unknown_region_has_no_nodes_to_register_or_renew(world: World) -> None:
    with pytest.raises(RefusedError) as no:
        await register_nodes(world.databases, NOWHERE, [node()], epoch=1, lease_ttl_seconds=60)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION
    assert await renew_leases(world.databases, NOWHERE, {N1: 1}, lease_ttl_seconds=60) == set()


# ── leases ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_heartbeat_extends_the_lease(ready_world: World) -> None:
    await register(ready_world)
    assert await renew(ready_world, at=570, n1=2) == {"n1"}
    assert await lease_of(ready_world) == (seconds(570), seconds(630))


async def test_a_late_heartbeat_never_shortens_the_lease(ready_world: World) -> None:
    await register(ready_world)
    await renew(ready_world, at=590, n1=2)
    assert await renew(ready_world, at=560, n1=2) == {"n1"}
    assert await lease_of(ready_world) == (seconds(590), seconds(650))
    await renew(ready_world, at=600, lease_seconds=1, n1=2)
    assert await lease_of(ready_world) == (seconds(600), seconds(650))


async def test_a_new_session_never_shortens_the_lease_of_the_one_before(
    ready_world: World,
) -> None:
    _, before = await lease_of(ready_world)
    await ready_world.with_nodes(node(), lease_seconds=1)
    assert (await lease_of(ready_world))[1] == before


async def test_a_replaced_agent_cannot_renew(ready_world: World) -> None:
    await ready_world.with_nodes(node("n2"))
    await register(ready_world)
    before = await lease_of(ready_world)
    assert await renew(ready_world, at=30, n1=1, n2=1, n3=1) == {"n2"}
    assert await lease_of(ready_world) == before


async def test_without_a_clock_of_its_own_a_lease_runs_on_the_databases(
    ready_world: World,
) -> None:
    await register_nodes(ready_world.databases, EAST, [node("n2")], epoch=1, lease_ttl_seconds=60)
    ((now, lasts),) = await rows(
        ready_world,
        "SELECT clock_timestamp() - renewed_at, extract(epoch FROM expires_at - renewed_at)"
        " FROM regional.node_leases WHERE node = 'n2'",
    )
    assert 0 <= now.total_seconds() < 60
    assert lasts == 60


# ── fencing ─────────────────────────────────────────────────────────────────────────────────────


async def test_after_a_fence_a_node_takes_no_work_until_it_registers_at_the_new_epoch(
    ready_world: World,
) -> None:
    databases = ready_world.databases
    await fence(databases, EAST, expected_epoch=1, actor=TEST, reason="a drill")
    assert await renew(ready_world, at=30, n1=1) == set()
    with pytest.raises(RefusedError) as no:
        await register(ready_world, epoch=1)
    assert no.value.refusal.code is RefusalCode.FENCED_AGENT
    await reopen(databases, EAST, expected_epoch=2, actor=TEST, reason="the drill is over")

    after = ready_world.at(EAST, epoch=2)
    assert await after.refused(after.reserve()) is RefusalCode.NODE_STALE
    assert await renew(ready_world, at=30, n1=1) == set()
    assert await register(ready_world, epoch=2) == {N1: 2}
    await after.granted(after.reserve(attempt=2))
    assert await renew(ready_world, at=30, n1=2) == {"n1"}

"""A device that is not healthy is known to the decision before any commit has to refuse it."""

import pytest

from durable.authority.cache.cached_region import CachedRegion
from durable.authority.cache.history import read_nodes_at
from durable.authority.cache.region_read import read_changes, read_in_chunks, read_whole
from durable.authority.fleet.devices import report_unhealthy_devices
from durable.authority.fleet.node_reads import read_node
from durable.authority.fleet.nodes import declare_nodes
from durable.model.ids import DeviceId, NodeId
from durable.model.placement.intents import Refused
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from tests.authority.world import EAST, TEST, World, node

N2 = NodeId("n2")
GPU = Resources.of(1000, 0, 1)


async def with_gpus(world: World, gpus: int = 2) -> World:
    await world.with_nodes(node("n2", gpus=gpus))
    return world


async def report(world: World, *devices: str) -> int:
    """The region's version before the report."""
    version = (await read_whole(world.databases, EAST)).version
    unhealthy = {N2: [DeviceId(each) for each in devices]}
    await report_unhealthy_devices(world.databases, EAST, unhealthy)
    return version


async def unhealthy(world: World) -> int:
    """As every way to read a region tells it."""
    whole = await read_whole(world.databases, EAST)
    found = {
        facts.unhealthy_gpus
        for nodes in (
            whole.nodes,
            (await read_in_chunks(world.databases, EAST)).nodes,
            await read_nodes_at(world.databases, EAST, whole.version),
        )
        for facts in nodes
        if facts.node == N2
    }
    (count,) = found
    return count


async def test_the_decision_and_the_commit_see_the_same_devices(ready_world: World) -> None:
    world = await with_gpus(ready_world)
    before = await report(world, "gpu-0", "gpu-1")
    assert await unhealthy(world) == 2
    (outcome,) = await world.send(world.reserve(0, node="n2", resources=GPU))
    assert isinstance(outcome, Refused)
    assert outcome.refusal.code is RefusalCode.DEVICES_TAKEN
    devices = (await read_node(world.databases, EAST, N2)).devices
    assert [device.healthy for device in devices] == [False, False]
    past = await read_nodes_at(world.databases, EAST, before)
    assert {facts.unhealthy_gpus for facts in past} == {0}


async def test_a_cache_learns_of_it_and_of_the_recovery(ready_world: World) -> None:
    world = await with_gpus(ready_world)
    held = CachedRegion(EAST)
    held.merge(await read_whole(world.databases, EAST), sent_at=0, is_whole=True)
    row = held.snapshot().row("n2")
    assert row is not None
    for devices, count, helps in ((("gpu-1",), 1, False), ((), 0, True)):
        since = await report(world, *devices)
        changes = await read_changes(world.databases, EAST, since)
        assert held.merge(changes, sent_at=0, is_whole=False) is helps
        assert held.snapshot().columns.unhealthy_gpus[row] == count


async def test_a_device_that_is_held_counts_once(ready_world: World) -> None:
    """As in use while its work has it, and as unhealthy afterwards."""
    world = await with_gpus(ready_world)
    claim = await world.granted(world.reserve(0, node="n2", resources=GPU))
    await report(world, *map(str, claim.devices))
    assert await unhealthy(world) == 0
    await world.send(world.release(claim.token, slot=0))
    assert await unhealthy(world) == 1


async def test_a_report_that_says_nothing_new_changes_nothing(ready_world: World) -> None:
    world = await with_gpus(ready_world)
    await report(world, "gpu-1")
    before = await report(world, "gpu-1")
    assert (await read_whole(world.databases, EAST)).version == before


async def test_a_device_that_is_gone_is_no_longer_unhealthy(ready_world: World) -> None:
    world = await with_gpus(ready_world)
    await report(world, "gpu-1")
    await declare_nodes(world.databases, EAST, [node("n2", gpus=1)], actor=TEST)
    assert await unhealthy(world) == 0


async def test_an_unknown_node_or_device_is_refused(ready_world: World) -> None:
    world = await with_gpus(ready_world)
    with pytest.raises(RefusedError, match="has no device gpu-7"):
        await report(world, "gpu-7")
    with pytest.raises(RefusedError, match="has no node n9"):
        await report_unhealthy_devices(world.databases, EAST, {NodeId("n9"): []})

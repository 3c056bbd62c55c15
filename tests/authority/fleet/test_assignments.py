"""What nodes must run and stop, read whole and since a version."""

from typing import Any

import pytest

from durable.authority.fleet.assignments import read_assignments
from durable.authority.fleet.node_reads import read_declared_nodes
from durable.authority.fleet.nodes import declare_nodes
from durable.authority.fleet.observations import Observation, observe
from durable.authority.fleet.regions import list_regions
from durable.model.ids import NodeId, RegionId
from durable.model.placement.intents import ReleaseCause
from durable.model.refusal import RefusedError
from durable.model.states import ObservedState
from tests.authority.world import EAST, TEST, World, labels, node

N1 = NodeId("n1")


async def tokens_of(world: World, since: int = 0, nodes: Any = None) -> set[int]:
    _, found = await read_assignments(world.databases, EAST, nodes, since=since)
    return {assignment.token for assignment in found}


async def test_only_what_was_started_or_requested_to_stop_is_assigned(ready_world: World) -> None:
    world = ready_world
    held = (await world.granted(world.reserve(0))).token
    bound = (await world.granted(world.reserve(1))).token
    await world.granted(world.bind(bound, 1))
    started = await world.running(2)
    assert await tokens_of(world) == {started}

    await world.granted(world.evict(bound, 1))
    assert await tokens_of(world) == {started, bound}
    assert held not in await tokens_of(world)


async def test_each_node_has_its_own_assignments(ready_world: World) -> None:
    await ready_world.with_nodes(node("n2"))
    here = await ready_world.running(0)
    there = await ready_world.running(1, node="n2")
    assert await tokens_of(ready_world, nodes=[N1]) == {here}
    assert await tokens_of(ready_world, nodes=[NodeId("n2")]) == {there}
    assert await tokens_of(ready_world, nodes=[]) == set()
    assert await tokens_of(ready_world) == {here, there}


async def test_an_assignment_says_what_is_wanted_and_what_was_seen(ready_world: World) -> None:
    world = ready_world
    token = await world.running(0)
    _, (before,) = await read_assignments(world.databases, EAST, [N1])
    assert (before.tenant, before.workload, before.generation) == ("risk", "api", 1)
    assert (before.slot, before.attempt, before.node) == (0, 1, "n1")
    assert not before.stop_requested
    # No request was ever written for it: the agent must say so, and must not guess.
    assert (before.spec, before.observed) == (None, None)

    seen = Observation(
        token=token, node=N1, session=1, sequence=1, state=ObservedState.SERVING, evidence="seen"
    )
    await observe(world.databases, EAST, [seen], observer=TEST)
    await world.granted(world.evict(token, evidence="make room"))
    _, (after,) = await read_assignments(world.databases, EAST, [N1])
    assert (after.stop_requested, after.stop_reason) == (True, "make room")
    assert after.observed is ObservedState.SERVING


async def test_since_a_version_only_changes_and_releases_are_read(ready_world: World) -> None:
    world = ready_world
    first = await world.running(0)
    version, _ = await read_assignments(world.databases, EAST, None)
    assert await tokens_of(world, since=version) == set()

    second = await world.running(1)
    assert await tokens_of(world, since=version) == {second}

    version, _ = await read_assignments(world.databases, EAST, None)
    ended = Observation(
        token=first, node=N1, session=1, sequence=1, state=ObservedState.STOPPED, evidence="ended"
    )
    await observe(world.databases, EAST, [ended], observer=TEST)
    await world.granted(world.release(first, cause=ReleaseCause.STOPPED))
    _, (gone,) = await read_assignments(world.databases, EAST, None, since=version)
    assert (gone.token, gone.released) == (first, True)
    assert await tokens_of(world) == {second}


async def test_declared_nodes_are_read_whole_and_since_a_version(ready_world: World) -> None:
    version, nodes, removed = await read_declared_nodes(ready_world.databases, EAST)
    assert (nodes, removed) == ([node("n1")], [])

    changed = node("n2", gpus=2, labels=labels(colour="blue"))
    await declare_nodes(ready_world.databases, EAST, [node("n1"), changed], actor=TEST)
    _, nodes, removed = await read_declared_nodes(ready_world.databases, EAST, since=version)
    assert (nodes, removed) == ([changed], [])


async def test_regions_are_listed_and_an_unknown_one_is_refused(neighbours: World) -> None:
    assert await list_regions(neighbours.databases) == ["us-east", "us-west"]
    with pytest.raises(RefusedError):
        await read_assignments(neighbours.databases, RegionId("nowhere"), None)
    with pytest.raises(RefusedError):
        await read_declared_nodes(neighbours.databases, RegionId("nowhere"))

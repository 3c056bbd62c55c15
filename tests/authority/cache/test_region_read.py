"""A region that is read in parts is the region at one version, whatever happens in between."""

import psycopg
import pytest

from durable.authority.cache import region_read
from durable.authority.cache.region_read import read_changes, read_in_chunks, read_whole
from durable.scheduling.snapshot.region import NodeFacts
from tests.authority.world import EAST, World, node


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_read, "NODES_PER_CHUNK", 2)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
async def test_the_parts_are_the_whole(ready_world: World, count: int) -> None:
    await ready_world.with_nodes(*(node(f"m{number}") for number in range(count - 1)))
    whole = await read_whole(ready_world.databases, EAST)
    parts = await read_in_chunks(ready_world.databases, EAST)
    assert parts.version == whole.version
    assert (parts.nodes, parts.grants, parts.room) == (whole.nodes, whole.grants, whole.room)
    assert parts.policy_revision == whole.policy_revision == 1


async def test_what_changes_between_two_parts_is_in_the_sum(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready_world.with_nodes(*(node(f"m{number}") for number in range(5)))
    read_part = region_read._read_chunk  # pyright: ignore[reportPrivateUsage]
    parts: list[int] = []

    async def read_and_change(*args: object) -> list[NodeFacts]:
        part = await read_part(*args)  # pyright: ignore[reportArgumentType]
        parts.append(len(part))
        if len(parts) == 2:
            await ready_world.granted(ready_world.reserve(0, node="m0"))
            await ready_world.with_nodes(node("a-new-one"))
            with psycopg.connect(ready_world.databases.urls[0]) as owner:
                owner.execute("UPDATE regional.regions SET version = version + 1")
                owner.execute(
                    "UPDATE regional.nodes SET state = 'removed', changed_version ="
                    " (SELECT version FROM regional.regions) WHERE node IN ('m1', 'm4')"
                )
        return part

    monkeypatch.setattr(region_read, "_read_chunk", read_and_change)
    found = await read_in_chunks(ready_world.databases, EAST)
    whole = await read_whole(ready_world.databases, EAST)
    assert found.version == whole.version
    assert {view.node: view for view in found.nodes} == {view.node: view for view in whole.nodes}


async def test_a_claim_changes_its_node_when_it_takes_room_and_when_it_frees_it(
    ready_world: World,
) -> None:
    """Binding moves no capacity, and to read its nodes again would double what a cache reads."""
    world = ready_world
    claim = await world.granted(world.reserve(0))
    before = claim.version - 1
    await world.granted(world.bind(claim.token))

    async def changed(since: int) -> list[str]:
        return [str(one.node) for one in (await read_changes(world.databases, EAST, since)).nodes]

    assert await changed(before) == ["n1"]
    assert await changed(claim.version) == []
    held = await world.granted(world.reserve(1))
    await world.granted(world.release(held.token, 1))
    assert await changed(held.version) == ["n1"]

"""A snapshot is the region at one version, and every earlier version can be rebuilt exactly."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from durable.authority.cache.history import read_nodes_at
from durable.authority.cache.region_read import RegionRead, read_changes, read_whole
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId, RegionId
from durable.model.placement.intents import Granted, Reserve
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Capacity, Resources
from durable.model.states import RegionState
from durable.scheduling.snapshot.region import NodeFacts
from tests.authority.world import EAST, TEST, World, labels, node, seconds

NOWHERE = RegionId("nowhere")
NAMES = ("n1", "n2", "n10")


async def test_a_snapshot_shows_the_region_as_it_is(ready_world: World) -> None:
    await ready_world.with_nodes(node("n2", gpus=1, labels=labels(disk="ssd")), lease_seconds=30)
    await ready_world.granted(ready_world.reserve(0, resources=Resources.of(3000, 2048)))
    gpu = ready_world.reserve(1, node="n2", resources=Resources.of(1000, 0, 1))
    last = await ready_world.granted(gpu)
    await cordon_nodes(
        ready_world.databases, NodesTarget.of_node(EAST, NodeId("n1")), actor=TEST, reason="a fan"
    )

    snapshot = await read_whole(ready_world.databases, EAST)
    assert (snapshot.region, snapshot.epoch, snapshot.state) == (EAST, 1, RegionState.OPEN)
    assert snapshot.version == last.version + 1
    plain = NodeFacts(
        node="n1", zone="a", pool="general", capacity=(8000, 32_768, 0), used=(3000, 2048, 0),
        labels={}, taints=[], dedicated_to=None, state="ready", cordon_reason="a fan",
        lease_epoch=1, lease_expires_at=seconds(600).timestamp(), cordoned_by="test",
    )  # fmt: skip
    assert snapshot.nodes == (
        plain,
        replace(
            plain, node="n2", capacity=(8000, 32_768, 1), used=(1000, 0, 1),
            labels={"disk": "ssd"}, cordon_reason=None, cordoned_by=None,
            lease_expires_at=seconds(30).timestamp(),
        ),
    )  # fmt: skip
    granted = (100_000, 1_000_000, 100)
    assert snapshot.grants == {"risk": (granted, (4000, 2048, 1))}


async def test_an_empty_region_has_an_empty_snapshot(world: World) -> None:
    await world.with_region()
    snapshot = await read_whole(world.databases, EAST)
    assert (snapshot.nodes, snapshot.grants) == ((), {})


@pytest.mark.parametrize("version", [-1, 1_000_000])
async def test_a_version_that_never_was_is_refused(ready_world: World, version: int) -> None:
    with pytest.raises(RefusedError, match=f"has versions 0 to .*, not {version}"):
        await read_nodes_at(ready_world.databases, EAST, version)


async def test_an_unknown_region_has_no_snapshot(world: World) -> None:
    for read in (
        read_whole(world.databases, NOWHERE),
        read_nodes_at(world.databases, NOWHERE, 0),
    ):
        with pytest.raises(RefusedError) as no:
            await read
        assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION


class Life:
    """A region's random life: work comes, is bound and goes, nodes grow and are cordoned."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)  # noqa: S311 - it must repeat
        self.attempt = 0
        self.claims: dict[int, Reserve] = {}

    async def go_on(self) -> None:
        steps = (self.reserve, self.reserve, self.bind, self.release, self.cordon, self.register)
        await self.random.choice(steps)()

    def some(self, of: Iterable[int]) -> list[int]:
        return [one for one in of if self.random.random() < 0.5]

    async def reserve(self) -> None:
        """Several at once: one version may hold many changes."""
        self.attempt += 1
        taken = {claim.slot for claim in self.claims.values()}
        intents = [
            self.world.reserve(
                slot,
                node=self.random.choice(NAMES),
                attempt=self.attempt,
                resources=Resources.of(self.random.randint(1, 3000), self.random.randint(0, 2000)),
            )
            for slot in self.some(set(range(8)) - taken)
        ]
        for intent, outcome in zip(intents, await self.world.send(*intents), strict=True):
            if isinstance(outcome, Granted):
                self.claims[outcome.token] = intent

    async def bind(self) -> None:
        await self.world.send(
            *(self.world.bind(token, **self.of(token)) for token in self.some(self.claims))
        )

    async def release(self) -> None:
        chosen = self.some(self.claims)
        await self.world.send(*(self.world.release(token, **self.of(token)) for token in chosen))
        for token in chosen:
            del self.claims[token]

    def of(self, token: int) -> dict[str, Any]:
        return {"slot": self.claims[token].slot, "attempt": self.claims[token].attempt}

    async def cordon(self) -> None:
        name, reason = NodeId("n1"), f"reason {self.random.randint(1, 9)}"
        if self.random.random() < 0.5:
            await uncordon_nodes(
                self.world.databases, NodesTarget.of_node(EAST, name), actor=TEST, reason="mended"
            )
        else:
            await cordon_nodes(
                self.world.databases, NodesTarget.of_node(EAST, name), actor=TEST, reason=reason
            )

    async def register(self) -> None:
        """A node comes, comes back, or has grown."""
        roomy = Capacity(cpu_millis=self.random.randint(24_000, 32_000), memory_mib=65_536)
        disk = labels(disk=self.random.choice(("ssd", "nvme")))
        await self.world.with_nodes(node(self.random.choice(NAMES), capacity=roomy, labels=disk))


def without_leases(snapshot: RegionRead) -> tuple[NodeFacts, ...]:
    """Leases are of the present: an old version is rebuilt without them."""
    return tuple(replace(view, lease_epoch=None, lease_expires_at=None) for view in snapshot.nodes)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_earlier_version_is_rebuilt_exactly_as_it_was_shown(
    ready_world: World, seed: int
) -> None:
    databases = ready_world.databases
    life = Life(ready_world, seed)
    shown: dict[int, tuple[NodeFacts, ...]] = {}
    for _ in range(40):
        await life.go_on()
        snapshot = await read_whole(databases, EAST)
        shown[snapshot.version] = without_leases(snapshot)
    assert len(shown) > 20
    used = {tuple(view.used for view in views) for views in shown.values()}
    assert len(used) > 10, "work came and went"
    for version, views in shown.items():
        assert await read_nodes_at(databases, EAST, version) == views, version


@pytest.mark.parametrize("seed", [4, 5])
async def test_a_cache_that_merges_changes_into_its_snapshot_keeps_up(
    ready_world: World, seed: int
) -> None:
    databases = ready_world.databases
    life = Life(ready_world, seed)
    cache = await read_whole(databases, EAST)
    nodes = {view.node: view for view in without_leases(cache)}
    version = cache.version
    for _ in range(30):
        await life.go_on()
        if life.random.random() < 0.5:
            continue  # it need not hear of every commit
        changes = await read_changes(databases, EAST, version)
        nodes |= {view.node: view for view in without_leases(changes)}
        version = changes.version
        whole = await read_whole(databases, EAST)
        assert whole.version == version
        assert nodes == {view.node: view for view in without_leases(whole)}
        assert changes.grants == whole.grants
    newest = (await read_whole(databases, EAST)).version
    assert (await read_changes(databases, EAST, newest)).nodes == ()


async def test_before_the_first_node_there_was_none(ready_world: World) -> None:
    assert await read_nodes_at(ready_world.databases, EAST, 0) == ()

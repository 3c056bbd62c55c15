"""The detection controller names losses, keeps suspicions and begins a recovery once."""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.service import RPCError, RPCStatusCode

from durable.authority.db.connection import Databases
from durable.authority.fleet.node_sessions import read_region_lease
from durable.authority.fleet.policies import publish_policy
from durable.authority.recovery.recoveries import begin_suspected
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.region_leases import renew
from durable.controllers.detection import DetectionController
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import RegionId
from durable.model.policy.rollout import PolicyPhase
from durable.model.recovery.detection import LossKind, RecoveryPolicy, Suspicion
from durable.model.states import RegionState
from durable.scheduling.policies import first_policy
from durable.signals.names import regional_queue
from tests.authority.world import EAST, TEST, WEST, World, node

AT_ONCE = RecoveryPolicy(
    grace_seconds=0, lone_host_grace_seconds=0, agents_grace_seconds=0, calm_seconds=0
)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Two regions, and a policy without grace."""
    async with Databases(database_url) as databases:
        world = World(databases)
        for region in (EAST, WEST):
            await world.with_region(region)
        spec = first_policy().model_copy(update={"recovery": AT_ONCE}).model_dump(mode="json")
        await publish_policy(databases, 2, spec, TEST, phase=PolicyPhase.EVERYWHERE)
        yield world


def nodes_of(region: RegionId, letter: str) -> list[NodeSpec]:
    return [node(f"{letter}{number}", region=region) for number in (1, 2)]


class Watching:
    """A controller, and the recoveries that it began; workers poll every other queue."""

    def __init__(self, databases: Databases, *unserved: RegionId) -> None:
        self.databases = databases
        self.unserved = [regional_queue(region) for region in unserved]
        self.begun: list[Suspicion] = []
        # Regions whose recovery is started and never gets as far as its row, or is not started.
        self.silent: set[RegionId] = set()
        self.refused: set[RegionId] = set()
        self.controller = DetectionController(databases, self._unserved, self._begin)

    async def _unserved(self, _: Iterable[str], __: datetime) -> list[str]:
        return self.unserved

    async def _begin(self, suspicion: Suspicion) -> None:
        if suspicion.region in self.refused:
            raise RPCError("it is away", RPCStatusCode.UNAVAILABLE, b"")
        self.begun.append(suspicion)
        if suspicion.region not in self.silent:
            await begin_suspected(self.databases, suspicion.recovery, actor=TEST)


async def fell_silent(
    world: World, region: RegionId, letter: str, ago: timedelta = timedelta(minutes=1)
) -> None:
    """All leases of the region lapsed then."""
    past = World(world.databases, now=datetime.now(UTC) - ago - timedelta(seconds=10))
    await past.with_nodes(*nodes_of(region, letter), lease_seconds=10, region=region)


async def lives(world: World, region: RegionId, letter: str) -> None:
    """All leases of the region last."""
    await world.with_nodes(*nodes_of(region, letter), region=region)


async def test_leases_that_lapse_together_begin_one_recovery(world: World) -> None:
    watching = Watching(world.databases)
    await fell_silent(world, EAST, "e")
    await lives(world, WEST, "w")
    await watching.controller.once()
    await watching.controller.once()
    verdicts = await watching.controller.once()
    assert verdicts[EAST].kind is LossKind.REGION
    assert verdicts[WEST].kind is not LossKind.REGION
    [begun] = watching.begun
    assert (begun.region, begun.epoch) == (EAST, 1)
    assert (await read_fact(world.databases, EAST)).state is RegionState.SUSPECTED


async def test_a_recovery_is_begun_until_the_authority_has_its_row(world: World) -> None:
    watching = Watching(world.databases)
    await fell_silent(world, EAST, "e")
    await lives(world, WEST, "w")
    watching.silent = {EAST}
    for _ in range(2):
        await watching.controller.once()
    assert [one.region for one in watching.begun] == [EAST, EAST]
    watching.silent = set()
    for _ in range(3):
        await watching.controller.once()
    assert len(watching.begun) == 3, "its row is there"


async def test_a_recovery_that_cannot_be_started_keeps_no_other_region_waiting(
    world: World,
) -> None:
    north = RegionId("us-north")
    await world.with_region(north)
    watching = Watching(world.databases)
    for region, letter in ((EAST, "e"), (WEST, "w")):
        await fell_silent(world, region, letter)
    await lives(world, north, "n")
    watching.refused = {EAST}
    await watching.controller.once()
    assert [one.region for one in watching.begun] == [WEST]
    watching.refused = set()
    await watching.controller.once()
    assert [one.region for one in watching.begun] == [WEST, EAST]


async def test_another_controller_goes_on_with_the_same_suspicion(world: World) -> None:
    first, second = Watching(world.databases), Watching(world.databases)
    first.silent = {EAST}
    await fell_silent(world, EAST, "e")
    await lives(world, WEST, "w")
    await first.controller.once()
    await second.controller.once()
    assert first.begun[0].since == second.begun[0].since


async def test_nobody_is_lost_when_everybody_falls_silent(world: World) -> None:
    watching = Watching(world.databases)
    for region, letter in ((EAST, "e"), (WEST, "w")):
        await fell_silent(world, region, letter)
    verdicts = await watching.controller.once()
    assert {one.kind for one in verdicts.values()} == {LossKind.OBSERVER}
    assert watching.begun == []


async def test_a_region_that_is_back_is_open_again(world: World) -> None:
    watching = Watching(world.databases)
    await fell_silent(world, EAST, "e")
    await lives(world, WEST, "w")
    await watching.controller.once()
    await lives(world, EAST, "e")
    await watching.controller.once()
    assert (await read_fact(world.databases, EAST)).state is RegionState.OPEN


async def test_a_region_that_lost_only_its_worker_keeps_its_lease(apart: World) -> None:
    await lives(apart, WEST, "w")
    lease = await renew(apart.databases, WEST, "the worker that ends", lease_seconds=10)
    verdicts = await Watching(apart.databases, WEST).controller.once()
    assert verdicts[WEST].kind is LossKind.WORKER
    fact = await read_fact(apart.databases, WEST)
    copied = await read_region_lease(apart.databases, WEST)
    assert fact.lease_holder is not None
    assert "global worker" in fact.lease_holder
    assert lease.expires_at is not None
    assert fact.lease_expires_at is not None
    assert fact.lease_expires_at > lease.expires_at + timedelta(seconds=60)
    assert copied.seconds is not None
    assert copied.seconds > 60


async def test_what_a_region_is_taken_for_is_kept_and_a_change_is_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await lives(world, EAST, "e")
    await lives(world, WEST, "w")
    for region in (EAST, WEST):
        await renew(world.databases, region, "w", lease_seconds=600)
    served, unserved = Watching(world.databases), Watching(world.databases, EAST)
    await served.controller.once()
    well = (await read_fact(world.databases, EAST)).seen
    assert well is not None
    assert well.kind is LossKind.HEALTHY
    assert not caplog.records
    for _ in range(2):
        await unserved.controller.once()
    seen = (await read_fact(world.databases, EAST)).seen
    assert seen is not None
    assert seen.kind is LossKind.WORKER
    assert seen.since > well.since
    assert "No worker asks Temporal" in seen.sentence
    [warning] = [one.getMessage() for one in caplog.records]
    assert warning.startswith("us-east: worker lost. No worker asks")

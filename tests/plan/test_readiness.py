"""A simulated loss says what critical work would come back, where, and what is missing."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from durable.authority.cache.cached_region import CachedRegion
from durable.authority.cache.region_read import RegionRead
from durable.authority.db.connection import Databases
from durable.authority.quota.budgets import set_budget
from durable.authority.reads.startup import read_pace
from durable.authority.recovery.suspicions import record_suspicion
from durable.model.ids import BudgetId, RegionId
from durable.model.recovery.detection import (
    LossKind,
    LossVerdict,
    RecoveryPolicy,
    RegionSigns,
    Suspicion,
)
from durable.model.recovery.readiness import LossOutlook, WorkloadReadiness
from durable.model.resources import Resources
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest, WorkloadSpec
from durable.plan.readiness import Readiness
from durable.plan.simulated_loss import Simulation, detection_seconds
from tests.authority.world import API, EAST, RISK, TEST, WEST, World, admit_workload, node

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CORE = Resources.of(1_000, 1_024)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Two regions of two nodes with eight cores each."""
    async with Databases(database_url) as databases:
        world = World(databases)
        for region, letter in ((EAST, "e"), (WEST, "w")):
            await world.with_region(region)
            nodes = [node(f"{letter}{number}", region=region) for number in (1, 2)]
            await world.with_nodes(*nodes, region=region)
            await world.with_tenant(region=region)
        yield world


async def run(world: World, replicas: int, size: Resources = CORE, **spec: object) -> None:
    """Everything in us-east."""
    manifest = WorkloadManifest(
        tenant=RISK,
        name=API,
        spec=WorkloadSpec.model_validate(
            {"replicas": replicas, "resources": size, "priority": 900, **spec}
        ),
    )
    share = {EAST: tuple(range(replicas))}
    await admit_workload(
        world.databases, manifest, request="apply", actor=TEST, divide=lambda _: share
    )


async def lose(world: World, region: RegionId = EAST) -> LossOutlook:
    policy = RecoveryPolicy()
    [outlook] = await Readiness(world.databases).outlooks([region], policy, NOW)
    return outlook


async def test_what_finds_room_elsewhere_would_come_back(world: World) -> None:
    await run(world, 4)
    outlook = await lose(world)
    [api] = outlook.workloads
    assert (api.lost, api.kept, api.needed) == (4, 0, 4)
    assert api.recovers == {WEST: 4}


async def test_never_started_it_may_take_as_long_as_its_deadlines_allow(world: World) -> None:
    await run(world, 4, deadlines={"started": "1m", "ready": "2m"})
    [api] = (await lose(world)).workloads
    lease = (await read_pace(world.databases, EAST)).lease_seconds
    assert api.estimated_seconds >= lease + 180
    # The leases of this test alone last longer than the objective.
    assert not api.is_met
    assert "it would take about" in api.missing


async def test_a_region_without_critical_work_may_be_lost(world: World) -> None:
    await run(world, 4)
    outlook = await lose(world, WEST)
    assert outlook.is_met
    assert outlook.workloads == ()


async def test_work_that_is_not_critical_is_not_asked_about(world: World) -> None:
    await run(world, 4, priority=500)
    assert (await lose(world)).workloads == ()


async def test_too_little_room_is_said_beforehand(world: World) -> None:
    await run(world, 4, Resources.of(7_000, 1_024))
    outlook = await lose(world)
    [api] = outlook.workloads
    assert api.recovers == {WEST: 2}
    assert not outlook.is_met
    assert "only 2 of 4 replicas would find a node" in api.missing


async def test_what_is_kept_for_recovery_counts(world: World) -> None:
    await run(world, 4)
    await set_budget(
        world.databases,
        WEST,
        BudgetId("headroom"),
        Resources.of(16_000, 65_536),
        expires_at=world.now + timedelta(days=1),
        actor=TEST,
    )
    [api] = (await lose(world)).workloads
    assert api.recovers == {WEST: 4}


async def test_where_residency_allows_nothing_else_it_says_so(world: World) -> None:
    await run(world, 4, requirements={"regions": ["us-east"]})
    [api] = (await lose(world)).workloads
    assert api.recovers == {}
    assert "us-east" in api.missing


async def test_a_workload_that_names_the_lost_region_goes_to_the_others_it_names(
    world: World,
) -> None:
    await run(world, 4, weights={"us-east": 2, "us-west": 1})
    [api] = (await lose(world)).workloads
    assert api.recovers == {WEST: 4}


async def test_nothing_is_changed(world: World) -> None:
    await run(world, 4)
    assert (await lose(world)).workloads == (await lose(world)).workloads


async def test_others_in_the_process_go_on_while_a_loss_is_simulated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(world, 4)
    began, others_went_on = asyncio.Event(), threading.Event()
    loop, lose_one = asyncio.get_running_loop(), Simulation.lose

    def wait_for_the_others(self: Simulation, one: AdmittedWorkload) -> WorkloadReadiness:
        loop.call_soon_threadsafe(began.set)
        assert others_went_on.wait(timeout=20), "the simulation held the event loop"
        return lose_one(self, one)

    async def go_on() -> None:
        await began.wait()
        others_went_on.set()

    monkeypatch.setattr(Simulation, "lose", wait_for_the_others)
    outlook, _ = await asyncio.gather(lose(world), go_on())
    assert outlook.workloads[0].recovers == {WEST: 4}


async def test_a_region_is_built_once_for_all_that_is_moved_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(world, 4)
    built: list[RegionId] = []
    merge = CachedRegion.merge

    def count(self: CachedRegion, read: RegionRead, *, sent_at: float, is_whole: bool) -> bool:
        built.extend([read.region] if is_whole else [])
        return merge(self, read, sent_at=sent_at, is_whole=is_whole)

    monkeypatch.setattr(CachedRegion, "merge", count)
    [api] = (await lose(world)).workloads
    assert api.recovers == {WEST: 4}
    assert built.count(WEST) == 1


@pytest.mark.parametrize(
    ("node_leases", "region_lease", "expected"),
    [
        ([15.0], None, 15 + 30),
        ([5.0, 20.0], None, 20 + 30),
        ([], None, 30),
        # Its database is lost with it: the region's lease, the margin, and the grace.
        ([15.0], 120.0, 120 + 3 + 10),
        ([], 120.0, 120 + 3 + 10),
        # Nodes may well outlast it.
        ([300.0], 5.0, 300 + 30),
    ],
)
def test_a_loss_is_detected_when_the_last_lease_has_lapsed(
    node_leases: list[float], region_lease: float | None, expected: float
) -> None:
    assert detection_seconds(RecoveryPolicy(), node_leases, region_lease) == expected


async def test_a_suspected_region_is_no_refuge(world: World) -> None:
    await run(world, 4)
    verdict = LossVerdict(
        region=WEST, kind=LossKind.REGION, sentence="Silent.", signs=RegionSigns(region=WEST)
    )
    suspicion = Suspicion(region=WEST, epoch=1, since=NOW, lost_at=NOW, verdict=verdict)
    await record_suspicion(world.databases, suspicion, TEST)
    outlook = await lose(world)
    assert outlook.unusable == {WEST: "us-west is suspected and takes nothing."}
    assert outlook.workloads[0].recovers == {}
    assert not outlook.is_met

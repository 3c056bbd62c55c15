"""Slots leave a lost region for those that are open, and nothing else is touched."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from durable.allocation.moves import Refuge, read_refuge
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.quota.quotas import set_quota
from durable.authority.recovery.fence import fence
from durable.authority.recovery.suspicions import record_suspicion
from durable.authority.workloads.rows import read_workload
from durable.model.ids import RegionId
from durable.model.recovery.detection import LossKind, LossVerdict, RegionSigns, Suspicion
from durable.model.recovery.recoveries import WorkloadMove
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest, WorkloadSpec
from tests.authority.world import API, EAST, RISK, TEST, WEST, World, admit_workload, node

SOUTH = RegionId("us-south")
CORE = Resources.of(1_000, 1_024)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Three regions of one node with eight cores each."""
    async with Databases(database_url) as databases:
        world = World(databases)
        for region, cores in ((EAST, 10), (SOUTH, 10), (WEST, 20)):
            await world.with_region(region)
            await world.with_nodes(node(f"{region}-1", region=region), region=region)
            await world.with_tenant(region=region, grant=CORE * cores)
        yield world


async def admitted(
    world: World, share: Mapping[RegionId, tuple[int, ...]], **more: Any
) -> AdmittedWorkload:
    replicas = sum(len(slots) for slots in share.values())
    spec = WorkloadSpec.model_validate({"replicas": replicas, "resources": CORE, **more})
    asked = WorkloadManifest(tenant=RISK, name=API, spec=spec)
    await admit_workload(
        world.databases, asked, request="apply", actor=TEST, divide=lambda _: share
    )
    found = await read_workload(world.databases, RISK, API)
    assert found is not None
    return found


async def suspect(world: World, region: RegionId) -> None:
    now = await read_time(world.databases)
    lost = LossVerdict(
        region=region, kind=LossKind.REGION, sentence="silent", signs=RegionSigns(region=region)
    )
    suspicion = Suspicion(region=region, epoch=1, since=now, lost_at=now, verdict=lost)
    assert await record_suspicion(world.databases, suspicion, TEST)


async def refuge(world: World, region: RegionId = EAST) -> Refuge:
    move = WorkloadMove(tenant=RISK, workload=API, priority=0, replicas=6, slots=(0, 1))
    return await read_refuge(world.databases, [move], region=region, incident=None)


async def test_a_region_that_is_only_suspected_keeps_its_work_and_gets_no_more(
    world: World,
) -> None:
    workload = await admitted(world, {EAST: (0, 1), SOUTH: (2, 3), WEST: (4, 5)})
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="lost")
    await suspect(world, SOUTH)
    share = (await refuge(world)).out_of(EAST)(workload)
    assert share == {SOUTH: (2, 3), WEST: (0, 1, 4, 5)}


@pytest.mark.parametrize("more", [{}, {"all_or_nothing": True}])
async def test_what_a_job_has_done_stays_and_only_the_rest_moves(
    world: World, more: dict[str, Any]
) -> None:
    workload = await admitted(world, {EAST: (0, 1, 2, 3)}, kind="job", **more)
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="lost")
    known, unknown = await refuge(world), await refuge(world)
    known.done = {(str(RISK), str(API)): frozenset({0, 2})}
    share = known.out_of(EAST)(workload)
    assert share[EAST] == (0, 2)
    assert sorted(slot for slots in share.values() for slot in slots) == [0, 1, 2, 3]
    share = unknown.out_of(EAST)(workload)
    assert EAST not in share, "what it has done is not known, so it is done again"


async def test_what_goes_back_needs_no_grant_beside_what_it_leaves_elsewhere(world: World) -> None:
    """Nothing of the quota is left: one replica at a time stops there, and starts here."""
    workload = await admitted(world, {WEST: (0, 1, 2, 3)}, disruption={"max_unavailable": 1})
    await set_quota(world.databases, RISK, hard=Resources.of(500, 512), actor=TEST)
    share = (await refuge(world)).back_to(EAST, (0, 1))(workload)
    assert share == {EAST: (0, 1), WEST: (2, 3)}


async def test_where_nothing_may_be_missing_the_first_to_go_back_lacks_grant(world: World) -> None:
    workload = await admitted(world, {WEST: (0, 1, 2, 3)}, disruption={"max_unavailable": 0})
    await set_quota(world.databases, RISK, hard=Resources.of(500, 512), actor=TEST)
    with pytest.raises(RefusedError, match="grant of risk has room for 0 more") as refused:
        (await refuge(world)).back_to(EAST, (0, 1))(workload)
    assert refused.value.refusal.code is RefusalCode.GRANT_EXHAUSTED


async def test_what_does_not_fit_on_the_nodes_of_the_region_does_not_go_back(world: World) -> None:
    workload = await admitted(world, {WEST: tuple(range(10))})
    with pytest.raises(RefusedError, match="has room for 8 of the 10 replicas") as refused:
        (await refuge(world)).back_to(EAST, range(10))(workload)
    assert refused.value.refusal.code is RefusalCode.NODE_FULL

"""What was read a moment ago lets work in; before it refuses, it is read again."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from durable.authority.db.connection import Databases
from durable.authority.quota.quotas import set_quota
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.workload import WorkloadManifest, WorkloadSpec
from durable.plan.admission import AdmissionCheck, TtlCache
from tests.authority.world import EAST, RISK, TEST, World


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with Databases(database_url) as databases:
        yield await World(databases).ready()


def manifest(cpu_millis: int, tenant: TenantId = RISK) -> WorkloadManifest:
    spec = WorkloadSpec(replicas=2, resources=Resources.of(cpu_millis, 512))
    return WorkloadManifest(tenant=tenant, name=WorkloadName("api"), spec=spec)


async def test_a_quota_that_was_raised_lets_in_at_once(world: World) -> None:
    await set_quota(world.databases, RISK, hard=Resources.of(1000, 4096), actor=TEST)
    admission = AdmissionCheck(world.databases)
    # What is granted keeps the old limit in force, yet the target is what admission goes by.
    with pytest.raises(RefusedError, match="more than the hard quota of risk") as no:
        await admission.regions_for(manifest(1000))
    assert no.value.refusal.code is RefusalCode.OVER_HARD_QUOTA
    await set_quota(world.databases, RISK, hard=Resources.of(2000, 4096), actor=TEST)
    assert await admission.regions_for(manifest(1000)) == [EAST]


async def test_a_tenant_that_was_just_added_is_let_in(world: World) -> None:
    admission, late = AdmissionCheck(world.databases), TenantId("late")
    with pytest.raises(RefusedError) as no:
        await admission.regions_for(manifest(1000, late))
    assert no.value.refusal.code is RefusalCode.UNKNOWN_TENANT
    await world.with_tenant(late)
    await admission.regions_for(manifest(1000, late))


async def test_simultaneous_readers_share_one_reading() -> None:
    readings = 0

    async def read(key: str) -> int:
        nonlocal readings
        readings += 1
        await asyncio.sleep(0)
        return readings

    cache = TtlCache(read, seconds=60)
    assert await asyncio.gather(*(cache.get("a") for _ in range(50))) == [1] * 50
    assert await cache.get("b") == 2
    # Whoever came after the first reading began shares the next one.
    fresh = await asyncio.gather(*(cache.get("a", fresh=True) for _ in range(50)))
    assert fresh == [3] + [4] * 49
    assert await cache.get("a") == 4


async def test_a_reading_that_failed_is_not_remembered() -> None:
    answers = iter([None, 7])

    async def read(_: str) -> int:
        answer = next(answers)
        if answer is None:
            raise RefusedError(RefusalCode.UNKNOWN_TENANT, "There is no such tenant.")
        return answer

    cache = TtlCache(read, seconds=60)
    with pytest.raises(RefusedError):
        await cache.get("a")
    assert await cache.get("a") == 7

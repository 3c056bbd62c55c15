"""What was read a moment ago lets work in; before it refuses, it is read again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime

import pytest

from durable.allocation import admission as admission_module
from durable.allocation.admission import AdmissionCheck, TtlCache
from durable.authority.db.connection import Databases
from durable.authority.fleet.node_life import judge_nodes
from durable.authority.fleet.regions import add_region
from durable.authority.quota.quotas import set_quota
from durable.authority.recovery.fence import fence
from durable.authority.recovery.suspicions import record_suspicion
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.recovery.detection import LossKind, LossVerdict, RegionSigns, Suspicion
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest, WorkloadSpec
from tests.authority.overrides.asking import ended, give_keys, in_force
from tests.authority.world import (
    EAST,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    seconds,
)


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
        await admission.check(manifest(1000))
    assert no.value.refusal.code is RefusalCode.OVER_HARD_QUOTA
    await set_quota(world.databases, RISK, hard=Resources.of(2000, 4096), actor=TEST)
    assert (await admission.check(manifest(1000))).share_of(None) == {EAST: (0, 1)}


async def test_an_emergency_quota_in_force_lets_in_what_the_quota_would_not(world: World) -> None:
    """And what it let in may be scaled down after its end, but not up or applied again."""
    world.now = datetime.now().astimezone()
    await world.with_nodes(lease_seconds=3_600)
    await set_quota(world.databases, RISK, hard=Resources.of(1000, 4096), actor=TEST)
    await give_keys(world.databases)
    admission = AdmissionCheck(world.databases)
    scope = {"region": str(EAST), "tenant": str(RISK)}
    one = {"amount": {"cpu": 1, "memory": "1Gi"}}
    await in_force(world.databases, EAST, "emergency-quota", scope, effect=one)
    assert (await admission.check(manifest(1000))).share_of(None) == {EAST: (0, 1)}
    with pytest.raises(
        RefusedError, match=r"2 cpu more than .* \(1 cpu, 4Gi with 1 cpu, 1Gi of em"
    ):
        await admission.check(manifest(2000))
    await ended(world.databases, EAST)
    with pytest.raises(RefusedError, match="more than the hard quota of risk"):
        await AdmissionCheck(world.databases).check(manifest(1000))
    three = manifest(1000).spec.model_copy(update={"replicas": 3})
    assert await AdmissionCheck(world.databases).check(manifest(1000), three)
    one_more = three.model_copy(update={"replicas": 1})
    with pytest.raises(RefusedError, match="more than the hard quota of risk"):
        await AdmissionCheck(world.databases).check(manifest(1000), one_more)


async def test_the_order_of_a_rollout_names_regions_that_there_are(world: World) -> None:
    await add_region(world.databases, WEST, TEST)  # it has no node to run on, and may be named
    admission, asked = AdmissionCheck(world.databases), manifest(1000)

    def in_turn(*regions: str) -> WorkloadManifest:
        rollout = asked.spec.rollout.model_copy(update={"regions": regions})
        spec = asked.spec.model_copy(update={"rollout": rollout})
        return asked.model_copy(update={"spec": spec})

    assert (await admission.check(in_turn("us-west", "us-east"))).share_of(None) == {EAST: (0, 1)}
    with pytest.raises(
        RefusedError, match="There is no region mars; the regions are us-east"
    ) as no:
        await admission.check(in_turn("us-west", "mars"))
    assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION


async def test_a_tenant_that_was_just_added_is_let_in(world: World) -> None:
    admission, late = AdmissionCheck(world.databases), TenantId("late")
    with pytest.raises(RefusedError) as no:
        await admission.check(manifest(1000, late))
    assert no.value.refusal.code is RefusalCode.UNKNOWN_TENANT
    await world.with_tenant(late)
    await admission.check(manifest(1000, late))


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
    fresh = await asyncio.gather(*(cache.get("a", seconds=0) for _ in range(50)))
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


async def test_an_empty_region_and_a_fenced_one_get_no_share(database_url: str) -> None:
    async with Databases(database_url) as databases:
        await World(databases).with_two_regions()

        async def share() -> Mapping[RegionId, tuple[int, ...]]:
            return (await AdmissionCheck(databases).check(manifest(1000))).share_of(None)

        assert await share() == {EAST: (0,), WEST: (1,)}
        await add_region(databases, RegionId("a-new-one"), TEST)
        assert await share() == {EAST: (0,), WEST: (1,)}
        await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="it is lost")
        assert await share() == {EAST: (0, 1)}


async def fence_it(world: World) -> None:
    await fence(world.databases, WEST, expected_epoch=1, actor=TEST, reason="it is lost")


async def suspect_it(world: World) -> None:
    signs = RegionSigns(region=WEST)
    verdict = LossVerdict(region=WEST, kind=LossKind.REGION, sentence="It is silent.", signs=signs)
    suspicion = Suspicion(region=WEST, epoch=1, since=world.now, lost_at=world.now, verdict=verdict)
    assert await record_suspicion(world.databases, suspicion, TEST)


async def silence_it(world: World) -> None:
    moves = await judge_nodes(world.databases, WEST, grace_seconds=30.0, now=seconds(601))
    assert moves.unknown


@pytest.mark.parametrize("lose", [fence_it, suspect_it, silence_it])
async def test_a_region_that_is_lost_or_may_be_gets_no_slots(
    database_url: str, lose: Callable[[World], Awaitable[None]]
) -> None:
    """Neither of new work, nor of work that grows, nor of work that is started anew."""
    async with Databases(database_url) as databases:
        world = await World(databases).with_two_regions()

        async def share(before: AdmittedWorkload | None, **spec: object) -> dict[RegionId, int]:
            wanted = {"replicas": 2, "resources": Resources.of(1000, 512), **spec}
            asked = manifest(1000).model_copy(update={"spec": WorkloadSpec.model_validate(wanted)})
            made = (await AdmissionCheck(databases).check(asked)).share_of(before)
            return {region: len(slots) for region, slots in made.items()}

        serves = await admit_workload(
            databases,
            manifest(1000),
            request="apply",
            actor=TEST,
            divide=lambda _: {EAST: (0,), WEST: (1,)},
        )
        assert await share(serves, replicas=4) == {EAST: 2, WEST: 2}
        await lose(world)
        assert await share(None) == {EAST: 2}
        assert await share(serves, replicas=4) == {EAST: 3, WEST: 1}
        assert await share(serves, run={"image": "api:2"}) == {EAST: 2}


async def test_what_was_admitted_a_moment_ago_is_not_promised_twice(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region's node has 8 cpu: two of three workloads of 4 cpu fill it."""
    for name in ("ROOM_SECONDS", "TIGHT_SECONDS"):
        monkeypatch.setattr(admission_module, name, 600.0)
    async with Databases(database_url) as databases:
        await World(databases).with_two_regions()
        admission = AdmissionCheck(databases)
        shares: list[dict[RegionId, int]] = []
        for _ in range(3):
            admissible = await admission.check(manifest(4000))
            share = admissible.share_of(None)
            admission.promise(admissible.manifest, admissible.added)
            shares.append({region: len(slots) for region, slots in share.items()})
        assert shares[:2] == [{EAST: 1, WEST: 1}] * 2
        assert all(one.fits == 0 for one in (await admission.check(manifest(4000))).offers)

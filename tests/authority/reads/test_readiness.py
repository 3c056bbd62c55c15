"""What regions could take now, what nobody has freed in time, and what is wanted of whom."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.db import pages
from durable.authority.quota.quotas import set_quota
from durable.authority.reads import wanted
from durable.authority.reads.readiness import OVERDUE_AFTER_SECONDS, RegionReadiness, read_readiness
from durable.authority.reads.wanted import read_last_changes, read_wanted
from durable.authority.workloads import rows
from durable.authority.workloads.rows import count_ended, list_workloads
from durable.model.ids import TenantId
from durable.model.resources import Resources
from durable.model.work.workload import WorkloadManifest
from tests.authority.world import (
    API,
    BILLING,
    EAST,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    labels,
    node,
    seconds,
)

MANIFEST = WorkloadManifest.model_validate(
    {"tenant": "risk", "name": "api", "spec": {"replicas": 4, "resources": {"cpu": 1}}}
)


@pytest.fixture
def world(ready_world: World) -> World:
    return ready_world


async def at(world: World, now: datetime) -> RegionReadiness:
    [url] = world.databases.urls
    [region] = await read_readiness(world.databases, url, now=now)
    return region


async def test_only_nodes_with_a_live_lease_of_this_epoch_are_live(world: World) -> None:
    await world.with_nodes(node("n2", labels=labels(driver="process")), lease_seconds=60)
    found = await at(world, seconds(30))
    assert (found.nodes, found.live, found.simulated_away) == (2, 2, 0)
    found = await at(world, seconds(90))
    assert (found.live, found.simulated_away) == (1, 0), "the other one has an agent of its own"
    found = await at(world, seconds(700))
    assert (found.live, found.simulated_away) == (0, 1)


async def test_a_reservation_is_overdue_only_well_after_its_expiry(world: World) -> None:
    await world.granted(world.reserve(lease_ttl_seconds=30))
    soon, late = 30 + OVERDUE_AFTER_SECONDS, 31 + OVERDUE_AFTER_SECONDS
    assert (await at(world, seconds(soon))).overdue == 0
    found = await at(world, seconds(late))
    assert (found.overdue, found.overdue_since) == (1, seconds(30))


async def test_what_was_bound_or_freed_is_never_overdue(world: World) -> None:
    await world.running(slot=0)
    token = (await world.granted(world.reserve(slot=1))).token
    await world.granted(world.release(token, slot=1))
    found = await at(world, seconds(3600))
    assert (found.overdue, found.overdue_since) == (0, None)


async def admit(world: World, share: dict[Any, tuple[int, ...]], request: str = "first") -> None:
    await admit_workload(
        world.databases, MANIFEST, request=request, actor=TEST, divide=lambda _: share
    )


async def test_slots_that_a_region_must_not_run_are_misplaced(world: World) -> None:
    # The world's east owns slots 0 to 7 of it.
    await admit(world, {EAST: (0, 1, 2), WEST: (3,)})
    [found] = await read_wanted(world.databases)
    assert found.slots_by_region == {EAST: 3, WEST: 1}
    assert found.misplaced == 5
    assert not found.deleting
    assert await read_wanted(world.databases, RISK) == [found]
    assert await read_wanted(world.databases, TenantId("nobody")) == []


async def test_the_last_change_is_by_the_databases_own_clock(world: World) -> None:
    await admit(world, {EAST: (0, 1, 2, 3)})
    changes = await read_last_changes(world.databases, [(str(RISK), str(API)), ("risk", "none")])
    assert 0 <= changes.seconds_since("risk", "api") < timedelta(hours=1).total_seconds()
    assert changes.seconds_since("risk", "none") == float("inf")


async def test_no_list_of_workloads_ends_before_its_last_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live ones, what is wanted, and tombstones: in pages of two, of tenants whose names meet."""
    for module in (rows, wanted, pages):
        monkeypatch.setattr(module, "ROWS_PER_PAGE", 2)
    names = [("billing", "a"), ("billing", "b"), *(("risk", name) for name in "abcd")]
    await set_quota(world.databases, BILLING, hard=Resources.of(1000), actor=TEST)
    await fill(world, names)
    assert [key_of(one) for one in await list_workloads(world.databases)] == names
    assert [key_of(one) for one in await read_wanted(world.databases)] == names
    assert [key_of(one) for one in await list_workloads(world.databases, RISK)] == names[2:]
    async with world.databases.at_global("durable_workload").begin() as connection:
        await connection.execute(text("UPDATE global.workloads SET deleted_at = clock_timestamp()"))
    assert await list_workloads(world.databases) == []
    ended = await list_workloads(world.databases, deleted=True)
    assert [key_of(one) for one in ended] == names
    assert await count_ended(world.databases) == 6
    assert await count_ended(world.databases, BILLING) == 2


async def fill(world: World, names: list[tuple[str, str]]) -> None:
    spec = MANIFEST.spec.model_dump_json()
    async with world.databases.at_global("durable_workload").begin() as connection:
        for tenant, name in names:
            await connection.execute(
                text("""
                    INSERT INTO global.workloads (tenant, workload, generation, spec)
                    VALUES (:tenant, :name, 1, CAST(:spec AS jsonb))
                """),
                {"tenant": tenant, "name": name, "spec": spec},
            )


def key_of(one: Any) -> tuple[str, str]:
    return (str(one.tenant), str(one.workload))

"""A simulation waits for the leases that a loss would wait for, and rests when it took long."""

from contextlib import nullcontext
from typing import Any

import pytest

from durable.authority.db.connection import Databases
from durable.authority.recovery.region_leases import renew
from durable.controllers.readiness import REST, ReadinessController, region_to_read
from durable.model.fleet.region_life import MARGIN
from durable.model.ids import RegionId
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.resources import Resources
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from durable.plan.readiness import Readiness
from durable.stack.postgres.server import EmbeddedPostgres
from tests.authority.world import API, EAST, RISK, TEST, WEST, World, admit_workload
from tests.frozen import frozen

TOOK = 20.0
# Longer than any node's.
LEASE_SECONDS = 3_600


async def admit_critical_workload(databases: Databases) -> None:
    spec = WorkloadSpec.model_validate(
        {"replicas": 1, "resources": Resources.of(1_000, 1_024), "priority": 900}
    )
    await admit_workload(
        databases,
        WorkloadManifest(tenant=RISK, name=API, spec=spec),
        request="apply",
        actor=TEST,
        divide=lambda _: {WEST: (0,)},
    )


async def test_after_a_long_simulation_it_rests_for_long(
    two_regions: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    simulated: list[float] = []

    async def simulate(*_: object) -> list[Any]:
        nonlocal now
        simulated.append(now)
        now += TOOK
        return []

    monkeypatch.setattr(Readiness, "outlooks", simulate)
    await admit_critical_workload(two_regions.databases)
    nobody: Any = None  # nothing is news to any workload
    controller = ReadinessController(two_regions.databases, nobody, lambda: now)
    await controller.once()
    rested = TOOK * (1 + REST)
    now = rested - 1
    await controller.once()
    now = rested
    await controller.once()
    assert simulated == [0, rested]


async def test_without_critical_work_nothing_is_simulated(
    two_regions: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def simulate(*_: object) -> list[Any]:
        raise AssertionError("it reads whole regions")

    monkeypatch.setattr(Readiness, "outlooks", simulate)
    nobody: Any = None
    assert await ReadinessController(two_regions.databases, nobody).once() == 0


@pytest.mark.parametrize(("answering", "read"), [((EAST, WEST), EAST), ((WEST,), WEST), ((), EAST)])
def test_the_news_that_a_region_is_lost_is_not_a_reason_to_read_that_region(
    answering: tuple[RegionId, ...], read: RegionId
) -> None:
    assert region_to_read((WEST, EAST), answering) == read


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_region_with_a_database_of_its_own_is_waited_out(
    apart: World, other_postgres: EmbeddedPostgres, hangs: bool
) -> None:
    databases = apart.databases
    await admit_critical_workload(databases)
    await renew(databases, WEST, "w", lease_seconds=LEASE_SECONDS)
    with frozen(other_postgres) if hangs else nullcontext():
        [outlook] = await Readiness(databases).outlooks([WEST], RecoveryPolicy(), apart.now)
    [api] = outlook.workloads
    assert api.estimated_seconds > LEASE_SECONDS + MARGIN.total_seconds()

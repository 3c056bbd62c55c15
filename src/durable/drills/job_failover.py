"""Loses a region in the middle of a job: the rest is done elsewhere, once, and stays there."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from durable.agent.simulated.faults import FaultKind
from durable.authority.reads.claims import read_claims
from durable.authority.workloads.rows import read_workload
from durable.drills.checks import becomes
from durable.drills.drill import Expectation, in_turn
from durable.drills.faults import BrokenNodes
from durable.drills.region_loss import MOVE_SECONDS, RegionLoss
from durable.drills.world import World, small_workload
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.work.phases import WorkloadPhase
from durable.signals.status import WorkloadStatus

WORKLOAD = WorkloadName("job-drill")
SLOTS = 12
WITHIN_SECONDS = 120.0
WHY = "drill: job failover"


async def run(world: World) -> AsyncIterator[Expectation]:
    """In the region that is lost, the job hangs; everywhere else it is done by then."""
    region, tenant = await world.busiest_region(), (await world.subject()).tenant
    async with world.removed_afterwards(tenant, WORKLOAD, reason=WHY):
        with BrokenNodes(world.directory) as nodes:
            nodes.lose(
                node=f"{region}-*", workload=f"{tenant}/{WORKLOAD}", kind=FaultKind.NEVER_READY
            )
            loss = RegionLoss(world, nodes, region)
            before = _is_begun(world, tenant, region)
            parts = (before, loss.lose(), _is_done(world, tenant), loss.fail_back())
            async for expectation in in_turn(*parts):
                yield expectation
            yield await _stays(world, tenant, region)


async def _is_begun(world: World, tenant: TenantId, region: RegionId) -> AsyncIterator[Expectation]:
    await world.durable.apply(_job(tenant), reason=WHY)
    share = (await _share(world, tenant)).get(region, ())
    yield await becomes(
        f"the job is done but for what {region} has of it",
        lambda: world.durable.status(tenant, WORKLOAD),
        lambda status: 0 < len(share) < SLOTS and status.completed == SLOTS - len(share),
        WITHIN_SECONDS,
        _counts,
    )


async def _is_done(world: World, tenant: TenantId) -> AsyncIterator[Expectation]:
    yield await becomes(
        "the job is complete: each of its slots is done, and counted once",
        lambda: world.durable.status(tenant, WORKLOAD),
        lambda now: now.phase is WorkloadPhase.COMPLETE and now.completed == SLOTS,
        MOVE_SECONDS,
        _counts,
    )


async def _stays(world: World, tenant: TenantId, region: RegionId) -> Expectation:
    """Work of a job does not go back: it would be done twice."""

    async def read() -> int:
        claims = await read_claims(world.databases, region)
        return sum((one.tenant, one.workload) == (tenant, WORKLOAD) for one in claims)

    return await becomes(
        f"nothing of the job runs in {region} again", read, lambda count: not count, WITHIN_SECONDS
    )


async def _share(world: World, tenant: TenantId) -> Mapping[RegionId, tuple[int, ...]]:
    found = await read_workload(world.databases, tenant, WORKLOAD)
    return {} if found is None else found.share


def _job(tenant: TenantId) -> dict[str, Any]:
    manifest = small_workload(tenant, WORKLOAD, replicas=SLOTS)
    manifest["spec"] |= {"kind": "job"}
    return manifest


def _counts(status: WorkloadStatus) -> str:
    return f"{status.phase}, {status.completed} of {status.wanted} are done"

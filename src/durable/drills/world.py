"""The stack that a drill is about, and how progress is shown to people who watch."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from durable.authority.cache.region_read import read_whole
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.census import take_census
from durable.authority.workloads.rows import list_workloads
from durable.client import Durable, WaitTimeoutError
from durable.model.ids import RegionId, TenantId, WorkloadName, ZoneId
from durable.model.recovery.recoveries import RecoveryProgress
from durable.model.refusal import RefusedError
from durable.model.states import BindingState
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.state_dir.record import StackError

T = TypeVar("T")

POLL_SECONDS = 0.25
AGENTS_SECONDS = 30.0
GONE_SECONDS = 60.0


def _silent(_: object) -> None:
    pass


@dataclass(frozen=True)
class World:
    """A running stack: a connection to it, and its state directory."""

    durable: Durable
    directory: Path
    # A sentence about what happens next, and each step of a recovery.
    say: Callable[[str], None] = _silent
    follow: Callable[[RecoveryProgress], None] = _silent

    @property
    def databases(self) -> Databases:
        return self.durable.databases

    async def subject(self) -> AdmittedWorkload:
        """The most important service that runs; refuses a stack where none does."""
        service = most_important(await list_workloads(self.databases))
        if service is None:
            raise StackError(
                "No service runs in this stack, so there is nothing to rehearse with: apply one, "
                "such as those of examples/workloads, or omit --state-dir to have a stack for the "
                "drill."
            )
        return service

    async def busiest_region(self) -> RegionId:
        """Where its loss hurts the most important service most."""
        return busiest_region(await self.subject())

    async def in_each_region(
        self, read: Callable[[Databases, RegionId], Awaitable[T]]
    ) -> Mapping[RegionId, T]:
        regions = await list_regions(self.databases)
        answers = await ask_regions(regions, lambda region: read(self.databases, region))
        return answers.by_region

    async def replicas_by_zone(
        self, workload: AdmittedWorkload
    ) -> Counter[tuple[RegionId, ZoneId]]:
        counts: Counter[tuple[RegionId, ZoneId]] = Counter()
        for share in (await self.durable.explain(workload.tenant, workload.workload)).regions:
            nodes = (await read_whole(self.databases, share.region)).nodes
            zones = {node.node: ZoneId(node.zone) for node in nodes}
            for slot in share.observed:
                if slot.state is not BindingState.RELEASED and slot.node in zones:
                    counts[share.region, zones[slot.node]] += 1
        return counts

    async def serves(self, tenant: str, workload: str) -> bool:
        """Whether all its replicas do."""
        status = await self.durable.status(tenant, workload)
        return status.serving >= status.wanted

    @asynccontextmanager
    async def removed_afterwards(
        self, tenant: TenantId, workload: str, *, reason: str
    ) -> AsyncGenerator[None]:
        """However a drill ends, nothing is left of the workload that it applied."""
        try:
            yield
        finally:
            with suppress(RefusedError, WaitTimeoutError):  # what is left is said
                await self.durable.delete(tenant, workload, reason=reason)
                await self.durable.wait(
                    tenant, workload, until="deleted", within_seconds=GONE_SECONDS
                )


def most_important(workloads: Iterable[AdmittedWorkload]) -> AdmittedWorkload | None:
    """Of services that have a share somewhere; of equal ones the first by name."""
    services = [
        workload
        for workload in workloads
        if workload.spec.kind is WorkloadKind.SERVICE and any(workload.share.values())
    ]
    return min(
        services, key=lambda each: (-each.spec.priority, each.tenant, each.workload), default=None
    )


def busiest_region(workload: AdmittedWorkload) -> RegionId:
    """Where most of its replicas are; of equal ones the first by name."""
    return max(sorted(workload.share), key=lambda region: len(workload.share[region]))


def small_workload(
    tenant: TenantId,
    name: str,
    *,
    replicas: int = 1,
    cpu_millis: int = 100,
    regions: Iterable[RegionId] = (),
) -> dict[str, Any]:
    """The manifest of work that only a drill runs."""
    return {
        "tenant": tenant,
        "name": WorkloadName(name),
        "spec": {
            "replicas": replicas,
            "resources": {"cpu": f"{cpu_millis}m", "memory": "64Mi"},
            "requirements": {"regions": sorted(regions)},
        },
    }


def new_request() -> str:
    return f"drill-{uuid.uuid4()}"


async def wait_for_agents(databases: Databases) -> str:
    """How many nodes live: nothing is placed on one before an agent has taken its lease."""
    nodes = live = 0
    for _ in range(int(AGENTS_SECONDS / POLL_SECONDS)):
        pools = [pool for each in (await take_census(databases)).regions for pool in each.pools]
        nodes, live = sum(pool.nodes for pool in pools), sum(pool.live for pool in pools)
        if live >= nodes:
            break
        await asyncio.sleep(POLL_SECONDS)
    return f"{live} of {nodes} nodes live"

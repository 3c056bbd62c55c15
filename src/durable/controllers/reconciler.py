"""The reconciler: all that the authority knows, from workloads to recoveries, has a workflow.

Level-triggered: each round compares the authority's rows with the workflows that Temporal says are
running, and starts what is missing. A workflow that is started finds in the authority all that it
needs, and one that was started in vain finds nothing to do and ends. A run that took the place of
another (a reset, a termination that somebody repaired by hand) is asked to look at the authority.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from temporalio.client import Client
from temporalio.service import RPCError

from durable.activities.placement_workflows import PlacementWorkflows
from durable.activities.steps import PlacementKey
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import Missing, ask_regions
from durable.authority.drains.rows import read_drains
from durable.authority.fleet.regions import list_regions
from durable.authority.overrides.reads import obeyed_overrides
from durable.authority.overrides.rows import read_overrides
from durable.authority.policies.rows import unfinished_policies
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.slots.shares import open_shares
from durable.authority.workloads.rows import live_workloads
from durable.controllers.sending import SignalSender
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import OverrideId, PolicyRevision, RegionId, TenantId, WorkloadName
from durable.model.recovery.recoveries import RecoveryKey
from durable.signals.names import (
    DRAIN,
    OVERRIDE,
    POLICY,
    RECOVERY,
    RUNNING_QUERY,
    WORKLOAD,
    drain_id,
    override_id,
    placement_id,
    policy_id,
    recovery_id,
    workload_id,
)
from durable.signals.payloads import Look
from durable.signals.starting import (
    drain_options,
    override_options,
    policy_options,
    recovery_options,
    workload_options,
)

log = logging.getLogger(__name__)

POLL_SECONDS = 15.0
# A round over many workflows takes long; the next one starts after five times as long.
PAUSE_FACTOR = 5.0
STARTS_AT_ONCE = 8
LISTED_AT_ONCE = 1_000


@dataclass(frozen=True)
class Unmanaged:
    """What the authority knows and no workflow looks after."""

    workloads: Mapping[str, tuple[TenantId, WorkloadName]]
    placements: Mapping[str, PlacementKey]
    drains: Mapping[str, NodesTarget] = field(default_factory=dict[str, NodesTarget])
    overrides: Mapping[str, OverrideId] = field(default_factory=dict[str, OverrideId])
    policies: Mapping[str, PolicyRevision] = field(default_factory=dict[str, PolicyRevision])
    recoveries: Mapping[str, RecoveryKey] = field(default_factory=dict[str, RecoveryKey])
    # Regions that did not answer: what they want is not known.
    missing: Missing = field(default_factory=dict[RegionId, str])

    @property
    def ids(self) -> list[str]:
        return [
            *self.workloads,
            *self.placements,
            *self.drains,
            *self.overrides,
            *self.policies,
            *self.recoveries,
        ]

    def only(self, ids: Iterable[str]) -> "Unmanaged":
        chosen = set(ids)
        return Unmanaged(
            {name: one for name, one in self.workloads.items() if name in chosen},
            {name: one for name, one in self.placements.items() if name in chosen},
            {name: one for name, one in self.drains.items() if name in chosen},
            {name: one for name, one in self.overrides.items() if name in chosen},
            {name: one for name, one in self.policies.items() if name in chosen},
            {name: one for name, one in self.recoveries.items() if name in chosen},
            self.missing,
        )


class Reconciler:
    """What must run, compared with what does."""

    def __init__(self, client: Client, databases: Databases) -> None:
        self._client, self._databases = client, databases
        self._placements = PlacementWorkflows(client)
        self._sender = SignalSender(client)
        # Missing in the last round: Temporal lists what runs with some delay.
        self._suspects: set[str] = set()
        self._runs: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self.once()
            except (AuthorityError, RPCError) as error:
                log.warning("could not compare workflows with the authority: %s", error)
            took = time.monotonic() - began
            await asyncio.sleep(max(POLL_SECONDS, PAUSE_FACTOR * took))

    async def once(self) -> Unmanaged:
        """Starts what was missing in two rounds, and has new runs look; answers what it started."""
        running = await self.running()
        unmanaged = await self.unmanaged(running)
        confirmed = unmanaged.only(self._suspects)
        self._suspects = set(unmanaged.ids)
        await self._have_replacements_look(running)
        await self.start(confirmed)
        return confirmed

    async def running(self) -> dict[str, str]:
        """The run of every workflow that runs, by the workflow's id."""
        found = self._client.list_workflows(RUNNING_QUERY, page_size=LISTED_AT_ONCE)
        return {one.id: one.run_id async for one in found}

    async def unmanaged(self, running: Mapping[str, str]) -> Unmanaged:
        """What the authority wants to be looked after, and is not among what runs."""
        workloads = {workload_id(*name): name for name in await live_workloads(self._databases)}
        regions = await list_regions(self._databases)
        shares = await ask_regions(regions, lambda region: open_shares(self._databases, region))
        placements = {
            placement_id(tenant, workload, generation, region): PlacementKey(
                region=region, tenant=tenant, workload=workload, generation=generation
            )
            for region, found in shares.by_region.items()
            for tenant, workload, generation in found
        }
        drains = await ask_regions(regions, lambda region: read_drains(self._databases, region))
        policies = await unfinished_policies(self._databases)
        recoveries = {
            recovery_id(one.region, one.epoch): one.key
            for one in await list_recoveries(self._databases)
        }
        targets = [drain.target for found in drains.by_region.values() for drain in found]
        overrides = {override_id(one.id): one.id for one in await read_overrides(self._databases)}
        # One that has ended and that a region still obeys has something left to do.
        copies = await ask_regions(regions, lambda one: obeyed_overrides(self._databases, one))
        overrides |= {override_id(one): one for found in copies.by_region.values() for one in found}
        return Unmanaged(
            {name: one for name, one in workloads.items() if name not in running},
            {name: one for name, one in placements.items() if name not in running},
            {drain_id(one): one for one in targets if drain_id(one) not in running},
            {name: one for name, one in overrides.items() if name not in running},
            {policy_id(one): one for one in policies if policy_id(one) not in running},
            {name: one for name, one in recoveries.items() if name not in running},
            {**drains.missing, **shares.missing},
        )

    async def start(self, unmanaged: Unmanaged) -> None:
        """Starts what nobody looks after; what runs after all is left as it is."""
        for name in unmanaged.ids:
            log.warning("%s does not run, and is started from what the authority knows", name)
        await _few_at_once([self._start_workload(*one) for one in unmanaged.workloads.values()])
        await _few_at_once([self._placements.start(one) for one in unmanaged.placements.values()])
        await _few_at_once([self._start_drain(one) for one in unmanaged.drains.values()])
        await _few_at_once([self._start_override(one) for one in unmanaged.overrides.values()])
        await _few_at_once([self._start_policy(one) for one in unmanaged.policies.values()])
        await _few_at_once([self._start_recovery(one) for one in unmanaged.recoveries.values()])

    async def _start_workload(self, tenant: TenantId, workload: WorkloadName) -> None:
        start = {"tenant": tenant, "workload": workload, "recalls": True}
        options = workload_options(tenant, workload)
        await self._client.start_workflow(WORKLOAD, start, **options)  # pyright: ignore[reportUnknownMemberType]

    async def _start_drain(self, target: NodesTarget) -> None:
        start = {"target": target}
        await self._client.start_workflow(DRAIN, start, **drain_options(target))  # pyright: ignore[reportUnknownMemberType]

    async def _start_override(self, override: OverrideId) -> None:
        await self._client.start_workflow(OVERRIDE, **override_options(override))  # pyright: ignore[reportUnknownMemberType]

    async def _start_policy(self, revision: PolicyRevision) -> None:
        start = {"revision": revision}
        await self._client.start_workflow(POLICY, start, **policy_options(revision))  # pyright: ignore[reportUnknownMemberType]

    async def _start_recovery(self, key: RecoveryKey) -> None:
        await self._client.start_workflow(RECOVERY, **recovery_options(key))  # pyright: ignore[reportUnknownMemberType]

    async def _have_replacements_look(self, running: Mapping[str, str]) -> None:
        replaced = [name for name, run in running.items() if self._runs.get(name, run) != run]
        hint = Look(why="this run replaced another")
        sent = await self._sender.send_all((name, "look", hint) for name in replaced)
        undelivered = {name for name, done in zip(replaced, sent, strict=True) if not done}
        self._runs = {
            name: self._runs[name] if name in undelivered else run for name, run in running.items()
        }


async def _few_at_once(calls: Sequence[Awaitable[object]]) -> None:
    room = asyncio.Semaphore(STARTS_AT_ONCE)

    async def call(one: Awaitable[object]) -> None:
        async with room:
            await one

    done = await asyncio.gather(*map(call, calls), return_exceptions=True)
    for failure in done:
        if failure is not None:
            raise failure

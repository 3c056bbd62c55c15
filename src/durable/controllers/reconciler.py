"""The reconciler: every workload, share and drain that the authority knows has a workflow.

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
from durable.authority.slots.shares import open_shares
from durable.authority.workloads.rows import live_workloads
from durable.controllers.sending import SignalSender
from durable.model.drain import NodesTarget
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.signals.names import (
    DRAIN,
    RUNNING_QUERY,
    WORKLOAD,
    drain_id,
    placement_id,
    workload_id,
)
from durable.signals.payloads import Look
from durable.signals.starting import drain_options, workload_options

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
    # Regions that did not answer: what they want is not known.
    missing: Missing = field(default_factory=dict[RegionId, str])

    @property
    def ids(self) -> list[str]:
        return [*self.workloads, *self.placements, *self.drains]

    def only(self, ids: Iterable[str]) -> "Unmanaged":
        chosen = set(ids)
        return Unmanaged(
            {name: one for name, one in self.workloads.items() if name in chosen},
            {name: one for name, one in self.placements.items() if name in chosen},
            {name: one for name, one in self.drains.items() if name in chosen},
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
        targets = [drain.target for found in drains.by_region.values() for drain in found]
        return Unmanaged(
            {name: one for name, one in workloads.items() if name not in running},
            {name: one for name, one in placements.items() if name not in running},
            {drain_id(one): one for one in targets if drain_id(one) not in running},
            {**drains.missing, **shares.missing},
        )

    async def start(self, unmanaged: Unmanaged) -> None:
        """Starts what nobody looks after; what runs after all is left as it is."""
        for name in unmanaged.ids:
            log.warning("%s does not run, and is started from what the authority knows", name)
        await _few_at_once([self._start_workload(*one) for one in unmanaged.workloads.values()])
        await _few_at_once([self._placements.start(one) for one in unmanaged.placements.values()])
        await _few_at_once([self._start_drain(one) for one in unmanaged.drains.values()])

    async def _start_workload(self, tenant: TenantId, workload: WorkloadName) -> None:
        start = {"tenant": tenant, "workload": workload, "recalls": True}
        options = workload_options(tenant, workload)
        await self._client.start_workflow(WORKLOAD, start, **options)  # pyright: ignore[reportUnknownMemberType]

    async def _start_drain(self, target: NodesTarget) -> None:
        start = {"target": target}
        await self._client.start_workflow(DRAIN, start, **drain_options(target))  # pyright: ignore[reportUnknownMemberType]

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

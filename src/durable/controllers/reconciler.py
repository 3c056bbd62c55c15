"""The reconciler: all that the authority knows, from workloads to recoveries, has a workflow.

Level-triggered: each round compares the authority's rows with the workflows that Temporal says are
running, and starts what is missing. A workflow that is started finds in the authority all that it
needs, and one that was started in vain finds nothing to do and ends. A run that took the place of
another (a reset, a termination that was repaired by hand) is asked to look at the authority. So is
what may remember more than the rows know, because a database or Temporal was restored.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.drains.rows import read_drains
from durable.authority.fleet.regions import list_regions
from durable.authority.overrides.reads import obeyed_overrides
from durable.authority.overrides.rows import read_overrides
from durable.authority.policies.rows import unfinished_policies
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.restores.found import read_restores
from durable.authority.slots.shares import open_shares
from durable.authority.workloads.rows import live_workloads
from durable.model.ids import RegionId
from durable.signals.impostors import ensure_runs, why_not_ours
from durable.signals.names import (
    DRAIN,
    OVERRIDE,
    PLACEMENT,
    POLICY,
    RECOVERY,
    RUNNING_QUERY,
    WORKLOAD,
    WORKLOAD_IDS,
    workload_id,
)
from durable.signals.payloads import Look
from durable.signals.sending import SignalSender
from durable.signals.starting import (
    drain_options,
    override_options,
    placement_options,
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
class WorkflowStart:
    """A workflow that the authority wants to run, and how it is started."""

    kind: str
    options: Mapping[str, Any]
    input: Any = None

    @property
    def id(self) -> str:
        return self.options["id"]


@dataclass(frozen=True)
class UnmanagedWorkflows:
    """What the authority knows and no workflow looks after, in the order in which it is started."""

    starts: Mapping[str, WorkflowStart] = field(default_factory=dict[str, WorkflowStart])
    # Regions that did not answer: what they want is not known.
    unreachable: UnreachableRegions = field(default_factory=dict[RegionId, str])

    @property
    def ids(self) -> list[str]:
        return list(self.starts)

    def only(self, ids: Iterable[str]) -> "UnmanagedWorkflows":
        chosen = set(ids)
        starts = {name: start for name, start in self.starts.items() if name in chosen}
        return UnmanagedWorkflows(starts, self.unreachable)


# ── one reader for each kind of workflow: what must run of it ───────────────────────────────────

Wanted = tuple[Iterable[WorkflowStart], UnreachableRegions]


async def _recoveries(databases: Databases, regions: Sequence[RegionId]) -> Wanted:
    keys = [recovery.key for recovery in await list_recoveries(databases)]
    return [WorkflowStart(RECOVERY, recovery_options(key)) for key in keys], {}


async def _workloads(databases: Databases, regions: Sequence[RegionId]) -> Wanted:
    return [
        WorkflowStart(
            WORKLOAD,
            workload_options(tenant, workload),
            {"tenant": tenant, "workload": workload, "recalls": True},
        )
        for tenant, workload in await live_workloads(databases)
    ], {}


async def _placements(databases: Databases, regions: Sequence[RegionId]) -> Wanted:
    shares = await ask_regions(regions, lambda region: open_shares(databases, region))
    return [
        WorkflowStart(
            PLACEMENT,
            placement_options(tenant, workload, generation, region),
            {
                "key": {
                    "region": region,
                    "tenant": tenant,
                    "workload": workload,
                    "generation": generation,
                }
            },
        )
        for region, rows in shares.by_region.items()
        for tenant, workload, generation in rows
    ], shares.unreachable


async def _drains(databases: Databases, regions: Sequence[RegionId]) -> Wanted:
    drains = await ask_regions(regions, lambda region: read_drains(databases, region))
    return [
        WorkflowStart(DRAIN, drain_options(drain.target), {"target": drain.target})
        for rows in drains.by_region.values()
        for drain in rows
    ], drains.unreachable


async def _overrides(databases: Databases, regions: Sequence[RegionId]) -> Wanted:
    ids = {override.id for override in await read_overrides(databases)}
    # One that has ended and that a region still obeys has something left to do.
    copies = await ask_regions(regions, lambda region: obeyed_overrides(databases, region))
    ids.update(id for rows in copies.by_region.values() for id in rows)
    return [WorkflowStart(OVERRIDE, override_options(id)) for id in sorted(ids)], copies.unreachable


async def _policies(databases: Databases, regions: Sequence[RegionId]) -> Wanted:
    return [
        WorkflowStart(POLICY, policy_options(revision), {"revision": revision})
        for revision in await unfinished_policies(databases)
    ], {}


# Recoveries are started first: what they move does not wait for anything else.
KINDS: Sequence[Callable[[Databases, Sequence[RegionId]], Awaitable[Wanted]]] = (
    _recoveries, _workloads, _placements, _drains, _overrides, _policies,
)  # fmt: skip


class Reconciler:
    """What must run, compared with what does."""

    def __init__(self, client: Client, databases: Databases) -> None:
        self._client, self._databases = client, databases
        self._sender = SignalSender(client)
        # Missing in the last round: Temporal lists what runs with some delay.
        self._suspects: set[str] = set()
        self._runs: dict[str, str] = {}
        # The last restores that everything has looked since, and workloads that run in vain.
        self._restores: frozenset[int] | None = None
        self._unwanted: frozenset[str] = frozenset()

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self.once()
            except (AuthorityError, RPCError) as error:
                log.warning("could not compare workflows with the authority: %s", error)
            took = time.monotonic() - began
            await asyncio.sleep(max(POLL_SECONDS, PAUSE_FACTOR * took))

    async def once(self) -> UnmanagedWorkflows:
        """Starts what was missing in two rounds, and has new runs look; answers what it started."""
        running = await self.running()
        unmanaged = await self.unmanaged(running)
        confirmed = unmanaged.only(self._suspects)
        self._suspects = set(unmanaged.ids)
        await self._have_replacements_look(running)
        await self._have_the_restored_look(running)
        await self.start(confirmed)
        return confirmed

    async def running(self) -> dict[str, str]:
        """The run of every workflow of ours that runs, by the workflow's id."""
        found = self._client.list_workflows(RUNNING_QUERY, page_size=LISTED_AT_ONCE)
        return {one.id: one.run_id async for one in found if why_not_ours(one) is None}

    async def unmanaged(self, running: Mapping[str, str]) -> UnmanagedWorkflows:
        """What the authority wants to be looked after, and is not among what runs."""
        regions = await list_regions(self._databases)
        starts: dict[str, WorkflowStart] = {}
        unreachable: dict[RegionId, str] = {}
        for read in KINDS:
            wanted, unanswered = await read(self._databases, regions)
            starts |= {start.id: start for start in wanted if start.id not in running}
            unreachable |= unanswered
        return UnmanagedWorkflows(starts, unreachable)

    async def start(self, unmanaged: UnmanagedWorkflows) -> None:
        """Starts what nothing looks after, in place of what only has its id.

        What runs after all is left as it is. A start that fails stops no other, and is raised when
        all were tried.
        """
        for name in unmanaged.ids:
            log.warning("%s does not run, and is started from what the authority knows", name)
        room = asyncio.Semaphore(STARTS_AT_ONCE)

        async def start(one: WorkflowStart) -> None:
            async with room:
                await ensure_runs(self._client, one.kind, one.options, one.input)

        # They take the semaphore in the order in which they are named.
        done = await asyncio.gather(*map(start, unmanaged.starts.values()), return_exceptions=True)
        for failure in filter(None, done):
            raise failure

    async def _have_replacements_look(self, running: Mapping[str, str]) -> None:
        replaced = [name for name, run in running.items() if self._runs.get(name, run) != run]
        hint = Look(why="this run replaced another")
        sent = await self._sender.send_all((name, "look", hint) for name in replaced)
        undelivered = {name for name, done in zip(replaced, sent, strict=True) if not done}
        self._runs = {
            name: self._runs[name] if name in undelivered else run for name, run in running.items()
        }

    async def _have_the_restored_look(self, running: Mapping[str, str]) -> None:
        """What the rows do not know is forgotten, whichever of the two is older than the other."""
        restores = await read_restores(self._databases)
        new = restores.recent if self._restores is None else restores.epochs - self._restores
        live = {workload_id(*name) for name in await live_workloads(self._databases)}
        ended = {name for name in running if name.startswith(WORKLOAD_IDS)} - live
        # In two rounds: one that was only just applied has a workflow before it has a row.
        names = list(running) if new else sorted(ended & self._unwanted)
        hint = Look(why="a database or Temporal was restored")
        sent = await self._sender.send_all((name, "look", hint) for name in names)
        self._unwanted = frozenset(ended)
        if all(sent):
            self._restores = restores.epochs

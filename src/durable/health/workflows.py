"""What the authority wants against what Temporal runs: unmanaged, missing and failing workflows."""

from collections.abc import Iterable, Mapping, Sequence

from temporalio.client import Client, WorkflowExecutionStatus

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.wanted import (
    LastChanges,
    WantedWorkload,
    read_last_changes,
    read_wanted,
)
from durable.authority.slots.shares import open_shares
from durable.health.findings import FindingCode as Code
from durable.health.findings import HealthFinding, finding
from durable.model.ids import TenantId, WorkloadName
from durable.model.work.workload import WorkloadKind
from durable.resources.resource import WorkflowTrouble
from durable.signals.names import placement_id, workload_id
from durable.temporal.running import list_running, statuses_of

# A change needs a moment until its placements run.
OPENING_SECONDS = 60.0
# The visibility store may be late, so that what it lacks is looked at one by one, up to this many.
MAX_CONFIRMED = 100

Status = WorkflowExecutionStatus

# By workload: the placements that its regions have opened.
OpenPlacements = Mapping[tuple[TenantId, WorkloadName], Sequence[str]]


class WorkflowHealth(WorkflowTrouble):
    """What is wrong with workflows, of how many workloads."""

    wanted: int

    @property
    def findings(self) -> list[HealthFinding]:
        found: list[HealthFinding] = []
        if self.unmanaged:
            # Without any, Temporal has lost everything.
            is_all = len(self.unmanaged) == self.wanted
            code = Code.WORKFLOWS_MISSING if is_all else Code.WORKLOADS_UNMANAGED
            found.append(finding(code, *self.unmanaged))
        if self.missing:
            found.append(finding(Code.PLACEMENTS_MISSING, *self.missing))
        if self.failing:
            failing = sorted(self.failing)
            found.append(finding(Code.WORKFLOWS_FAILING, *failing, causes=self.failing))
        return found


async def read_workflow_health(
    client: Client, databases: Databases, tenant: TenantId | None = None
) -> WorkflowHealth:
    """Compares the two; every suspect is looked at again before it is named."""
    # The authority first: a workload's workflow exists before its row does.
    wanted = await read_wanted(databases, tenant)
    opened = await _open_placements(databases, wanted)
    running = await list_running(client, tenant)
    suspects = [
        id
        for one in wanted
        for id in (workload_of(one), *placements_of(one, opened))
        if id not in running.ids
    ]
    if not suspects:
        return WorkflowHealth(
            wanted=len(wanted), unmanaged=(), missing=(), opening=(), failing=running.failing
        )
    statuses = await statuses_of(client, suspects[:MAX_CONFIRMED])
    # What was deleted or changed meanwhile is wanted no longer.
    wanted = await read_wanted(databases, tenant)
    opened = await _open_placements(databases, wanted)
    names = sorted(
        {(one.tenant, one.workload) for one in wanted if _is_suspect(one, opened, suspects)}
    )
    changes = await read_last_changes(databases, names[:MAX_CONFIRMED]) if names else None
    return judge(wanted, opened, suspects, statuses, changes, running.failing)


def judge(
    wanted: Sequence[WantedWorkload],
    opened: OpenPlacements,
    suspects: Iterable[str],
    statuses: Mapping[str, Status | None],
    changes: LastChanges | None,
    failing: Mapping[str, str],
) -> WorkflowHealth:
    """Pure: which of the suspects are missing; those not looked at are taken to be."""
    gone = {id for id in suspects if statuses.get(id) is not Status.RUNNING}
    unmanaged: list[str] = []
    missing: list[str] = []
    opening: list[str] = []
    for one in wanted:
        if workload_of(one) in gone:
            # Its placements are its own business once it is back.
            unmanaged.append(f"{one.tenant}/{one.workload}")
            continue
        ended = {Status.COMPLETED} if one.kind is WorkloadKind.JOB else set[Status]()
        absent = [
            id for id in placements_of(one, opened) if id in gone and statuses.get(id) not in ended
        ]
        is_fresh = (
            changes is not None
            and changes.seconds_since(one.tenant, one.workload) < OPENING_SECONDS
        )
        (opening if is_fresh else missing).extend(absent)
    return WorkflowHealth(
        wanted=len(wanted),
        unmanaged=tuple(unmanaged),
        missing=tuple(missing),
        opening=tuple(opening),
        failing=failing,
    )


def workload_of(one: WantedWorkload) -> str:
    return workload_id(one.tenant, one.workload)


def placements_of(one: WantedWorkload, opened: OpenPlacements) -> Sequence[str]:
    """The placements that must run; of one that rolls, its regions say which they opened."""
    if one.deleting:
        return []
    if one.is_rolling:
        return opened.get((one.tenant, one.workload), ())
    return [
        placement_id(one.tenant, one.workload, one.generation, region)
        for region in one.slots_by_region
    ]


async def _open_placements(
    databases: Databases, wanted: Sequence[WantedWorkload]
) -> OpenPlacements:
    """Of the workloads that roll; a region that does not answer is reported elsewhere."""
    rolling = {(one.tenant, one.workload) for one in wanted if one.is_rolling}
    if not rolling:
        return {}
    regions = await list_regions(databases)
    shares = await ask_regions(regions, lambda region: open_shares(databases, region))
    opened: dict[tuple[TenantId, WorkloadName], list[str]] = {name: [] for name in rolling}
    for region, found in shares.by_region.items():
        for tenant, workload, generation in found:
            if (tenant, workload) in rolling:
                id = placement_id(tenant, workload, generation, region)
                opened[tenant, workload].append(id)
    return opened


def _is_suspect(one: WantedWorkload, opened: OpenPlacements, suspects: Iterable[str]) -> bool:
    return any(id in suspects for id in (workload_of(one), *placements_of(one, opened)))

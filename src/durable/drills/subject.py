"""What a drill is about: the most important service that runs, where its loss hurts most."""

from collections.abc import Iterable

from durable.authority.workloads.rows import list_workloads
from durable.client import Durable
from durable.model.ids import RegionId
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.state_dir.record import StackError


async def find_subject(durable: Durable) -> AdmittedWorkload:
    """The service with the highest priority; refuses a stack where none runs."""
    found = most_important(await list_workloads(durable.databases))
    if found is None:
        raise StackError(
            "No service runs in this stack, so there is nothing to rehearse with: apply one, such "
            "as those of examples/workloads, or omit --state-dir to have a stack for the drill."
        )
    return found


def most_important(workloads: Iterable[AdmittedWorkload]) -> AdmittedWorkload | None:
    """Of services that have a share somewhere; of equal ones the first by name."""
    services = [
        one
        for one in workloads
        if one.spec.kind is WorkloadKind.SERVICE and any(one.share.values())
    ]
    ordered = sorted(services, key=lambda one: (-one.spec.priority, one.tenant, one.workload))
    return ordered[0] if ordered else None


def busiest_region(workload: AdmittedWorkload) -> RegionId:
    """Where most of its replicas are; of equal ones the first by name."""
    return max(sorted(workload.share), key=lambda region: len(workload.share[region]))

"""What is wrong with the workflow of a listed workload or placement, in one cell of its row."""

from typing import TYPE_CHECKING

from durable.model.ids import RegionId
from durable.model.work.workload import AdmittedWorkload
from durable.signals.names import placement_id, workload_id

if TYPE_CHECKING:
    from durable.stack.health.workflows import WorkflowHealth

STUCK = "see runbooks/workflow-stuck.md"


def workload_problem(one: AdmittedWorkload, health: "WorkflowHealth | None") -> str | None:
    """Of the workload itself, else of its placements."""
    if health is None or one.deleted:
        return None
    if f"{one.tenant}/{one.workload}" in health.unmanaged:
        return "no workflow manages it: the global worker starts one, or run `durable reconcile`"
    if cause := health.failing.get(workload_id(one.tenant, one.workload)):
        return f"its workflow fails its tasks ({cause}): {STUCK}"
    found = [
        f"{region}: {problem}"
        for region in sorted(one.share)
        if (problem := placement_problem(_placement(one, region), health))
    ]
    return "; ".join(found) or None


def placement_problem(id: str, health: "WorkflowHealth | None") -> str | None:
    if health is None:
        return None
    if cause := health.failing.get(id):
        return f"its workflow fails its tasks ({cause}): {STUCK}"
    if id in health.missing:
        return "no placement runs: the global worker starts one, or run `durable reconcile`"
    if id in health.opening:
        return "no placement runs yet: its workload is about to start one"
    return None


def _placement(one: AdmittedWorkload, region: RegionId) -> str:
    return placement_id(one.tenant, one.workload, one.generation, region)

"""What things are called in Temporal: workflow ids, task queues and types that others depend on."""

from datetime import timedelta

from durable.model.drain import NodesKind, NodesTarget
from durable.model.ids import ActorId, Generation, RegionId, TenantId, WorkloadName

GLOBAL_QUEUE = "durable-global"
WORKLOAD = "Workload"
PLACEMENT = "Placement"
DRAIN = "Drain"
# What Temporal is asked for the workflows of ours that run.
RUNNING_QUERY = (
    f"ExecutionStatus = 'Running' AND WorkflowType IN ('{WORKLOAD}', '{PLACEMENT}', '{DRAIN}')"
)
# The type of the refusal of a run that is about to end: the next run takes the same request.
ENDING = "ending"
# Who acts for a workload.
WORKLOAD_CONTROLLER = ActorId("controller:workload")
# How long a worker may be silent, or replay a history, before another takes its workflow task.
WORKFLOW_TASK_TIMEOUT = timedelta(seconds=10)


def regional_queue(region: RegionId) -> str:
    return f"durable-region-{region}"


def workload_id(tenant: TenantId, workload: WorkloadName) -> str:
    return f"workload/{tenant}/{workload}"


def placement_id(
    tenant: TenantId, workload: WorkloadName, generation: Generation, region: RegionId
) -> str:
    return f"placement/{tenant}/{workload}/g{generation}/{region}"


def region_of(placement: str) -> RegionId:
    """The region in a placement's id."""
    return RegionId(placement.rpartition("/")[2])


def drain_id(target: NodesTarget) -> str:
    """A node's name is its own only in its region, so the region goes first."""
    kind = "" if target.kind is NodesKind.NODE else f"{target.kind}/"
    return f"drain/{target.region}/{kind}{target.name}"

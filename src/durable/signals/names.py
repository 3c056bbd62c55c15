"""What things are called in Temporal: workflow ids, task queues and types that others depend on."""

from datetime import timedelta

from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import (
    ActorId,
    Generation,
    OverrideId,
    PolicyRevision,
    RegionId,
    TenantId,
    WorkloadName,
)

GLOBAL_QUEUE = "durable-global"
WORKLOAD = "Workload"
PLACEMENT = "Placement"
DRAIN = "Drain"
OVERRIDE = "Override"
POLICY = "Policy"
RECOVERY = "Recovery"
# The beginning of a workflow's id says its kind.
_KINDS = {
    "workload": WORKLOAD,
    "placement": PLACEMENT,
    "drain": DRAIN,
    "override": OVERRIDE,
    "policy": POLICY,
    "recovery": RECOVERY,
}
# What Temporal is asked for the workflows of ours that run.
RUNNING_QUERY = (
    f"ExecutionStatus = 'Running' AND WorkflowType IN ({', '.join(map(repr, _KINDS.values()))})"
)
# The type of the refusal of a run that is about to end: the next run takes the same request.
ENDING = "ending"
# Who acts for a workload.
WORKLOAD_CONTROLLER = ActorId("controller:workload")
# Who acts for a policy, when no person has asked for it: a guardrail, or the next step.
POLICY_CONTROLLER = ActorId("controller:policy")
# Who acts for a recovery.
RECOVERY_CONTROLLER = ActorId("controller:recovery")
# How long a worker may be silent, or replay a history, before another takes its workflow task.
WORKFLOW_TASK_TIMEOUT = timedelta(seconds=10)


def kind_of(workflow_id: str) -> str | None:
    """The kind of workflow that has this id, if people may send it anything."""
    return _KINDS.get(workflow_id.partition("/")[0])


def regional_queue(region: RegionId) -> str:
    return f"durable-region-{region}"


def queue_of(workflow_id: str) -> str:
    """The task queue on which the workflow with this id runs."""
    kind, _, rest = workflow_id.partition("/")
    if kind == "placement":
        return regional_queue(region_of(workflow_id))
    if kind == "drain":
        return regional_queue(RegionId(rest.partition("/")[0]))
    return GLOBAL_QUEUE


WORKLOAD_IDS = "workload/"


def workload_id(tenant: TenantId, workload: WorkloadName) -> str:
    return f"{WORKLOAD_IDS}{tenant}/{workload}"


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


def drain_target(id: str) -> NodesTarget:
    """The nodes in a drain's id; `ValueError` if there are none."""
    region, _, rest = id.removeprefix("drain/").partition("/")
    kind, _, name = rest.rpartition("/")
    given = {"region": region, "kind": kind or NodesKind.NODE, "name": name}
    target = NodesTarget.model_validate(given, strict=False)
    if drain_id(target) != id:
        raise ValueError("it is not drain/REGION/NODE, nor of a zone or pool")
    return target


def override_of(id: str) -> OverrideId:
    """The name in an override's id; `ValueError` if there is none."""
    kind, _, name = id.partition("/")
    return OverrideId(name if kind == "override" else "")


def override_id(override: OverrideId) -> str:
    return f"override/{override}"


# What a policy that has no number yet is published as, so that it can be signed.
NEXT_POLICY = "policy/next"


def revision_of(id: str) -> PolicyRevision:
    """The number in the id of a policy's workflow."""
    return int(id.rpartition("/")[2])


def policy_id(revision: PolicyRevision) -> str:
    return f"policy/{revision}"


def recovery_id(region: RegionId, epoch: int) -> str:
    """The epoch is the one that fences the region: two triggers for one loss are one recovery."""
    return f"recovery/{region}/{epoch}"

"""What things are called in Temporal: workflow ids, task queues and types that others depend on."""

from durable.model.ids import ActorId, Generation, RegionId, TenantId, WorkloadName

GLOBAL_QUEUE = "durable-global"
WORKLOAD = "Workload"
PLACEMENT = "Placement"
# Who speaks for a workload to its placements.
WORKLOAD_CONTROLLER = ActorId("controller:workload")


def regional_queue(region: RegionId) -> str:
    return f"durable-region-{region}"


def workload_id(tenant: TenantId, workload: WorkloadName) -> str:
    return f"workload/{tenant}/{workload}"


def placement_id(
    tenant: TenantId, workload: WorkloadName, generation: Generation, region: RegionId
) -> str:
    return f"placement/{tenant}/{workload}/g{generation}/{region}"

"""How workflows are started: the same options, whoever starts them."""

from typing import Any

from temporalio.common import (
    Priority,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from durable.model.drain import DrainState, NodesTarget
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.phases import PlacementPhase
from durable.signals import search_attributes
from durable.signals.names import (
    GLOBAL_QUEUE,
    WORKFLOW_TASK_TIMEOUT,
    drain_id,
    placement_id,
    regional_queue,
    workload_id,
)


def workload_options(
    tenant: TenantId, workload: WorkloadName, priority: int | None = None
) -> dict[str, Any]:
    """A workload that runs already is used as it is; one that has ended begins anew."""
    return {
        "id": workload_id(tenant, workload),
        "task_queue": GLOBAL_QUEUE,
        "priority": turn_of(tenant, priority),
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "search_attributes": _attributes(tenant, workload),
        "static_summary": f"{tenant}/{workload}",
        "static_details": "A workload's desired state, divided over regions. Each share is a "
        f"workflow: `placement/{tenant}/{workload}/...`. Its state is under current details; "
        "`durable explain` says why.",
    }


def placement_options(
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    region: RegionId,
    priority: int | None = None,
) -> dict[str, Any]:
    """One that had come to its end finds nothing to do in its region, and ends again."""
    return {
        "id": placement_id(tenant, workload, generation, region),
        "task_queue": regional_queue(region),
        "priority": turn_of(tenant, priority),
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "search_attributes": _attributes(
            tenant,
            workload,
            SearchAttributePair(search_attributes.REGION, str(region)),
            SearchAttributePair(search_attributes.PHASE, PlacementPhase.PROGRESSING.value),
        ),
        "static_summary": f"{tenant}/{workload} g{generation} in {region}",
        "static_details": f"One region's share of `{workload_id(tenant, workload)}`, which owns "
        "it. Its state is under current details. To stop it from placing, send `hold`; a paused "
        "workflow hears nothing, not even that its nodes are lost.",
    }


def drain_options(target: NodesTarget) -> dict[str, Any]:
    """A drain that runs is used as it is; one that has ended begins anew."""
    return {
        "id": drain_id(target),
        "task_queue": regional_queue(target.region),
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "search_attributes": TypedSearchAttributes(
            [
                SearchAttributePair(search_attributes.REGION, str(target.region)),
                SearchAttributePair(search_attributes.PHASE, DrainState.DRAINING.value),
            ]
        ),
        "static_summary": f"drain {target}",
        "static_details": "Empties nodes within the disruption allowances of what runs there, each "
        "replica up elsewhere before another is stopped. Its state is under current details. To "
        "undo it, send `cancel`; terminated, it is started again from what the authority knows.",
    }


# Temporal knows five priorities, 1 the most urgent and 3 the usual one.
_PRIORITY_KEYS = ((900, 1), (500, 2), (100, 3), (50, 4))


def turn_of(tenant: TenantId, priority: int | None) -> Priority:
    """More urgent work goes first in every task queue; within a priority, tenants take turns."""
    key = None
    if priority is not None:
        key = next((key for least, key in _PRIORITY_KEYS if priority >= least), 5)
    return Priority(priority_key=key, fairness_key=str(tenant))


def _attributes(
    tenant: TenantId, workload: WorkloadName, *more: SearchAttributePair[str]
) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(search_attributes.TENANT, str(tenant)),
            SearchAttributePair(search_attributes.WORKLOAD, str(workload)),
            *more,
        ]
    )

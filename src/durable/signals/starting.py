"""How workflows are started: the same options, whoever starts them."""

from typing import Any

from temporalio.common import (
    Priority,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from durable.model.fleet.drain import DrainState, NodesTarget
from durable.model.ids import (
    Generation,
    OverrideId,
    PolicyRevision,
    RegionId,
    TenantId,
    WorkloadName,
)
from durable.model.policy.rollout import PolicyStage
from durable.model.recovery.recoveries import RecoveryKey, RecoveryStage
from durable.model.work.phases import PlacementPhase
from durable.signals import search_attributes
from durable.signals.names import (
    GLOBAL_QUEUE,
    WORKFLOW_TASK_TIMEOUT,
    drain_id,
    override_id,
    placement_id,
    policy_id,
    recovery_id,
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
        "it. Its state is under current details. To stop it from placing, propose an override of "
        "the kind `hold`; a paused workflow hears nothing, not even that its nodes are lost.",
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


def override_options(override: OverrideId) -> dict[str, Any]:
    """An override that runs is used as it is; one that has ended ends again."""
    return {
        "id": override_id(override),
        "task_queue": GLOBAL_QUEUE,
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "static_summary": f"override {override}",
        "static_details": "What a person decided for a while. It ends by itself; its state, and "
        "who may do what next, is under current details. Terminated, it is started again from "
        "what the authority knows; to end it, send `revoke`.",
    }


def policy_options(revision: PolicyRevision) -> dict[str, Any]:
    """One that runs is used as it is; one that has ended begins anew, and finds where it was."""
    return {
        "id": policy_id(revision),
        "task_queue": GLOBAL_QUEUE,
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "search_attributes": TypedSearchAttributes(
            [SearchAttributePair(search_attributes.PHASE, PolicyStage.SHADOW.value)]
        ),
        "static_summary": f"policy revision {revision}",
        "static_details": "Brings a revision of the scheduler policy into force: compared with "
        "recent decisions, then in one region, watched, then region by region. Its state is under "
        "current details. To take it back, send `rollback`; terminated, it is started again from "
        "what the authority knows.",
    }


def recovery_options(key: RecoveryKey) -> dict[str, Any]:
    """On the global queue: the lost region's own may have nobody left who asks for work."""
    return {
        "id": recovery_id(key.region, key.epoch),
        "task_queue": GLOBAL_QUEUE,
        "priority": Priority(priority_key=1),
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "search_attributes": TypedSearchAttributes(
            [
                SearchAttributePair(search_attributes.REGION, str(key.region)),
                SearchAttributePair(search_attributes.PHASE, RecoveryStage.SUSPECTED.value),
            ]
        ),
        "static_summary": f"recovery of {key.region}, epoch {key.epoch}",
        "static_details": "Moves work out of a lost region, critical work first, and back when the "
        "region is. Its state is under current details. Before the region is fenced, `veto` stops "
        "it; afterwards, `failback` or `settle` ends it. Terminated, it is started again from what "
        "the authority knows.",
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

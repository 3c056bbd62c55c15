"""How workflows are started: the same options everywhere."""

from collections.abc import Mapping
from typing import Any

from temporalio.common import (
    Priority,
    SearchAttributeKey,
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
from durable.model.policy.rollout import PolicyPhase
from durable.model.recovery.recoveries import RecoveryKey, RecoveryPhase
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


def _options(
    id: str,
    *,
    queue: str = GLOBAL_QUEUE,
    attributes: Mapping[SearchAttributeKey[str], object],
    summary: str,
    details: str,
    priority: Priority = Priority.default,
) -> dict[str, Any]:
    """One that runs is used as it is; one that has ended begins again, and finds where it was."""
    pairs = [SearchAttributePair(key, str(value)) for key, value in attributes.items()]
    return {
        "id": id,
        "task_queue": queue,
        "priority": priority,
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": WORKFLOW_TASK_TIMEOUT,
        "search_attributes": TypedSearchAttributes(pairs),
        "static_summary": summary,
        "static_details": details,
    }


def workload_options(
    tenant: TenantId, workload: WorkloadName, priority: int | None = None
) -> dict[str, Any]:
    return _options(
        workload_id(tenant, workload),
        priority=turn_of(tenant, priority),
        attributes={search_attributes.TENANT: tenant, search_attributes.WORKLOAD: workload},
        summary=f"{tenant}/{workload}",
        details="A workload's desired state, divided over regions. Each share is a workflow: "
        f"`placement/{tenant}/{workload}/...`. Its state is under current details; "
        "`durable explain` says why.",
    )


def placement_options(
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    region: RegionId,
    priority: int | None = None,
) -> dict[str, Any]:
    """One that had come to its end finds nothing to do in its region, and ends again.

    Of one that runs, its workload wants to know: the start of it fails.
    """
    return _options(
        placement_id(tenant, workload, generation, region),
        queue=regional_queue(region),
        priority=turn_of(tenant, priority),
        attributes={
            search_attributes.TENANT: tenant,
            search_attributes.WORKLOAD: workload,
            search_attributes.REGION: region,
            search_attributes.PHASE: PlacementPhase.PROGRESSING,
        },
        summary=f"{tenant}/{workload} g{generation} in {region}",
        details=f"One region's share of `{workload_id(tenant, workload)}`, which owns it. Its "
        "state is under current details. To stop it from placing, propose an override of the kind "
        "`hold`; a paused workflow hears nothing, not even that its nodes are lost.",
    ) | {"id_conflict_policy": WorkflowIDConflictPolicy.FAIL}


def drain_options(target: NodesTarget) -> dict[str, Any]:
    return _options(
        drain_id(target),
        queue=regional_queue(target.region),
        attributes={
            search_attributes.REGION: target.region,
            search_attributes.PHASE: DrainState.DRAINING,
        },
        summary=f"drain {target}",
        details="Empties nodes within the disruption allowances of what runs there, each replica "
        "up elsewhere before another is stopped. Its state is under current details. To end it, "
        "send `cancel`; terminated, it is started again from what the authority knows.",
    )


def override_options(override: OverrideId) -> dict[str, Any]:
    return _options(
        override_id(override),
        attributes={},
        summary=f"override {override}",
        details="What a person decided for a while. It ends by itself; its state, and who may do "
        "what next, is under current details. Terminated, it is started again from what the "
        "authority knows; to end it, send `revoke`.",
    )


def policy_options(revision: PolicyRevision) -> dict[str, Any]:
    return _options(
        policy_id(revision),
        attributes={search_attributes.PHASE: PolicyPhase.SHADOW},
        summary=f"policy revision {revision}",
        details="Brings a revision of the scheduler policy into force: compared with recent "
        "decisions, then in one region, watched, then region by region. Its state is under "
        "current details. To roll it back, send `rollback`; terminated, it is started again from "
        "what the authority knows.",
    )


def recovery_options(key: RecoveryKey) -> dict[str, Any]:
    """On the global queue: the lost region's own may have no worker left."""
    return _options(
        recovery_id(key.region, key.epoch),
        priority=Priority(priority_key=1),
        attributes={
            search_attributes.REGION: key.region,
            search_attributes.PHASE: RecoveryPhase.SUSPECTED,
        },
        summary=f"recovery of {key.region}, epoch {key.epoch}",
        details="Moves work out of a lost region, critical work first, and back when the region "
        "is. Its state is under current details. Before the region is fenced, `veto` stops it; "
        "afterwards, `failback` or `settle` ends it. Terminated, it is started again from what "
        "the authority knows.",
    )


# Temporal knows five priorities, 1 the most urgent and 3 the usual one.
_PRIORITY_KEYS = ((900, 1), (500, 2), (100, 3), (50, 4))


def turn_of(tenant: TenantId, priority: int | None) -> Priority:
    """More urgent work goes first in every task queue; within a priority, tenants take turns."""
    key = None
    if priority is not None:
        key = next((key for least, key in _PRIORITY_KEYS if priority >= least), 5)
    return Priority(priority_key=key, fairness_key=str(tenant))

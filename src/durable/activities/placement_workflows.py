"""Starts placement workflows and signals them, wherever they are in their life."""

from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from durable.activities.steps import PlacementKey
from durable.model.phases import PlacementPhase
from durable.signals import search_attributes
from durable.signals.names import PLACEMENT, placement_id, regional_queue, workload_id
from durable.signals.payloads import Payload, SetShare


class PlacementWorkflows:
    """The placements of workloads, as Temporal knows them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(
        self, key: PlacementKey, share: SetShare, task_timeout: timedelta, **signal: Any
    ) -> bool:
        """Starts a placement; false when one runs, or one came to its end."""
        try:
            await self._client.start_workflow(
                PLACEMENT,
                {"key": key, "share": share},
                id=placement_id(key.tenant, key.workload, key.generation, key.region),
                task_queue=regional_queue(key.region),
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                task_timeout=task_timeout,
                search_attributes=_attributes(key),
                static_summary=str(key),
                static_details="One region's share of "
                f"`{workload_id(key.tenant, key.workload)}`, which owns it. Its state is under "
                "current details. To stop it from placing, send `hold`; a paused workflow hears "
                "nothing, not even that its nodes are lost.",
                **signal,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def signal(
        self,
        key: PlacementKey,
        share: SetShare,
        task_timeout: timedelta,
        name: str,
        payload: Payload,
    ) -> bool:
        """Signals a placement, starting it if there is none or if it was terminated.

        One that is started anew reads from the authority what exists. One that came to its end is
        not started again: then the answer is false.
        """
        return await self.start(
            key,
            share,
            task_timeout,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=name,
            start_signal_args=[payload],
        )


def _attributes(key: PlacementKey) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(search_attributes.TENANT, str(key.tenant)),
            SearchAttributePair(search_attributes.WORKLOAD, str(key.workload)),
            SearchAttributePair(search_attributes.REGION, str(key.region)),
            SearchAttributePair(search_attributes.PHASE, PlacementPhase.PROGRESSING.value),
        ]
    )

"""Starts placement workflows and has them look, wherever they are in their life."""

from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from durable.activities.steps import PlacementKey
from durable.signals.names import PLACEMENT
from durable.signals.payloads import Look
from durable.signals.starting import placement_options


class PlacementWorkflows:
    """The placements of workloads, as Temporal knows them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def open(
        self, key: PlacementKey, *, is_first: bool = False, priority: int | None = None
    ) -> None:
        """Makes sure that a placement runs, and that it looks at its share.

        One that was terminated, or that Temporal has lost, begins anew and reads from the
        authority what exists.
        """
        if is_first and await self.start(key, priority):
            return
        await self.start(
            key,
            priority,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="look",
            start_signal_args=[Look(why="its share changed")],
        )

    async def start(self, key: PlacementKey, priority: int | None = None, **signal: Any) -> bool:
        """Starts a placement; false when one runs."""
        options = placement_options(key.tenant, key.workload, key.generation, key.region, priority)
        try:
            await self._client.start_workflow(PLACEMENT, {"key": key}, **{**options, **signal})  # pyright: ignore[reportUnknownMemberType]
        except WorkflowAlreadyStartedError:
            return False
        return True

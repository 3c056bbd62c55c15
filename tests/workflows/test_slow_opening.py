"""What placements report while their workload still opens others is not lost."""

import asyncio
from typing import Any

import pytest

from durable.activities.divide import PlacementWorkflows
from durable.activities.steps import PlacementKey
from durable.signals.names import WORKFLOW_TASK_TIMEOUT
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet


async def test_reports_and_ends_that_come_before_all_placements_are_open_count(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = PlacementWorkflows.start

    async def slow_in_west(self: Any, key: PlacementKey, *of: Any, **more: Any) -> bool:
        if key.region == WEST:
            # Longer than a task lasts: messages are handed over while the step goes on.
            await asyncio.sleep(WORKFLOW_TASK_TIMEOUT.total_seconds() * 1.2)
        return await start(self, key, *of, **more)

    monkeypatch.setattr(PlacementWorkflows, "start", slow_in_west)
    await plane.load(small_fleet("east", "west", nodes=2))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)

    service, job = await asyncio.gather(
        plane.durable.place(manifest("api", replicas=4), request_id="service"),
        plane.durable.place(manifest("score", replicas=4, kind="job"), request_id="job"),
    )
    assert (service.phase, service.serving) == ("serving", 4)
    assert (job.phase, job.completed) == ("complete", 4)
    await plane.no_invariant_is_broken()

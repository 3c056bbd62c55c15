"""What placements say while their workload is still being admitted is not lost."""

import asyncio
from typing import Any

import pytest

from durable.activities.steps import Share
from durable.activities.workload import WorkloadActivities
from durable.workflows import timeouts
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet


async def test_reports_and_ends_that_come_before_the_admission_is_over_are_heard(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = WorkloadActivities._start  # pyright: ignore[reportPrivateUsage]

    async def slow_in_west(self: Any, share: Share, *of: Any, **more: Any) -> bool:
        if share.region == WEST:
            # Longer than a task lasts: messages are handed over while the step goes on.
            await asyncio.sleep(timeouts.WORKFLOW_TASK.total_seconds() * 1.5)
        return await start(self, share, *of, **more)

    monkeypatch.setattr(WorkloadActivities, "_start", slow_in_west)
    await plane.load(small_fleet("east", "west", nodes=2))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)

    service, job = await asyncio.gather(
        plane.durable.place(manifest("api", replicas=4), request_id="service"),
        plane.durable.place(manifest("score", replicas=4, kind="job"), request_id="job"),
    )
    assert (service.phase, service.serving) == ("serving", 4)
    assert (job.phase, job.completed) == ("complete", 4)
    await plane.no_promise_is_broken()

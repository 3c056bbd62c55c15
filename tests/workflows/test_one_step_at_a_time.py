"""Requests that come in the middle of a step wait for its end, and the history replays."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from durable.activities.workload import WorkloadActivities
from durable.signals import starting
from tests.workflows.plane import Plane, manifest, until
from tests.workflows.replays import every_history_replays

TASK_TIMEOUT = timedelta(seconds=1)


async def test_a_request_in_the_middle_of_a_step_waits_for_its_end(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "WORKFLOW_TASK_TIMEOUT", TASK_TIMEOUT)
    divide, divisions = WorkloadActivities.divide, 0

    async def slowly(self: Any, step: Any) -> Any:
        nonlocal divisions
        divisions += 1
        # Longer than a task lasts: messages are handed over while the step goes on.
        await asyncio.sleep(TASK_TIMEOUT.total_seconds() * 1.5)
        return await divide(self, step)

    slowly.__dict__.update(divide.__dict__)  # the worker registers it under the same name
    slowly.__annotations__ = divide.__annotations__
    monkeypatch.setattr(WorkloadActivities, "divide", slowly)
    await plane.load()
    await (await plane.host()).work()
    await plane.durable.apply(manifest(replicas=1), request_id="apply")
    for replicas in (2, 3, 2):
        before = divisions

        async def is_dividing(before: int = before) -> bool:
            return divisions > before

        await plane.durable.scale("risk", "api", replicas, request_id=f"to-{divisions}")
        await until(is_dividing, "the slots are divided")
    assert (await plane.durable.wait("risk", "api")).serving == 2
    await every_history_replays(plane)

"""How soon changes converge after a kill of the regional worker, beside how soon they do in calm.

Many long-lived placements with a long past: each workload was scaled up and down again and again.
Then the regional worker is killed and started anew, and a few workloads are scaled at once. The
restarted worker replays the histories of whatever moves.
"""

import asyncio
import os
import signal
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import TimeoutType

from bench._plane import REGION, Plane, control_plane, fleet
from bench._report import progress, table, verdict
from durable.authority.reads.invariants import violations_everywhere
from durable.model.ids import TenantId, WorkloadName
from durable.signals.names import placement_id

PLACEMENTS = int(os.environ.get("BENCH_PLACEMENTS", "200"))
SCALES = int(os.environ.get("BENCH_SCALES", "100"))
AT_ONCE = 20
CHANGES = 5
ROUNDS = 3
# Against the calm time in the same run.
FACTOR_BAR, SECONDS_BAR = 3.0, 10.0


def manifest(number: int) -> dict[str, Any]:
    resources = {"cpu": "1", "memory": "1Gi"}
    return {
        "tenant": "tenant-0",
        "name": f"app-{number}",
        "spec": {"replicas": 1, "resources": resources},
    }


async def give_a_past(plane: Plane) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with room:
            await plane.durable.place(manifest(number), request_id="first")
            for turn in range(SCALES):
                await plane.durable.scale("tenant-0", f"app-{number}", 1 + (turn + 1) % 2)
            await plane.durable.scale("tenant-0", f"app-{number}", 1)

    for first in range(0, PLACEMENTS, AT_ONCE):
        batch = range(first, min(PLACEMENTS, first + AT_ONCE))
        await asyncio.gather(*map(one, batch))
        progress(f"{batch.stop} of {PLACEMENTS} workloads have a past")


async def change(plane: Plane, round_: int, replicas: int) -> float:
    """Scales a few workloads at once; answers after how many seconds all of them serve."""
    began = time.perf_counter()

    async def one(number: int) -> None:
        name = f"app-{(round_ * CHANGES + number) % PLACEMENTS}"
        await plane.durable.scale("tenant-0", name, replicas)
        await plane.durable.wait("tenant-0", name, within_seconds=300)

    await asyncio.gather(*map(one, range(CHANGES)))
    return time.perf_counter() - began


async def late_answers(plane: Plane, since: datetime) -> int:
    """Workflow tasks that a worker took after this moment and did not answer in time."""
    late = 0
    for number in range(PLACEMENTS):
        name = WorkloadName(f"app-{number}")
        handle = plane.durable.client.get_workflow_handle(
            placement_id(TenantId("tenant-0"), name, 1, REGION)
        )
        started: dict[int, datetime] = {}
        async for event in handle.fetch_history_events():
            at = event.event_time.ToDatetime(tzinfo=UTC)
            if event.HasField("workflow_task_started_event_attributes"):
                started[event.event_id] = at
            if event.HasField("workflow_task_timed_out_event_attributes"):
                timed_out = event.workflow_task_timed_out_event_attributes
                is_late = timed_out.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
                late += is_late and started.get(timed_out.started_event_id, at) > since
    return late


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - PostgreSQL may run under another user
        async with control_plane(Path(folder), fleet(60, 1, 4 * PLACEMENTS)) as plane:
            await give_a_past(plane)
            calm = [await change(plane, round_, 2) for round_ in range(ROUNDS)]
            progress("the regional worker is killed")
            os.kill(plane.pids["regional"], signal.SIGKILL)
            await plane.start("regional")
            restarted_at = datetime.now(UTC)
            after = await change(plane, ROUNDS, 2)
            settled = await change(plane, ROUNDS + 1, 2)
            late = await late_answers(plane, restarted_at)
            broken = await violations_everywhere(plane.databases)
    median = sorted(calm)[ROUNDS // 2]
    bar = FACTOR_BAR * median + SECONDS_BAR
    table(
        f"{CHANGES} scales at once, {PLACEMENTS} placements scaled {SCALES} times each",
        ["", "seconds"],
        [["in calm", median], ["after the kill", after], ["bar", bar], ["later", settled]],
    )
    verdict(
        "restart",
        {"calm_seconds": median},
        {"after_seconds": after, "bar_seconds": bar, "late_answers": late, "broken": len(broken)},
        holds=after <= bar and late == 0 and not broken,
    )


if __name__ == "__main__":
    asyncio.run(main())

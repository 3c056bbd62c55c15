"""What has an id of ours and is not ours is recognised, and ended so that ours can run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from durable.controllers.reconciler import Reconciler
from durable.model.recovery.detection import LossKind, LossVerdict, RegionSigns, Suspicion
from durable.signals.names import GLOBAL_QUEUE, RECOVERY, WORKLOAD
from durable.temporal.recoveries import begin_recovery
from durable.temporal.running import list_running, statuses_of
from tests.workflows.plane import EAST, Plane, until

SIGNS = RegionSigns(region=EAST, epoch=1, database_answers=True)
LOST = LossVerdict(region=EAST, kind=LossKind.REGION, sentence="It is lost.", signs=SIGNS)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUSPICION = Suspicion(region=EAST, epoch=1, since=NOW, lost_at=NOW, verdict=LOST)

# Kind, how it is started, and what is said of it.
IMPOSTORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "type": ("Elsewhere", {}, "its type is Elsewhere"),
    "queue": (RECOVERY, {"task_queue": "nowhere"}, "waits on the task queue nowhere"),
    "delay": (RECOVERY, {"start_delay": timedelta(days=365)}, "begins only at"),
    "cron": (RECOVERY, {"cron_schedule": "0 0 1 1 *"}, "begins only at"),
}


async def take_id(client: Client, id: str, kind: str, how: dict[str, Any]) -> Any:
    options: dict[str, Any] = {"task_queue": GLOBAL_QUEUE, **how}
    return await client.start_workflow(kind, id=id, **options)


@pytest.mark.parametrize("wrong", IMPOSTORS)
async def test_a_recovery_begins_in_place_of_an_impostor(plane: Plane, wrong: str) -> None:
    client, id = plane.durable.client, str(SUSPICION.recovery)
    kind, how, reason = IMPOSTORS[wrong]
    impostor = await take_id(client, id, kind, how)
    await begin_recovery(client, SUSPICION)
    ours = await client.get_workflow_handle(id).describe()
    assert ours.run_id != impostor.first_execution_run_id
    assert (ours.workflow_type, ours.task_queue) == (RECOVERY, GLOBAL_QUEUE)
    assert ours.execution_time == ours.start_time
    ended = client.get_workflow_handle(id, run_id=impostor.first_execution_run_id)
    assert (await ended.describe()).status is WorkflowExecutionStatus.TERMINATED
    last = [event async for event in ended.fetch_history_events()][-1]
    assert reason in last.workflow_execution_terminated_event_attributes.reason

    await begin_recovery(client, SUSPICION)
    again = await client.get_workflow_handle(id).describe()
    assert again.run_id == ours.run_id, "what is ours is left as it is"


async def test_an_impostor_is_not_taken_for_running(plane: Plane) -> None:
    client = plane.durable.client
    impostors = {
        f"workload/risk/{wrong}": (WORKLOAD if kind == RECOVERY else kind, how)
        for wrong, (kind, how, _) in IMPOSTORS.items()
    }
    for id, (kind, how) in impostors.items():
        await take_id(client, id, kind, how)
    await take_id(client, "workload/risk/ours", WORKLOAD, {})

    async def are_listed() -> bool:
        return len([one async for one in client.list_workflows()]) == 5

    await until(are_listed, "Temporal lists all of them")
    assert list(await Reconciler(client, plane.databases).running()) == ["workload/risk/ours"]
    assert (await list_running(client)).ids == {"workload/risk/ours"}
    statuses = await statuses_of(client, [*impostors, "workload/risk/ours"])
    assert {id for id, status in statuses.items() if status is not None} == {"workload/risk/ours"}

"""Histories that were saved from real runs replay: a change that would break one needs a patch.

`SAVE_HISTORIES=1 pytest tests/workflows/test_replay.py -k saved` saves them anew: right only while
no workflow was released in the form that the old ones were written by.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from durable.signals.payloads import EvictSlots, HoldPlacement, ResumePlacement
from durable.temporal.connection import data_converter
from durable.temporal.sandbox import sandbox
from durable.workflows.placement.workflow import Placement
from durable.workflows.workload.workflow import Workload
from tests.workflows.plane import Plane, manifest, small_fleet, until

FOLDER = Path(__file__).parent.parent / "histories"
SAVES = os.environ.get("SAVE_HISTORIES") == "1"
WHO: dict[str, Any] = {"actor": "alice@example.com", "reason": "INC-42"}


def replayer() -> Replayer:
    return Replayer(
        workflows=[Placement, Workload],
        data_converter=data_converter,
        workflow_runner=sandbox(),
    )


def read(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem.replace("--", "/"), path.read_text())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_a_saved_history_replays(path: Path) -> None:
    await replayer().replay_workflow(read(path))


def test_there_is_a_history_of_each_workflow() -> None:
    names = {path.stem.split("--")[0] for path in FOLDER.glob("*.json")}
    assert names == {"placement", "workload"}


async def test_a_changed_workflow_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(_: Placement) -> None:
        return

    monkeypatch.setattr(Placement, "_reserve", forget)
    with pytest.raises((workflow.NondeterminismError, RuntimeError)):
        await replayer().replay_workflow(read(min(FOLDER.glob("placement--*.json"))))


@pytest.mark.skipif(not SAVES, reason="saves histories only when asked")
async def test_histories_are_saved(plane: Plane) -> None:
    await plane.load(small_fleet("east", nodes=2, cpu=2))
    await (await plane.host()).work()
    durable = plane.durable
    await durable.apply(manifest("served", replicas=3), request_id="apply")
    await durable.wait("risk", "served")
    handle = plane.handle("served")
    await handle.execute_update("hold", HoldPlacement(**WHO, request_id="1"))
    await handle.execute_update("resume", ResumePlacement(**WHO, request_id="2"))
    await handle.signal("nonsense", {"a": 1})
    await handle.execute_update("evict", EvictSlots(**WHO, request_id="3", slots=(0,), force=True))
    await durable.wait("risk", "served")
    await durable.scale("risk", "served", 2, request_id="scale")
    await durable.apply(
        manifest("served", replicas=1, run={"image": "served:2"}), request_id="again"
    )
    await durable.wait("risk", "served")
    await durable.place(manifest("job", kind="job"), request_id="job")
    await durable.apply(manifest("big", replicas=4, resources={"cpu": 1}), request_id="big")

    async def waits() -> bool:
        return (await durable.status("risk", "big")).phase == "waiting"

    await until(waits, "big waits for the room that served has")
    await durable.delete("risk", "served", request_id="delete")
    await durable.wait("risk", "served", until="deleted")
    await durable.wait("risk", "big")
    for workflow_id in (
        "workload/risk/served", "workload/risk/big", "workload/risk/job",
        "placement/risk/served/g1/east", "placement/risk/served/g2/east",
        "placement/risk/big/g1/east", "placement/risk/job/g1/east",
    ):  # fmt: skip
        history = await durable.client.get_workflow_handle(workflow_id).fetch_history()
        (FOLDER / f"{workflow_id.replace('/', '--')}.json").write_text(history.to_json())

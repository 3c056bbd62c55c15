"""Histories that were saved from real runs replay: a change that would break one needs a patch.

`SAVE_HISTORIES=1 pytest tests/workflows/test_replay.py -k saved` saves them anew: right only while
no workflow was released in the form that the old ones were written by.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory

from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import Identifier, NodeId
from durable.model.recovery.recoveries import RecoveryPhase
from durable.signals.drains import DrainStatus
from durable.signals.names import drain_id
from durable.signals.payloads import EvictSlots, RetryPlacement
from durable.workflows.placement.workflow import Placement
from tests.workflows import test_recovery as recovery
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until
from tests.workflows.replays import replayer

FOLDER = Path(__file__).parent.parent / "histories"
SAVES = os.environ.get("SAVE_HISTORIES") == "1"
WHO: dict[str, Any] = {"actor": "alice@example.com", "reason": "INC-42"}


def read(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem.replace("--", "/"), path.read_text())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_a_saved_history_replays(path: Path) -> None:
    await replayer().replay_workflow(read(path))


def test_there_is_a_history_of_each_workflow() -> None:
    names = {path.stem.split("--")[0] for path in FOLDER.glob("*.json")}
    assert names == {"drain", "override", "placement", "policy", "recovery", "workload"}


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
    await handle.execute_update("retry_now", RetryPlacement(**WHO, request_id="1"))
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
    await save(
        plane,
        "workload/risk/served", "workload/risk/big", "workload/risk/job",
        "placement/risk/served/g1/east", "placement/risk/served/g2/east",
        "placement/risk/big/g1/east", "placement/risk/job/g1/east",
    )  # fmt: skip


@pytest.mark.skipif(not SAVES, reason="saves histories only when asked")
async def test_histories_of_drains_are_saved(plane: Plane) -> None:
    """Of one that empties a node, and of one that has no other place and is cancelled."""
    await plane.load(small_fleet("east", nodes=2, cpu=2))
    await (await plane.host()).work()
    await plane.durable.apply(manifest("served", replicas=3), request_id="apply")
    await plane.durable.wait("risk", "served")
    drains = plane.durable.drains
    emptied = NodesTarget.of_node(EAST, NodeId("east-general-0000"))
    drain = await drains.start(emptied, reason="INC-42", request_id="node")
    await drains.wait(drain, within_seconds=180)
    zone = NodesTarget(region=EAST, kind=NodesKind.ZONE, name=Identifier("east-a"))
    await drains.start(zone, reason="INC-43", request_id="zone")
    handle: Any = plane.durable.client.get_workflow_handle(drain_id(zone))
    await handle.signal("nonsense", {"a": 1})

    async def is_blocked() -> bool:
        shown = DrainStatus.model_validate(await handle.query("status"))
        return (
            shown.rejected_count > 0 and shown.progress is not None and shown.progress.blocked != ()
        )

    await until(is_blocked, "what is left finds no other place")
    await drains.cancel(zone, reason="not today", request_id="undo")
    await save(plane, drain_id(emptied), drain_id(zone))


@pytest.mark.skipif(not SAVES, reason="saves histories only when asked")
async def test_histories_of_overrides_are_saved(plane: Plane) -> None:
    """Of one that is extended and revoked, and of one that ends by its time."""
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(), request_id="apply")
    overrides, scope = plane.durable.overrides, {"tenant": "risk", "workload": "api"}
    await overrides.create("hold", scope, reason="INC-42", id="revoked")
    await overrides.extend("revoked", by=timedelta(minutes=5), reason="not done yet")
    handle: Any = plane.durable.client.get_workflow_handle("override/revoked")
    await handle.signal("nonsense", {"a": 1})
    await overrides.revoke("revoked", reason="done")
    brief = timedelta(seconds=5)
    await overrides.create("hold", scope, reason="INC-43", id="expired", ttl=brief)
    await plane.durable.client.get_workflow_handle("override/expired").result()
    await save(plane, "override/revoked", "override/expired")


@pytest.mark.skipif(not SAVES, reason="saves histories only when asked")
async def test_a_history_of_a_recovery_is_saved(plane: Plane) -> None:
    """Of a region that is lost, held, asked for nonsense, and given its work back."""
    async with recovery.serving(plane, manifest(replicas=4, priority=900)) as agents:
        await agents.aclose()
        key = await recovery.declare(plane)
        await recovery.whole(plane)
        await plane.durable.client.get_workflow_handle(str(key)).signal("nonsense", {"a": 1})
        await recovery.reached(plane, RecoveryPhase.HOLDING)
        async with plane.agent(EAST):
            await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
            await recovery.reached(plane, RecoveryPhase.FAILED_BACK)
        await plane.durable.client.get_workflow_handle(str(key)).result()
        await save(plane, str(key))


async def save(plane: Plane, *workflow_ids: str) -> None:
    for workflow_id in workflow_ids:
        history = await plane.durable.client.get_workflow_handle(workflow_id).fetch_history()
        (FOLDER / f"{workflow_id.replace('/', '--')}.json").write_text(history.to_json())

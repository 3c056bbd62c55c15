"""Our workflows run and replay in Temporal's own sandbox, which refuses whatever may differ.

`make determinism` runs all workflow tests in it; these few run always.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError

from durable.model.refusal import RefusedError
from durable.temporal import worker as worker_module
from durable.temporal.worker import patient
from tests.workflows.careless import Gambler, Hurried
from tests.workflows.determinism import guard
from tests.workflows.plane import Plane, manifest, small_fleet, until
from tests.workflows.replays import replayer
from tests.workflows.test_replay import FOLDER, WHO, read


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_a_saved_history_replays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await replayer(guard(monkeypatch)).replay_workflow(read(path))


@pytest.fixture
async def guarded(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plane]:
    runner = guard(monkeypatch)
    monkeypatch.setattr(worker_module, "sandbox", lambda: runner)
    await plane.load(small_fleet("east", nodes=2))
    await (await plane.host()).work()
    yield plane
    await plane.stack.aclose()


async def test_the_whole_life_of_a_workload_is_deterministic(guarded: Plane) -> None:
    durable = guarded.durable
    await durable.apply(manifest(replicas=2))
    await durable.wait("risk", "api")
    handle = guarded.handle()
    await handle.signal("evict", {**WHO, "request_id": "1", "slots": [0]})
    await handle.signal("nonsense", {"a": 1})

    async def was_rejected() -> bool:
        return (await guarded.placement()).rejected_count == 1

    await until(was_rejected, "what nobody understands is recorded")
    await durable.scale("risk", "api", 3)
    with pytest.raises(RefusedError):
        await durable.apply(manifest("other", replicas=1, requirements={"zones": ["mars"]}))
    await durable.wait("risk", "api")
    await durable.delete("risk", "api")
    await durable.wait("risk", "api", until="deleted")
    await guarded.no_invariant_is_broken()


@pytest.mark.parametrize("careless", [Gambler, Hurried])
async def test_the_guard_refuses_chance_and_clocks_in_whatever_a_workflow_imports(
    careless: type[Any], plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = plane.durable.client
    async with patient(
        Worker(
            client,
            task_queue="careless",
            workflows=[careless],
            workflow_runner=guard(monkeypatch),
            workflow_failure_exception_types=[RestrictedWorkflowAccessError],
        )
    ):
        with pytest.raises(Exception, match="execution failed") as failed:
            await client.execute_workflow(careless.run, id="careless", task_queue="careless")
    assert "Cannot access" in str(failed.value.__cause__)

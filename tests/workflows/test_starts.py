"""A workflow that is started by hand with a wrong input fails with a sentence, and frees its id."""

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from durable.activities.failures import refuse_elsewhere
from durable.model.ids import RegionId
from durable.signals.names import DRAIN, GLOBAL_QUEUE, PLACEMENT, RECOVERY, WORKLOAD, regional_queue
from durable.workflows.drain.workflow import DrainWorkflow
from durable.workflows.override.workflow import OverrideWorkflow
from durable.workflows.placement.workflow import Placement
from durable.workflows.policy.workflow import PolicyWorkflow
from durable.workflows.recovery.workflow import RecoveryWorkflow
from durable.workflows.workload.workflow import Workload
from tests.workflows.plane import EAST, Plane, manifest

REGIONAL = regional_queue(EAST)
NODE = {"region": "east", "kind": "node", "name": "east-general-0000"}
KEY = {"region": "east", "tenant": "risk", "workload": "api", "generation": 1}
WRONG: list[tuple[list[Any], str]] = [
    ([], "It has no payload"),
    (["text"], "Invalid input"),
    ([7], "Invalid input"),
    ([None], "Its payload is binary/null"),
    ([{}], "is missing; it must be given"),
    ([{}, {}], "Its payload is several arguments"),
    ([None, 1, "x"], "Its payload is several arguments"),
]
# Type, id and task queue, an input that belongs under another id, and that id.
STARTS: list[tuple[str, str, str, dict[str, Any], str]] = [
    (WORKLOAD, "workload/risk/api", GLOBAL_QUEUE,
     {"tenant": "fraud", "workload": "scan"}, "workload/fraud/scan"),
    (PLACEMENT, "placement/risk/api/g1/east", REGIONAL,
     {"key": {**KEY, "generation": 2}}, "placement/risk/api/g2/east"),
    (DRAIN, "drain/east/east-general-0001", REGIONAL,
     {"target": NODE}, "drain/east/east-general-0000"),
]  # fmt: skip


async def failure(plane: Plane, kind: str, id: str, queue: str, given: list[Any]) -> str:
    client: Any = plane.durable.client
    handle = await client.start_workflow(kind, args=given, id=id, task_queue=queue)
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause.message


async def test_a_wrong_start_fails_with_a_sentence_and_the_id_is_free_again(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    for kind, id, queue, other, right in STARTS:
        for given, words in WRONG:
            sentence = await failure(plane, kind, id, queue, given)
            assert words in sentence, (kind, given)
            assert 'Start it with {"' in sentence, (kind, given)
        sentence = await failure(plane, kind, id, queue, [other])
        assert sentence == f"{id} is not the workflow of its input; start it as {right}."
    await plane.durable.apply(manifest("api"))
    await plane.durable.wait("risk", "api")


async def test_what_runs_on_the_queue_of_another_region_fails_with_a_sentence(plane: Plane) -> None:
    await (await plane.load()).work()
    key, target = {**KEY, "region": "west"}, {**NODE, "region": "west"}
    for kind, id, given in (
        (PLACEMENT, "placement/risk/api/g1/west", {"key": key}),
        (DRAIN, "drain/west/east-general-0000", {"target": target}),
    ):
        sentence = await failure(plane, kind, id, REGIONAL, [given])
        assert sentence == (
            "This worker takes steps in east, not in west; start it on the task queue "
            "durable-region-west."
        )


async def test_a_recovery_under_an_id_that_names_no_loss_fails_whatever_it_is_given(
    plane: Plane,
) -> None:
    await (await plane.load()).work()
    for given in (one for one, _ in WRONG):
        sentence = await failure(plane, RECOVERY, "recovery/east", GLOBAL_QUEUE, given)
        assert "recovery/east names no loss" in sentence


def test_a_step_of_another_region_is_refused() -> None:
    refuse_elsewhere(EAST, EAST)
    with pytest.raises(ApplicationError, match="not in west") as no:
        refuse_elsewhere(EAST, RegionId("west"))
    assert no.value.non_retryable


def test_every_workflow_takes_its_input_as_it_came() -> None:
    """The SDK reads `RawValue | None` as JSON of that type, which no payload is."""
    for kind in (
        DrainWorkflow,
        OverrideWorkflow,
        Placement,
        PolicyWorkflow,
        RecoveryWorkflow,
        Workload,
    ):
        assert kind.run.__annotations__["raw"] is RawValue, kind

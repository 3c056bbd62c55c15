"""Adding a message is one row, one payload and one handler; everything else follows."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from durable.activities.messages import AuthorizationActivities
from durable.activities.steps import PlacementKey
from durable.model.ids import TenantId, WorkloadName
from durable.model.operators.rights import Verb
from durable.signals import registry
from durable.signals.names import PLACEMENT
from durable.signals.payloads import OperatorRequest
from durable.signals.registry import Message
from durable.temporal.worker import patient
from durable.workflows.handlers import accepts
from durable.workflows.inbox import Inbox, MessageLog
from durable.workflows.placement.messages import NOTHING, PlacementMessages, Plan
from durable.workflows.placement.state import PlacementState
from durable.workflows.starts import NO_INPUT
from tests.workflows.plane import EAST, Plane, until
from tests.workflows.test_pages import page_of, placement

WHO = {"actor": "alice@example.com", "reason": "INC-42", "request_id": "INC-42-1"}

RISK, API = TenantId("risk"), WorkloadName("api")


class PraisePlacement(OperatorRequest):
    """The payload."""

    loudly: bool = False


# The row.
PRAISE = Message(
    "praise",
    PLACEMENT,
    PraisePlacement,
    "Say something kind.",
    verb=Verb.RETRY,
    example={**WHO, "loudly": True},
    is_audited=True,
    is_in_cli=True,
)


@workflow.defn(name="Praised")
@accepts([PRAISE, *registry.messages_to(PLACEMENT)])
class Praised(PlacementMessages):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        messages = [PRAISE, *registry.messages_to(PLACEMENT)]
        self._inbox = Inbox(messages, MessageLog())
        self._log, self._done = self._inbox.log, set()
        key = PlacementKey(region=EAST, tenant=RISK, workload=API, generation=1)
        self._state = PlacementState.begin(key, None, workflow.now())

    # The handler.
    def on_praise(self, praise: PraisePlacement) -> Plan:
        return f"{praise.actor} likes it{'!' if praise.loudly else '.'}", NOTHING

    @workflow.query(name="log")
    def log(self) -> MessageLog:
        return self._log

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> None:
        while True:
            await workflow.wait_condition(self._inbox.__bool__)
            await self._read_messages()


@pytest.fixture
async def handle(plane: Plane) -> AsyncIterator[Any]:
    client = plane.durable.client
    async with patient(
        Worker(
            client,
            task_queue="praise",
            workflows=[Praised],
            activities=AuthorizationActivities(plane.databases).all,
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
    ):
        started = await client.start_workflow("Praised", id="praised", task_queue="praise")
        yield started
        await started.terminate()


async def test_a_new_message_is_answered_recorded_and_refused_like_all_others(handle: Any) -> None:
    assert await handle.execute_update("praise", PRAISE.example) == "alice@example.com likes it!"
    for wrong, why in (
        ([], "It has no payload"),
        ([None], "binary/null"),
        ([b"\x00"], "binary/plain"),
        ([{**WHO, "loudly": "yes"}], "loudly"),
        (["praise"], "Invalid payload"),
        ([[WHO]], "Invalid payload"),
    ):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("praise", args=wrong)
        assert isinstance(refused.value.cause, ApplicationError)
        assert why in refused.value.cause.message
        assert refused.value.cause.details == ("invalid",)
        assert refused.value.cause.failure is not None
        assert refused.value.cause.failure.stack_trace == "", "the sentence is for people"
    with pytest.raises(WorkflowUpdateFailedError) as several:
        await handle.execute_update("praise", args=[WHO, WHO])
    assert "several arguments; send one JSON object" in str(several.value.cause)
    with pytest.raises(WorkflowUpdateFailedError) as unknown:
        await handle.execute_update("scold", WHO)
    assert isinstance(unknown.value.cause, ApplicationError)
    why = "There is no message scold; send one of evict, praise"
    assert why in unknown.value.cause.message
    await handle.signal("praise", {**WHO, "request_id": "by-signal"})

    async def has_all() -> dict[str, Any] | None:
        seen = await handle.query("log")
        return seen if len(seen["unaudited"]) == 10 else None

    log = await until(has_all, "the signal was read, too")
    assert log is not None
    assert [record["accepted"] for record in log["unaudited"]] == [
        True, *[False] * 8, True
    ]  # fmt: skip
    assert {record["name"] for record in log["rejected"]} == {"praise", "scold"}


async def test_a_new_message_is_described_and_shown_on_the_page(
    handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = await handle.query("__temporal_workflow_metadata")
    described = {one.name: one.description for one in metadata.definition.update_definitions}
    assert described["praise"] == PRAISE.description
    assert json.dumps(PRAISE.example) in described["praise"]
    assert set(described) >= {"evict", "retry_now"}

    monkeypatch.setattr(registry, "REGISTRY", (*registry.REGISTRY, PRAISE))
    example = {**PRAISE.example, "request_id": "ui-1-praise"}
    page = page_of(placement())
    right = f"Needs the right `{PRAISE.verb}`."
    assert f"- `praise`: {PRAISE.sentence} {right} `{json.dumps(example)}`" in page

"""Whatever is sent to a workflow, by signal or update, is answered and fails no workflow task."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    UpdateWorkflowExecutionLifecycleStage,
    WorkflowTaskFailedCause,
)
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    SignalWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from durable.authority.audit.events import read_events
from durable.signals.names import PLACEMENT, WORKLOAD
from durable.signals.registry import Message, Sender, messages_to
from tests.workflows.plane import Plane, manifest, until

WHO = '"actor": "alice@example.com", "reason": "INC-42"'


def of(data: str | bytes, encoding: bytes = b"json/plain") -> Payload:
    raw = data if isinstance(data, bytes) else data.encode()
    return Payload(metadata={"encoding": encoding}, data=raw)


SHAPES: dict[str, list[Payload]] = {
    "none": [],
    "null": [of("", b"binary/null")],
    "a null in JSON": [of("null")],
    "bytes": [of(b"\x00\xff\xfe", b"binary/plain")],
    "protobuf": [of(b"\x0a\x03abc", b"binary/protobuf")],
    "protobuf in JSON": [of("{}", b"json/protobuf")],
    "an unknown encoding": [of("{}", b"\xff\x00")],
    "no encoding": [Payload(data=b"{}")],
    "no JSON": [of("{not json")],
    "an empty text": [of("")],
    "a text": [of('"hold"')],
    "a number": [of("7")],
    "a list": [of("[{}]")],
    "an empty request": [of('{"request_id": ""}')],
    "wrong types": [of('{"actor": 1, "reason": [], "request_id": {}, "slots": 0}')],
    "deep nesting": [of("[" * 50_000)],
    "deeper fields": [of('{"actor":' * 5_000 + "1" + "}" * 5_000)],
    "huge numbers": [of(f'{{"replicas": {"9" * 4000}, "slots": [1e999], "version": -1e999}}')],
    "a lone surrogate": [of(f'{{{WHO}, "request_id": "\\ud800"}}')],
    "bytes that are no text": [of(b'{"actor": "\xff\xfe"}')],
    "a NUL": [of('{"actor": "a\\u0000b", "reason": "x", "request_id": "n"}')],
    "a surprise": [of(f'{{{WHO}, "request_id": "n", "surprise": true}}')],
    "two arguments": [of("{}"), of("{}")],
    "two of different kinds": [of("{}"), of(b"\xff", b"binary/plain")],
}  # fmt: skip


def is_readable(message: Message, payloads: list[Payload]) -> bool:
    """Whether it is a message after all, as `{}` is a wake, and so is one with a surprise."""
    is_person = message.sender is Sender.PERSON
    read = message.payload.model_validate_json if is_person else message.payload.read_json
    try:
        read(payloads[0].data)
    except (ValidationError, IndexError):
        return False
    return len(payloads) == 1 and payloads[0].metadata.get("encoding") == b"json/plain"


def cases() -> Iterator[tuple[str, str, list[Payload]]]:
    """Each shape for each message of each workflow, and for one that there is not."""
    for workflow, kind in (
        ("workload/risk/api", WORKLOAD),
        ("placement/risk/api/g1/east", PLACEMENT),
    ):
        for shape in SHAPES.values():
            yield workflow, "no_such_message", shape
            for message in messages_to(kind):
                if not is_readable(message, shape):
                    yield workflow, message.name, shape


_CAME_MEANWHILE = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
# More than Temporal lets through at a time, or the run just continues as new.
_NOT_NOW = (
    RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.UNAVAILABLE, RPCStatusCode.FAILED_PRECONDITION,
)  # fmt: skip


async def signal(plane: Plane, workflow: str, name: str, payloads: list[Payload]) -> None:
    client = plane.durable.client
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow),
            signal_name=name,
            input=Payloads(payloads=payloads) if payloads else None,
        )
    )


async def update(plane: Plane, workflow: str, name: str, payloads: list[Payload]) -> str:
    """What the update was refused with."""
    client = plane.durable.client
    request = UpdateWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow),
        wait_policy=WaitPolicy(
            lifecycle_stage=UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
        ),
        request=Request(
            meta=Meta(update_id=str(uuid.uuid4())),
            input=Input(name=name, args=Payloads(payloads=payloads) if payloads else None),
        ),
    )
    while True:
        try:
            answer = await client.workflow_service.update_workflow_execution(request)
        except RPCError as error:
            if error.status not in _NOT_NOW:
                raise
            continue
        if answer.HasField("outcome"):
            assert answer.outcome.HasField("failure"), f"{name} was not refused"
            return answer.outcome.failure.message


async def failed_tasks(plane: Plane, workflow: str, first_run: str) -> list[Any]:
    """Of all runs; one that a message came into while its run continued as new is no failure."""
    failed: list[Any] = []
    run = first_run
    while run:
        handle = plane.durable.client.get_workflow_handle(workflow, run_id=run)
        events = (await handle.fetch_history()).events
        failed += [
            event
            for event in events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
            and event.workflow_task_failed_event_attributes.cause != _CAME_MEANWHILE
        ]
        run = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return failed


async def test_any_payload_is_answered_recorded_and_fails_no_task(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")
    room = asyncio.Semaphore(6)
    workflows = ("workload/risk/api", "placement/risk/api/g1/east")
    runs = {
        one: (await plane.durable.client.get_workflow_handle(one).describe()).run_id
        for one in workflows
    }

    async def send(workflow: str, name: str, payloads: list[Payload]) -> tuple[str, str]:
        async with room:
            await signal(plane, workflow, name, payloads)
            return name, await update(plane, workflow, name, payloads)

    sent = list(cases())
    answers = await asyncio.gather(*(send(*case) for case in sent))

    for name, answer in answers:
        is_sentence = answer.startswith(("It has no payload", "Its payload is", "Invalid payload"))
        has_many = answer.startswith("It has several arguments")
        assert is_sentence or has_many or answer.startswith(f"There is no message {name}"), answer
    for workflow in workflows:
        mine = 2 * sum(one == workflow for one, _, _ in sent)
        handle = plane.durable.client.get_workflow_handle(workflow)

        async def recorded(handle: Any = handle, mine: int = mine) -> bool:
            return (await handle.query("status"))["rejected_count"] >= mine

        await until(recorded, f"{workflow} has recorded {mine}")
        assert await failed_tasks(plane, workflow, runs[workflow]) == []

    async def audited() -> bool:
        events, _ = await read_events(plane.databases, last=10_000)
        return sum(event.action.startswith("reject message") for event in events) >= 2 * len(sent)

    await until(audited, "all of them are in the audit")
    status = await plane.durable.status("risk", "api")
    assert (status.generation, status.wanted, status.serving) == (1, 2, 2)
    json.dumps([one.model_dump(mode="json") for one in status.rejected])

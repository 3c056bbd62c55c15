"""Whatever is sent to a workflow, by signal or update, is answered and fails no workflow task.

And whatever bytes an override is started with: its input is a message, too.
"""

import asyncio
import json
import uuid
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
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
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from durable.authority.audit.events import read_events
from durable.authority.operators.changes import set_key
from durable.authority.overrides.rows import read_overrides
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId
from durable.model.operators.signature import public_key_of
from durable.signals.names import (
    GLOBAL_QUEUE,
    OVERRIDE,
    PLACEMENT,
    WORKLOAD,
    drain_id,
    kind_of,
    override_id,
    policy_id,
    recovery_id,
)
from durable.signals.registry import Message, Sender, messages_to
from durable.temporal.signing import signer_of
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.test_policy import publish

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


# Every message of every kind is read by the same code: one of each kind gets all shapes, and all of
# them what no reader of JSON can take. In the soak, each message of these two gets all shapes.
THOROUGH = (WORKLOAD, PLACEMENT)
UNREADABLE = ("none", "protobuf", "no JSON", "an empty text", "bytes that are no text")


def cases(
    workflows: list[str], thorough: Collection[str]
) -> Iterator[tuple[str, str, list[Payload]]]:
    """Each shape for each workflow and its messages, and for one that there is not."""
    for workflow in workflows:
        kind = kind_of(workflow)
        assert kind is not None
        first, *others = messages_to(kind)
        for name, shape in SHAPES.items():
            yield workflow, "no_such_message", shape
            takes_all = kind in thorough or name in UNREADABLE
            for message in (first, *others) if takes_all else (first,):
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


async def one_of_each_kind(plane: Plane) -> list[str]:
    """A workflow of every kind, none of which ends by itself."""
    await plane.load(small_fleet("east", "west"))
    await (await plane.host()).work(EAST, WEST)
    durable = plane.durable
    await durable.apply(manifest(requirements={"regions": ["east"]}))
    await durable.wait("risk", "api")
    held, _ = await durable.overrides.create(
        "hold", {"tenant": "risk", "workload": "api"}, reason="INC-1", id="o-1"
    )
    # What is held is not replaced elsewhere, so its node is never empty.
    node = next(iter((await plane.bindings()).values())).node
    target = NodesTarget.model_validate({"region": "east", "kind": "node", "name": str(node)})
    await durable.drains.start(target, reason="upkeep", request_id="d")
    revision = await publish(plane)
    key, test = Ed25519PrivateKey.generate(), ActorId("test")
    await set_key(plane.databases, test, public_key_of(key), actor=test, reason="a test")
    durable.signer = await signer_of(plane.databases, key)
    lost = await durable.recoveries.declare(WEST, reason="INC-2", request_id="r")
    return [
        "workload/risk/api",
        "placement/risk/api/g1/east",
        override_id(held.id),
        drain_id(target),
        policy_id(revision),
        recovery_id(lost.region, lost.epoch),
    ]


@pytest.mark.parametrize(
    "thorough", [(), pytest.param(THOROUGH, marks=pytest.mark.soak)], ids=["one", "each"]
)
async def test_any_payload_is_answered_recorded_and_fails_no_task(
    plane: Plane, thorough: tuple[str, ...]
) -> None:
    workflows = await one_of_each_kind(plane)
    room = {one: asyncio.Semaphore(6) for one in workflows}
    client = plane.durable.client
    runs = {one: (await client.get_workflow_handle(one).describe()).run_id for one in workflows}

    async def send(workflow: str, name: str, payloads: list[Payload]) -> tuple[str, str]:
        async with room[workflow]:
            await signal(plane, workflow, name, payloads)
            return name, await update(plane, workflow, name, payloads)

    sent = list(cases(workflows, thorough))
    answers = await asyncio.gather(*(send(*case) for case in sent))

    for name, answer in answers:
        is_sentence = answer.startswith(("It has no payload", "Its payload is", "Invalid payload"))
        has_many = answer.startswith("It has several arguments")
        assert is_sentence or has_many or answer.startswith(f"There is no message {name}"), answer
    for workflow in workflows:
        mine = 2 * sum(one == workflow for one, _, _ in sent)
        handle = client.get_workflow_handle(workflow)

        async def recorded(handle: Any = handle, mine: int = mine) -> bool:
            return (await handle.query("status"))["rejected_count"] >= mine

        await until(recorded, f"{workflow} has recorded {mine}")
        assert await failed_tasks(plane, workflow, runs[workflow]) == []

        async def audited(workflow: str = workflow, mine: int = mine) -> bool:
            events, _ = await read_events(plane.databases, target=workflow, last=10_000)
            rejected = [one for one in events if one.action.startswith("reject message")]
            return len(rejected) >= mine

        await until(audited, f"all that was sent to {workflow} is in the audit")
    status = await plane.durable.status("risk", "api")
    assert (status.generation, status.wanted, status.serving) == (1, 2, 2)
    json.dumps([one.model_dump(mode="json") for one in status.rejected])


async def test_any_input_of_an_override_is_refused_recorded_and_fails_no_task(plane: Plane) -> None:
    await (await plane.load()).work()
    propose = next(one for one in messages_to(OVERRIDE) if one.name == "propose")

    async def start(name: str, payloads: list[Payload]) -> None:
        id = f"override/{name.lower().replace(' ', '-')}"
        handle: Any = await plane.durable.client.start_workflow(
            OVERRIDE, args=[RawValue(one) for one in payloads], id=id, task_queue=GLOBAL_QUEUE
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError), name
        assert cause.message.startswith(("Its payload is", "Invalid payload")), cause.message
        assert (await handle.query("status"))["rejected_count"] == 1, name
        assert await failed_tasks(plane, id, handle.first_execution_run_id) == []
        events, _ = await read_events(plane.databases, target=id)
        assert [one.action for one in events] == ["reject message propose"], name

    # One that is started with nothing waits for a proposal.
    given = {
        name: shape for name, shape in SHAPES.items() if shape and not is_readable(propose, shape)
    }
    assert len(given) == len(SHAPES) - 1
    await asyncio.gather(*(start(name, shape) for name, shape in given.items()))
    assert await read_overrides(plane.databases) == []

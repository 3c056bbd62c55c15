"""Sends any message of the registry to any workflow, until it is answered.

Every message goes the same way, whatever it is and wherever it goes: its payload is read by its
row of the registry, it is signed again for each try, and it counts once by its request id. What is
wrong with a payload is refused here, and is in the audit like every other refusal.
"""

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.operators.ledger import Answer
from durable.authority.operators.refusals import record_refusal
from durable.authority.workloads.unmanaged import recall_unmanaged
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId, OverrideId, PolicyRevision, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import RecoveryKey
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload
from durable.resources.lookups import names_of
from durable.signals.names import (
    DRAIN,
    OVERRIDE,
    PLACEMENT,
    POLICY,
    RECOVERY,
    WORKLOAD,
    drain_target,
    kind_of,
    region_of,
    regional_queue,
)
from durable.signals.payloads import ApplyWorkload, OperatorRequest
from durable.signals.registry import Message, Sender, messages_to
from durable.signals.starting import (
    drain_options,
    override_options,
    policy_options,
    recovery_options,
    workload_options,
)
from durable.temporal.running import unserved_if_known
from durable.temporal.signing import Signer
from durable.temporal.updates import PATIENT, Patience, Turns, send_until_answered
from durable.validation.problems import in_one_line, problems_in
from durable.workflows.workload.state import WorkloadStart

REASON = "requested through the SDK"
WorkloadKey = tuple[TenantId, WorkloadName]
# What a message can be sent to: the key of its kind, or the id of its workflow.
Target = WorkloadKey | NodesTarget | OverrideId | PolicyRevision | RecoveryKey | str


class RequestFields(TypedDict, total=False):
    """What comes with everything that is asked for; without a request id, it has a new one."""

    reason: str
    request_id: str | None


class OrderFields(TypedDict):
    """The same where a person has to say why."""

    reason: str
    request_id: NotRequired[str | None]


@dataclass(frozen=True)
class Receiver:
    """A workflow to send to."""

    kind: str
    id: str
    # How it is started where it does not run; None if it is asked only while it runs.
    options: Mapping[str, Any] | None = None
    input: Any = None
    # Of a workload, which may have ended and still know what it answered.
    workload: WorkloadKey | None = None

    @property
    def queue(self) -> str:
        """Where its workers take their tasks."""
        if self.options is None:
            return regional_queue(region_of(self.id))
        return self.options["task_queue"]

    def start(self, payload: OperatorRequest) -> WithStartWorkflowOperation[Any, Any]:
        """One start is for one try."""
        assert self.options is not None, "it is asked only while it runs"
        options = dict(self.options)
        if self.workload is not None and isinstance(payload, ApplyWorkload):
            options = workload_options(*self.workload, payload.manifest.spec.priority)
        given = () if self.input is None else (self.input,)
        return WithStartWorkflowOperation(self.kind, *given, **options)


def receiver_of(target: Target) -> Receiver:
    """Which workflow a key means, and how it is started."""
    match target:
        case NodesTarget():
            return _started(DRAIN, drain_options(target), {"target": target})
        case OverrideId():
            return _started(OVERRIDE, override_options(target))
        case RecoveryKey():
            return _started(RECOVERY, recovery_options(target))
        case int():
            return _started(POLICY, policy_options(target), {"revision": target})
        case (tenant, name):
            options = workload_options(tenant, name)
            return _started(WORKLOAD, options, WorkloadStart(tenant, name), (tenant, name))
        case str():
            is_placement = kind_of(target) == PLACEMENT
            return Receiver(PLACEMENT, target) if is_placement else receiver_of(key_of(target))


# What a workflow's id says after its kind.
_KEYS: Mapping[str | None, Callable[[str], Target]] = {
    WORKLOAD: lambda rest: names_of(*rest.split("/", 1)),
    DRAIN: lambda rest: drain_target(f"drain/{rest}"),
    OVERRIDE: OverrideId,
    POLICY: int,
    RECOVERY: lambda rest: RecoveryKey.of_id(f"recovery/{rest}"),
}


def key_of(workflow_id: str) -> Target:
    """The key of what a workflow is for, by its id; refused if there is no such kind."""
    read = _KEYS.get(kind_of(workflow_id))
    try:
        if read is not None:
            return read(workflow_id.partition("/")[2])
    except (TypeError, ValueError):
        pass
    raise RefusedError(
        RefusalCode.INVALID, f"{workflow_id[:100]!r} is not the id of a workflow to send to."
    )


def _started(
    kind: str, options: dict[str, Any], input: Any = None, workload: WorkloadKey | None = None
) -> Receiver:
    return Receiver(kind, options["id"], options, input, workload)


class MessageSender:
    """Sends as one actor, with the actor's key if there is one."""

    def __init__(
        self,
        client: Client,
        databases: Databases,
        actor: ActorId,
        signer: Signer | None = None,
        patience: Patience = PATIENT,
    ) -> None:
        self.client, self.databases, self.actor = client, databases, actor
        self.signer, self.patience = signer or Signer(), patience
        self._turns = Turns()

    async def send(
        self,
        target: Target,
        name: str,
        *,
        reason: str = REASON,
        request_id: str | None = None,
        **fields: Any,
    ) -> Any:
        """The answer: a sentence; to `apply` and `scale`, what was admitted."""
        receiver = receiver_of(target)
        message = find_message(receiver.kind, name)
        who = {"actor": self.actor, "reason": reason, "request_id": request_id_of(request_id)}
        try:
            payload = read_payload(message, {**fields, **who})
        except RefusedError as refused:
            await self.audit(receiver.id, refused)
            raise
        async with self._turns.of(receiver.id):
            return await send_until_answered(
                f"send {name} to {receiver.id}",
                lambda: self._try(receiver, name, payload),
                patience=self.patience,
                is_served=lambda: self._is_served(receiver),
                # Everything else is started where it does not run.
                unknown=RefusalCode.UNKNOWN_PLACEMENT,
                see="durable get placements",
            )

    async def audit(self, target: str, refused: RefusedError) -> None:
        """What no workflow hears of is in the audit all the same, if the authority answers."""
        with suppress(AuthorityError):
            await record_refusal(self.databases, self.actor, target, refused.refusal)

    async def _is_served(self, receiver: Receiver) -> bool:
        """Whether a worker lives that the message waits for; no, if that cannot be found out."""
        try:
            now = await read_time(self.databases)
        except AuthorityError:
            return False
        return await unserved_if_known(self.client, [receiver.queue], now) == []

    async def _try(self, receiver: Receiver, name: str, payload: OperatorRequest) -> Any:
        if receiver.options is None:
            return await self._update(receiver, name, payload)
        if receiver.workload is None or name == "apply":
            return await self._update_with_start(receiver, name, payload)
        try:
            return await self._update(receiver, name, payload)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        # It has ended: it may have answered this before, and else begins with what exists.
        content = payload.model_dump(mode="json")
        message = OperatorMessage(workflow_id=receiver.id, message=name, payload=content)
        recorded = await recall_unmanaged(self.databases, *receiver.workload, message)
        if recorded is not None:
            return _read_answer(name, recorded)
        return await self._update_with_start(receiver, name, payload)

    async def _update(self, receiver: Receiver, name: str, payload: OperatorRequest) -> Any:
        handle = self.client.get_workflow_handle(receiver.id)
        return await handle.execute_update(  # pyright: ignore[reportUnknownMemberType]
            name,
            self.signer.sign(receiver.id, name, payload),
            id=_update_id(payload),
            result_type=_answer_type(receiver.kind, name),
            rpc_timeout=self.patience.each,
        )

    async def _update_with_start(
        self, receiver: Receiver, name: str, payload: OperatorRequest
    ) -> Any:
        """With a start: one that has ended, or was terminated, goes on and hears of it."""
        start = receiver.start(payload)
        try:
            return await self.client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]
                name,
                self.signer.sign(receiver.id, name, payload),
                start_workflow_operation=start,
                id=_update_id(payload),
                result_type=_answer_type(receiver.kind, name),
                rpc_timeout=self.patience.each,
            )
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            with suppress(Exception):
                await start.workflow_handle()  # it holds the same error
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                # The run that took it has ended: it is sent again, and the authority knows by the
                # request's id what came of it.
                raise RPCError(error.message, RPCStatusCode.ABORTED, b"") from error
            raise


def find_message(kind: str, name: str) -> Message:
    """The row of a person's message to this kind of workflow."""
    messages = {one.name: one for one in messages_to(kind, sender=Sender.PERSON)}
    if name not in messages:
        raise RefusedError(
            RefusalCode.INVALID,
            f"There is no message {name[:60]!r} to a {kind.lower()}; send one of "
            f"{', '.join(messages)}.",
        )
    return messages[name]


def read_payload(message: Message, content: Mapping[str, Any]) -> OperatorRequest:
    """The payload as a value, or one refusal that names every wrong field."""
    try:
        payload = message.payload.model_validate(dict(content))
    except ValidationError as error:
        problems = in_one_line(problems_in(error, message.payload))
        raise RefusedError(RefusalCode.INVALID, f"The request is wrong: {problems}") from None
    assert isinstance(payload, OperatorRequest), "what a person sends"
    return payload


def request_id_of(given: str | None) -> str:
    return f"request-{uuid.uuid4()}" if given is None else given


def _update_id(payload: OperatorRequest) -> str:
    """A new one for each send: under a known id Temporal would return an old failure again.

    What was accepted before is known to the receiver by the request's own id.
    """
    return f"{payload.request_id}/{uuid.uuid4()}"


def _answer_type(kind: str, name: str) -> type:
    return AdmittedWorkload if kind == WORKLOAD and name in ("apply", "scale") else str


def _read_answer(name: str, recorded: Answer) -> Any:
    if _answer_type(WORKLOAD, name) is str:
        return str(recorded["answer"])
    return AdmittedWorkload.read(recorded)

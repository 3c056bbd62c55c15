"""Messages in the order they came, read at one place of the workflow's loop and nowhere else.

A handler only puts its message here, so no message changes anything in the middle of a step, and a
workflow takes one step at a time. Of two local activities at once, the one that ends first when
they run need not be the one that ends first when their history is replayed.

A message that cannot be read, is unknown or is refused is recorded with the reason and changes
nothing. Which requests came before, the authority's ledger knows.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.model.operators.rights import OperatorMessage
    from durable.model.refusal import RefusalCode
    from durable.signals.payloads import OperatorRequest, Payload
    from durable.signals.registry import Message, Sender
    from durable.signals.status import MessageRecord
    from durable.validation.problems import in_one_line, problems_in
    from durable.validation.text import quote, shorten
    from durable.workflows.failures import refusal
    from durable.workflows.timeouts import AUDIT_PATIENCE, EVENTS_PER_RUN

REJECTED_KEPT = 20
PAYLOAD_CHARACTERS_KEPT = 500
# While so many wait to be audited, no further one is read.
UNAUDITED_KEPT = 200
ARGUMENTS_KEPT = 3
SEVERAL_ARGUMENTS = "It has several arguments; send one JSON object."


P = TypeVar("P", bound=Payload)


@dataclass
class Envelope(Generic[P]):
    """One message on its way; an update waits until it was answered or refused."""

    message: Message
    payload: P
    # Its position among all messages to this workflow.
    number: int = 0
    # The message as it came, if it carries a signature: that is over everything in it.
    signed: OperatorMessage | None = None
    # What its sender is answered; a sentence, except where a request has a result of its own.
    answer: Any = None
    refused: ApplicationError | None = None

    @property
    def request_message(self) -> OperatorMessage | None:
        """A person's message as it came, for the authority to judge and to count."""
        if not isinstance(self.payload, OperatorRequest) or self.signed is not None:
            return self.signed
        return OperatorMessage(
            workflow_id=workflow.info().workflow_id,
            message=self.message.name,
            payload=self.payload.model_dump(mode="json"),
        )

    @property
    def is_answered(self) -> bool:
        return self.answer is not None or self.refused is not None


@dataclass
class MessageLog:
    """What a workflow remembers of its messages across continue-as-new."""

    rejected: list[MessageRecord] = field(default_factory=list[MessageRecord])
    rejected_count: int = 0
    unaudited: list[MessageRecord] = field(default_factory=list[MessageRecord])
    audited_count: int = 0
    audit_at: datetime | None = None
    # How many rejected messages the audit will only hear of as a number.
    unrecorded: int = 0
    count: int = 0


class Inbox:
    """A queue of messages of known kinds, and the log of those that were rejected."""

    def __init__(self, messages: Sequence[Message], log: MessageLog) -> None:
        self._messages = {message.name: message for message in messages}
        self.log = log
        self._envelopes: deque[Envelope[Any]] = deque()
        self._has_news = False
        # Whether this run has answered a person, whatever that changed.
        self.has_answered = False

    def __bool__(self) -> bool:
        """Whether something came that the loop can look at now."""
        return self._has_news or (bool(self._envelopes) and not self._is_audit_full)

    def receive_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Queues a signal; its sender cannot be answered, so a rejection is recorded.

        All signals come raw: the SDK would drop one that it cannot decode with a line in a log, and
        fail the workflow task for ever over one that has too many arguments.
        """
        message = self._messages.get(name)
        if message is not None and len(args) <= 1:
            with suppress(ApplicationError):  # it is recorded
                self._envelopes.append(self.open(message, args[0] if args else None))
            return
        self._count()
        self.reject(name, _shown(*args), SEVERAL_ARGUMENTS if message else self._unknown(name))

    def refuse_several(self, name: str, values: Sequence[object]) -> ApplicationError:
        """The answer to an update with several arguments; it is recorded as well."""
        self._count()
        self.reject(name, ", ".join(map(quote, values[:ARGUMENTS_KEPT])), SEVERAL_ARGUMENTS)
        return _invalid(SEVERAL_ARGUMENTS)

    def refuse_unknown(self, name: str, args: Sequence[RawValue]) -> ApplicationError:
        """The answer to an update of a name that nothing handles; it is recorded as well."""
        self._count()
        self.reject(name, _shown(*args), self._unknown(name))
        return _invalid(self._unknown(name))

    async def receive_update(self, message: Message, raw: RawValue | None) -> Any:
        """Queues an update and waits until the loop has answered it, and the audit knows."""
        try:
            envelope = self.open(message, raw)
            self._envelopes.append(envelope)
            await workflow.wait_condition(lambda: envelope.is_answered)
            if envelope.refused is not None:
                raise envelope.refused
            return envelope.answer
        finally:
            await self.until_audited()

    async def until_audited(self) -> None:
        """Until what is recorded now is in the audit; not for long while that cannot be written.

        A sender who was answered finds the message there, even if the workflow is terminated next.
        """
        log = self.log
        due = log.audited_count + len(log.unaudited)
        if log.audited_count == due:
            return
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: log.audited_count >= due or log.audit_at is not None,
                timeout=AUDIT_PATIENCE,
                timeout_summary="waits: the audit, before it answers",
            )

    def open(self, message: Message, raw: RawValue | None) -> Envelope[Any]:
        """The message as it can be read; otherwise it is recorded as rejected, and refused."""
        self._count()
        try:
            # A person's mistake is refused; a controller may be of a later release.
            is_person = message.sender is Sender.PERSON
            payload = message.payload
            read = payload.model_validate_json if is_person else payload.read_json
            sent = json_of(raw)
            opened = read(sent)
            return Envelope(message, opened, self.log.count, _signed(message, opened, sent))
        except ValidationError as error:
            problems = in_one_line(problems_in(error, message.payload))
            refused = _invalid(f"Invalid payload: {problems}")
        except ApplicationError as error:
            refused = error
        self.reject(message.name, "" if raw is None else _shown(raw), refused.message)
        raise refused

    def put_first(self, envelope: Envelope[Any]) -> None:
        """Has a message read before all others."""
        self._envelopes.appendleft(envelope)

    def next(self) -> Envelope[Any] | None:
        """The next message, unless those before it wait for the audit."""
        self._has_news = False
        self._note_unrecorded()
        if self._envelopes and not self._is_audit_full:
            return self._envelopes.popleft()
        return None

    def repeat(self, envelope: Envelope[Any], answer: str) -> None:
        """Answers a message that came before; nothing changes, and the audit knows the first."""
        envelope.answer, self.has_answered = answer, True

    def accept(self, envelope: Envelope[Any], answer: Any) -> None:
        """Answers a message that was acted on, and has it audited if its kind is."""
        envelope.answer = answer
        self._has_news = True
        self.has_answered |= envelope.message.sender is Sender.PERSON
        if envelope.message.is_audited:
            name, payload = envelope.message.name, envelope.payload.model_dump_json()
            number = envelope.number
            self.log.unaudited.append(_record(name, payload, str(answer), number, accepted=True))

    def refuse(self, envelope: Envelope[Any], refused: ApplicationError) -> None:
        """Refuses a message that could be read; sent again under the same id, it counts."""
        envelope.refused = refused
        payload = envelope.payload.model_dump_json()
        self.reject(envelope.message.name, payload, refused.message, envelope.number)

    def reject(self, name: str, payload: str, why: str, number: int | None = None) -> None:
        """Records a message that changed nothing, for its sender and for the audit."""
        self._has_news = True
        rejected = _record(name, payload, why, self.log.count if number is None else number)
        self.log.rejected_count += 1
        self.log.rejected = [*self.log.rejected[1 - REJECTED_KEPT :], rejected]
        if self._is_audit_full:
            self.log.unrecorded += 1
        else:
            self.log.unaudited.append(rejected)

    @property
    def _is_audit_full(self) -> bool:
        return len(self.log.unaudited) >= UNAUDITED_KEPT

    def _note_unrecorded(self) -> None:
        if self.log.unrecorded and not self._is_audit_full:
            sentence = f"{self.log.unrecorded} more were rejected while the audit was not written."
            self.log.unaudited.append(_record("messages", "", sentence, self.log.count))
            self.log.unrecorded = 0

    def fresh_request_id(self) -> str:
        """One that no message to this workflow had, for the examples on its page."""
        # The beginning of a run's id is the time, which two lives of a workload may nearly share.
        return f"ui-{workflow.info().run_id[-12:]}-{self.log.count}"

    @property
    def is_idle(self) -> bool:
        """Whether nothing came that the loop has not looked at, and all were answered."""
        return not self and workflow.all_handlers_finished()

    @property
    def waits_for_audit(self) -> bool:
        """Whether messages are not read until those before them are in the audit."""
        return bool(self._envelopes) and self._is_audit_full

    async def let_handlers_finish(self, or_until: Callable[[], bool] | None = None) -> None:
        """A handler that was just answered must not keep a run from ending, nor be left behind.

        One whose message is not read for want of the audit would wait for the loop, and the loop
        for it.
        """
        await workflow.wait_condition(
            lambda: (
                bool(self)
                or self.waits_for_audit
                or workflow.all_handlers_finished()
                or (or_until is not None and or_until())
            )
        )

    async def rest(self, wait: timedelta, why: str) -> None:
        """Until something comes, or so long."""
        with suppress(TimeoutError):
            await workflow.wait_condition(
                self.__bool__, timeout=wait, timeout_summary=f"waits: {why}"[:200]
            )

    def is_full(self) -> bool:
        """Whether this run has had enough, by the server's word or by its messages.

        Not while some wait for room in the audit: the next run would not have them.
        """
        return not self._envelopes and (
            workflow.info().is_continue_as_new_suggested()
            or workflow.info().get_current_history_length() >= EVENTS_PER_RUN
        )

    def _unknown(self, name: str) -> str:
        people = (m.name for m in self._messages.values() if m.sender is Sender.PERSON)
        return f"There is no message {name}; send one of {', '.join(sorted(people))}."

    def _count(self) -> None:
        self.log.count += 1


def _invalid(sentence: str) -> ApplicationError:
    return refusal(RefusalCode.INVALID, sentence)


def json_of(raw: RawValue | None) -> bytes:
    """What was sent, if it may be JSON; refused otherwise."""
    if raw is None:
        raise _invalid("It has no payload; send one JSON object.")
    encoding = raw.payload.metadata.get("encoding", b"").decode(errors="replace")
    if encoding != "json/plain":
        raise _invalid(f"Its payload is {encoding or 'of no known encoding'}; send a JSON object.")
    return raw.payload.data


def _signed(message: Message, payload: Payload, sent: bytes) -> OperatorMessage | None:
    if not isinstance(payload, OperatorRequest) or payload.signature is None:
        return None
    return OperatorMessage(
        workflow_id=workflow.info().workflow_id, message=message.name, payload=json.loads(sent)
    )


def _shown(*raw: RawValue) -> str:
    """What was sent, as text that is never parsed: any bytes may be in it."""
    parts = (one.payload.data[:PAYLOAD_CHARACTERS_KEPT] for one in raw[:ARGUMENTS_KEPT])
    return ", ".join(part.decode(errors="replace") for part in parts)


def _record(
    name: str, payload: str, answer: str, number: int, *, accepted: bool = False
) -> MessageRecord:
    return MessageRecord(
        at=workflow.now(),
        name=_printable(name[:100]),
        answer=_printable(shorten(answer)),
        payload=_printable(payload[:PAYLOAD_CHARACTERS_KEPT]),
        accepted=accepted,
        number=number,
    )


def _printable(text: str) -> str:
    """Without what a database or a terminal could not show: it is evidence, not input."""
    return "".join(character if character.isprintable() else "?" for character in text)

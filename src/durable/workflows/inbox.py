"""Messages in the order they came, read at one place of the workflow's loop and nowhere else.

A handler only puts its message here, so no message changes anything in the middle of a step. A
message that cannot be read, is unknown or is refused is recorded with the reason and changes
nothing; neither does one that was accepted before, and its answer says so.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.model.refusal import RefusalCode
    from durable.signals.payloads import OperatorRequest, Payload
    from durable.signals.registry import Message, Sender
    from durable.signals.status import MessageRecord
    from durable.validation.problems import in_one_line, problems_in
    from durable.workflows.failures import refusal
    from durable.workflows.timeouts import MESSAGES_PER_RUN

REJECTED_KEPT = 20
REQUESTS_KEPT = 500
PAYLOAD_CHARACTERS_KEPT = 500
ARGUMENTS_KEPT = 3
SEVERAL_ARGUMENTS = "It has several arguments; send one JSON object."


@dataclass
class Envelope:
    """One message on its way; an update waits until it was answered or refused."""

    message: Message
    payload: Payload
    answer: str | None = None
    refused: ApplicationError | None = None
    # Whether its request id was counted, and has to be forgotten if it is refused.
    is_counted: bool = False

    @property
    def request(self) -> str | None:
        """What makes it the same message when it is sent twice."""
        payload = self.payload
        if not isinstance(payload, OperatorRequest):
            return None
        return f"{self.message.name}:{payload.request_id}"

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
    requests: list[str] = field(default_factory=list[str])
    count: int = 0


class Inbox:
    """A queue of messages of known kinds, and the log of those that were rejected."""

    def __init__(self, messages: Sequence[Message], log: MessageLog) -> None:
        self._messages = {message.name: message for message in messages}
        self.log = log
        self._envelopes: deque[Envelope] = deque()
        self._has_news = False
        self.count_in_this_run = 0

    def __bool__(self) -> bool:
        """Whether something came that the loop has not looked at."""
        return bool(self._envelopes) or self._has_news

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

    def refuse_unknown(self, name: str, args: Sequence[RawValue]) -> ApplicationError:
        """The answer to an update of a name that nothing handles; it is recorded as well."""
        self._count()
        self.reject(name, _shown(*args), self._unknown(name))
        return _invalid(self._unknown(name))

    async def receive_update(self, message: Message, raw: RawValue | None) -> str:
        """Queues an update and waits until the loop has answered it."""
        envelope = self.open(message, raw)
        self._envelopes.append(envelope)
        await workflow.wait_condition(lambda: envelope.is_answered)
        if envelope.refused is not None:
            raise envelope.refused
        assert envelope.answer is not None
        return envelope.answer

    def open(self, message: Message, raw: RawValue | None) -> Envelope:
        """The message as it can be read; otherwise it is recorded as rejected, and refused."""
        self._count()
        try:
            return Envelope(message, message.payload.model_validate_json(_json(raw)))
        except ValidationError as error:
            problems = in_one_line(problems_in(error, message.payload))
            refused = _invalid(f"Invalid payload: {problems}")
        except ApplicationError as error:
            refused = error
        self.reject(message.name, "" if raw is None else _shown(raw), refused.message)
        raise refused

    def next(self) -> Envelope | None:
        """The next message that was not received before."""
        self._has_news = False
        while self._envelopes:
            envelope = self._envelopes.popleft()
            request = envelope.request
            if request is None:
                return envelope
            if request not in self.log.requests:
                self.log.requests = [*self.log.requests[1 - REQUESTS_KEPT :], request]
                envelope.is_counted = True
                return envelope
            assert isinstance(envelope.payload, OperatorRequest)
            envelope.answer = (
                f"Request {envelope.payload.request_id} was accepted before, so nothing changed; "
                "to repeat it, send it with another request_id."
            )
        return None

    def accept(self, envelope: Envelope, answer: str) -> None:
        """Answers a message that was acted on, and has it audited if its kind is."""
        envelope.answer = answer
        if envelope.message.is_audited:
            payload = envelope.payload.model_dump_json()
            self.log.unaudited.append(
                _record(envelope.message.name, payload, answer, accepted=True)
            )

    def refuse(self, envelope: Envelope, refused: ApplicationError) -> None:
        """Refuses a message that could be read; sent again under the same id, it counts."""
        if envelope.is_counted:
            self.log.requests = [one for one in self.log.requests if one != envelope.request]
        envelope.refused = refused
        self.reject(envelope.message.name, envelope.payload.model_dump_json(), refused.message)

    def reject(self, name: str, payload: str, why: str) -> None:
        """Records a message that changed nothing, for its sender and for the audit."""
        self._has_news = True
        rejected = _record(name, payload, why)
        self.log.rejected_count += 1
        self.log.rejected = [*self.log.rejected[1 - REJECTED_KEPT :], rejected]
        self.log.unaudited.append(rejected)

    def is_full(self) -> bool:
        """Whether this run has had enough, by the server's word or by its messages."""
        return (
            workflow.info().is_continue_as_new_suggested()
            or self.count_in_this_run >= MESSAGES_PER_RUN
        )

    def _unknown(self, name: str) -> str:
        people = (m.name for m in self._messages.values() if m.sender is Sender.PERSON)
        return f"There is no message {name}; send one of {', '.join(sorted(people))}."

    def _count(self) -> None:
        self.count_in_this_run += 1
        self.log.count += 1


def _invalid(sentence: str) -> ApplicationError:
    return refusal(RefusalCode.INVALID, sentence)


def _json(raw: RawValue | None) -> bytes:
    if raw is None:
        raise _invalid("It has no payload; send one JSON object.")
    encoding = raw.payload.metadata.get("encoding", b"").decode(errors="replace")
    if encoding != "json/plain":
        raise _invalid(f"Its payload is {encoding or 'of no known encoding'}; send a JSON object.")
    return raw.payload.data


def _shown(*raw: RawValue) -> str:
    """What was sent, as text that is never parsed: any bytes may be in it."""
    parts = (one.payload.data[:PAYLOAD_CHARACTERS_KEPT] for one in raw[:ARGUMENTS_KEPT])
    return ", ".join(part.decode(errors="replace") for part in parts)


def _record(name: str, payload: str, answer: str, *, accepted: bool = False) -> MessageRecord:
    return MessageRecord(
        at=workflow.now(),
        name=_printable(name[:100]),
        answer=_printable(answer[:500]),
        payload=_printable(payload[:PAYLOAD_CHARACTERS_KEPT]),
        accepted=accepted,
    )


def _printable(text: str) -> str:
    """Without what a database or a terminal could not show: it is evidence, not input."""
    return "".join(character if character.isprintable() else "?" for character in text)

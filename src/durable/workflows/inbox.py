"""Messages in the order they came, read at one place of the workflow's loop and nowhere else.

A handler only puts its message here, so no message changes anything in the middle of a step. What
cannot be read, is not known or was sent before is kept with the reason and changes nothing.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.signals.messages import Asked, Message
    from durable.signals.status import RejectedMessage
    from durable.validation.problems import in_one_line, problems_in

REJECTED_KEPT = 20
REQUESTS_KEPT = 500
PAYLOAD_KEPT = 500


@dataclass
class Letter:
    """One message on its way; an update waits until it was read."""

    name: str
    message: Message
    answer: str | None = None

    @property
    def request(self) -> str | None:
        """What makes it the same message when it is sent twice."""
        asked = self.message
        return f"{self.name}:{asked.request_id}" if isinstance(asked, Asked) else None


@dataclass
class MessageRecord:
    """What a workflow remembers of its messages over continue-as-new."""

    rejected: list[RejectedMessage] = field(default_factory=list[RejectedMessage])
    rejected_in_all: int = 0
    unaudited: list[RejectedMessage] = field(default_factory=list[RejectedMessage])
    audited: int = 0
    audit_at: datetime | None = None
    requests: list[str] = field(default_factory=list[str])
    in_all: int = 0


class Inbox:
    """A queue of messages of known kinds, and the record of those that were refused."""

    def __init__(self, kinds: Mapping[str, type[Message]], record: MessageRecord) -> None:
        self._kinds = kinds
        self.record = record
        self._letters: deque[Letter] = deque()
        self._is_stirred = False
        self.in_this_run = 0

    def __bool__(self) -> bool:
        """Whether something came that the loop has not looked at."""
        return bool(self._letters) or self._is_stirred

    def signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Takes a signal as it came; its sender cannot be answered, so refusals are kept.

        All signals come raw: the SDK would drop one that it cannot decode with a line in a log, and
        fail the workflow's task for ever over one that has too many arguments.
        """
        self._is_stirred = True
        self._count()
        try:
            decode = workflow.payload_converter().from_payload
            raw: Any = [decode(arg.payload) for arg in args]
        except Exception as error:  # any payload, any converter: it must not fail the workflow
            self.reject(name, None, f"It cannot be decoded: {error}")
            return
        if len(raw) > 1:
            self.reject(name, raw, "It has several arguments; send one JSON object.")
            return
        self._take(name, raw[0] if raw else {})

    def _take(self, name: str, raw: object) -> None:
        kind = self._kinds.get(name)
        if kind is None:
            # Those with an example are people's; the others are between controllers.
            known = ", ".join(sorted(name for name, kind in self._kinds.items() if kind.example))
            self.reject(name, raw, f"There is no message {name}; send one of {known}.")
            return
        try:
            message = kind.model_validate(raw)
        except ValidationError as error:
            problems = in_one_line(problems_in(error, kind))
            self.reject(name, raw, f"It cannot be read: {problems}")
            return
        self._letters.append(Letter(name, message))

    async def update(self, name: str, message: Message) -> str:
        """Takes an update and waits until the workflow has read it."""
        self._count()
        letter = Letter(name, message)
        self._letters.append(letter)
        await workflow.wait_condition(lambda: letter.answer is not None)
        assert letter.answer is not None
        return letter.answer

    def next(self) -> Letter | None:
        """The next message that was not seen before."""
        self._is_stirred = False
        while self._letters:
            letter = self._letters.popleft()
            request = letter.request
            if request is None:
                return letter
            if request not in self.record.requests:
                self.record.requests = [*self.record.requests[1 - REQUESTS_KEPT :], request]
                return letter
            letter.answer = (
                f"Request {request.partition(':')[2]} was taken before, so nothing changed; "
                "if it is meant anew, send it with another request_id."
            )
        return None

    def forget(self, letter: Letter) -> None:
        """It was not taken after all: sent again, it counts."""
        self.record.requests = [one for one in self.record.requests if one != letter.request]

    def reject(self, name: str, raw: object, why: str) -> None:
        rejected = RejectedMessage(
            at=workflow.now(),
            name=_printable(name)[:100],
            why=_printable(why)[:500],
            payload=_shown(raw),
        )
        record = self.record
        record.rejected_in_all += 1
        record.rejected = [*record.rejected[1 - REJECTED_KEPT :], rejected]
        record.unaudited.append(rejected)

    def audit(self, letter: Letter, answer: str) -> None:
        """Has a person's message that was taken put into the audit, with who asked and why."""
        self.record.unaudited.append(
            RejectedMessage(
                at=workflow.now(),
                name=letter.name,
                why=answer[:500],
                payload=_shown(letter.message.model_dump(mode="json")),
                taken=True,
            )
        )

    def _count(self) -> None:
        self.in_this_run += 1
        self.record.in_all += 1


def _shown(raw: object) -> str:
    try:
        return _printable(json.dumps(raw, default=str))[:PAYLOAD_KEPT]
    except (TypeError, ValueError):
        return _printable(repr(raw))[:PAYLOAD_KEPT]


def _printable(text: str) -> str:
    """Without what a database or a terminal could not show: it is evidence, not input."""
    return "".join(character if character.isprintable() else "?" for character in text)


def described(kind: type[Message], sentence: str) -> str:
    """What the Temporal UI shows beside a message: a sentence and an example to copy."""
    example: dict[str, Any] = kind.example
    return f"{sentence} Example: {json.dumps(example)}"

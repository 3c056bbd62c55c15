"""What an agent asks of whatever runs replicas: start and stop by token, and say what is seen."""

import unicodedata
from collections.abc import Sequence
from typing import Protocol

from durable.authority.fleet.assignments import Assignment
from durable.model.states import ObservedState
from durable.validation.text import MAX_LENGTH, PlainText
from durable.validation.value import Value

ENDS = frozenset({ObservedState.FAILED, ObservedState.STOPPED})


class StopOrder(Value):
    """Why a replica shall end, and how its end is to be told."""

    reason: PlainText
    # A job that stopped by itself is done, so one that its node had to end must not look like it.
    ends_as: ObservedState = ObservedState.STOPPED
    # A lease that has ended leaves no time for grace.
    at_once: bool = False


class Report(Protocol):
    """Tells the agent what was seen of a replica; only the newest word is kept."""

    def __call__(self, token: int, state: ObservedState, evidence: str) -> None: ...


class Driver(Protocol):
    """Runs the replicas of one region on this agent's nodes, each token at most once."""

    async def adopt(self, report: Report) -> Sequence[Assignment]:
        """What is known from before; nothing is reported until this has returned."""
        ...

    async def start(self, assignment: Assignment) -> None:
        """Begins a replica; again for the same token it changes nothing. Never raises for it."""
        ...

    async def stop(self, token: int, order: StopOrder) -> None:
        """Begins to stop it; the end is reported. One that has ended or is unknown stays so."""
        ...

    async def forget(self, token: int) -> None:
        """The region has released it and it has ended: nobody asks for it again."""
        ...

    async def close(self) -> None:
        """The agent ends; what it runs need not."""
        ...


def as_evidence(text: str) -> str:
    """Any text as evidence: on one line, in normal form C, printable, and not too long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return unicodedata.normalize("NFC", plain)[:MAX_LENGTH].strip() or "nothing was said"

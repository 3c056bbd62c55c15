"""What an agent asks of a driver: start and stop replicas by token, and report their states."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from durable.authority.fleet.assignments import Assignment
from durable.model.states import ObservedState
from durable.validation.text import MAX_LENGTH, PlainText
from durable.validation.value import Value

ENDS = frozenset({ObservedState.FAILED, ObservedState.STOPPED})


class StopOrder(Value):
    """Why a replica must stop, and how its end is reported."""

    reason: PlainText
    # A job that stopped by itself is done; one that its node had to stop must not look like that.
    ends_as: ObservedState = ObservedState.STOPPED
    # A lease that has ended leaves no time for a grace period.
    at_once: bool = False


FENCED = StopOrder(
    reason="its node could not renew its lease, and its on_disconnect is stop",
    ends_as=ObservedState.FAILED,
    at_once=True,
)

FENCED_REGION = StopOrder(
    reason="the lease of its region lapsed, and its on_disconnect is stop",
    ends_as=ObservedState.FAILED,
    at_once=True,
)


class ReplicaReport(Protocol):
    """Reports what a replica was seen to be; only the newest report counts."""

    def __call__(
        self,
        token: int,
        state: ObservedState,
        evidence: str,
        *,
        log_directory: Path | None = None,
        exit_code: int | None = None,
    ) -> None: ...


class Driver(Protocol):
    """Runs the replicas of one region on this agent's nodes, each token at most once."""

    async def adopt(self, report: ReplicaReport) -> Sequence[Assignment]:
        """Takes over what already runs; nothing is reported until this has returned."""
        ...

    async def start(self, assignment: Assignment) -> None:
        """Starts a replica, at most once per token; failures are reported, never raised."""
        ...

    async def stop(self, token: int, order: StopOrder) -> None:
        """Begins to stop a replica, unless it has ended or is unknown; its end is reported."""
        ...

    async def forget(self, token: int) -> None:
        """Drops a replica that has ended and that its region has released."""
        ...

    async def close(self) -> None:
        """Ends with the agent; the replicas may run on."""
        ...


def as_evidence(text: str) -> str:
    """Any text as evidence: on one line, in normal form C, printable, and not too long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return unicodedata.normalize("NFC", plain)[:MAX_LENGTH].strip() or "no evidence was given"

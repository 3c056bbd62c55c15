"""The replicas of one agent: what each was last seen to be, and what is still unreported."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from durable.agent.driver import ENDS, as_evidence
from durable.agent.log import Log
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import NodeId
from durable.model.states import ObservedState


@dataclass(slots=True)
class Replica:
    """One token on this agent's nodes."""

    assignment: Assignment
    state: ObservedState | None = None
    evidence: str = ""
    # Where its output is kept on its node; None if there is none.
    log_directory: str | None = None
    # That its process has ended with; None if a signal ended it.
    exit_code: int | None = None
    # It runs although its region no longer has it here; its node registers only after its end.
    is_stray: bool = False
    # Its token means another assignment by now, so what becomes of it is not reported.
    is_foreign: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS

    @property
    def stops_when_cut_off(self) -> bool:
        return self.assignment.stops_when_cut_off


class PendingReports:
    """The tokens whose newest state the authority has not accepted, each with a sequence number.

    Only the newest state counts, so an authority that is away for a day costs one entry per
    replica. The numbers grow over the agent's whole life, so they are valid in every session.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, token: int) -> None:
        # Moved to the end: a replica that flaps does not push itself ahead of the others.
        self._waiting.pop(token, None)
        self._waiting[token] = next(self._numbers)

    def in_order(self) -> list[tuple[int, int]]:
        """Every token with its number, the one that has waited longest first."""
        return list(self._waiting.items())

    def accepted(self, token: int, number: int) -> None:
        """Removes the entry, unless something newer was put while the report was on its way."""
        if self._waiting.get(token) == number:
            del self._waiting[token]

    def drop(self, token: int) -> None:
        self._waiting.pop(token, None)


class Replicas:
    """All of them by token; `changed` is set when there is news, `ended` when one has ended."""

    def __init__(self, log: Log, *, logs_each: bool) -> None:
        self._log = log
        self._logs_each = logs_each
        self._by_token: dict[int, Replica] = {}
        self.pending_reports = PendingReports()
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._by_token.values()))

    def get(self, token: int) -> Replica | None:
        return self._by_token.get(token)

    def add(self, assignment: Assignment) -> Replica:
        replica = Replica(assignment)
        self._by_token[assignment.token] = replica
        return replica

    def remove(self, token: int) -> None:
        self._by_token.pop(token, None)
        self.pending_reports.drop(token)

    def record(
        self,
        token: int,
        state: ObservedState,
        evidence: str,
        *,
        log_directory: Path | None = None,
        exit_code: int | None = None,
    ) -> None:
        """What a driver reports of a replica."""
        replica = self._by_token.get(token)
        # An end is final: a late answer of a probe does not bring a process back.
        if replica is None or replica.has_ended:
            return
        replica.state, replica.evidence = state, as_evidence(evidence)
        replica.exit_code = exit_code
        replica.log_directory = _as_shown(log_directory) or replica.log_directory
        self.pending_reports.put(token)
        self.changed.set()
        if replica.has_ended:
            self.ended.set()
        if self._logs_each:
            logs = {} if replica.log_directory is None else {"logs": replica.log_directory}
            node = replica.assignment.node
            self._log(str(state), node=node, token=token, evidence=replica.evidence, **logs)

    def report_again(self, nodes: Collection[NodeId]) -> None:
        """Reports everything again, because a new session knows nothing of the one before it."""
        for token, replica in self._by_token.items():
            if replica.state is not None and replica.assignment.node in nodes:
                self.pending_reports.put(token)
        self.changed.set()

    def nodes_with_strays(self) -> frozenset[NodeId]:
        return frozenset(
            replica.assignment.node
            for replica in self._by_token.values()
            if replica.is_stray and not replica.has_ended
        )


def _as_shown(path: Path | None) -> str | None:
    """The path as plain text; None if it had to be altered, since it would then lead nowhere."""
    shown = None if path is None else str(path)
    return shown if shown is not None and as_evidence(shown) == shown else None

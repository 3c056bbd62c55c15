"""The replicas of one agent: what each was last seen to be, and what of it is still untold."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from durable.agent.drivers import ENDS, as_evidence
from durable.agent.log import Log
from durable.agent.outbox import Outbox
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import NodeId
from durable.model.running import OnDisconnect
from durable.model.states import ObservedState


@dataclass(slots=True)
class Replica:
    """One token on this agent's nodes."""

    assignment: Assignment
    state: ObservedState | None = None
    evidence: str = ""
    # It runs although the region no longer wants it here: its node waits for its end.
    is_stray: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS

    @property
    def stops_when_cut_off(self) -> bool:
        spec = self.assignment.spec
        return spec is not None and spec.run.on_disconnect is OnDisconnect.STOP


class Replicas:
    """The book of them; `untold` is set when there is news, `ended` when one of them ended."""

    def __init__(self, log: Log, *, tells_each: bool) -> None:
        self._log = log
        self._tells_each = tells_each
        self._by_token: dict[int, Replica] = {}
        self.outbox = Outbox()
        self.untold = asyncio.Event()
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
        self.outbox.drop(token)

    def saw(self, token: int, state: ObservedState, evidence: str) -> None:
        """The drivers' report."""
        replica = self._by_token.get(token)
        # An end is final: a probe that answers late does not bring a process back.
        if replica is None or replica.has_ended:
            return
        replica.state, replica.evidence = state, as_evidence(evidence)
        self.outbox.put(token)
        self.untold.set()
        if replica.has_ended:
            self.ended.set()
        if self._tells_each:
            node = replica.assignment.node
            self._log(str(state), node=node, token=token, evidence=replica.evidence)

    def tell_again(self, nodes: Collection[NodeId]) -> None:
        """A new session knows nothing of what the one before it told."""
        for token, replica in self._by_token.items():
            if replica.state is not None and replica.assignment.node in nodes:
                self.outbox.put(token)
        self.untold.set()

    def nodes_with_strays(self) -> frozenset[NodeId]:
        return frozenset(
            replica.assignment.node
            for replica in self._by_token.values()
            if replica.is_stray and not replica.has_ended
        )

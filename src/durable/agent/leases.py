"""Until when each node may trust its lease, by the agent's own clock and never too late.

The authority counts a lease from when it hears of it; the agent counts from when it asked, which
is earlier. So the agent gives up first, whatever the network did in between.
"""

import sys
import time
from collections.abc import Collection, Mapping

from durable.model.ids import NodeId


def boot_seconds() -> float:
    """Seconds since some fixed moment, which go on while the machine is suspended."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Leases:
    """The session and the deadline of each node; both are lost on their own."""

    def __init__(self, trusted_seconds: float) -> None:
        self._trusted_seconds = trusted_seconds
        self._sessions: dict[NodeId, int] = {}
        self._deadlines: dict[NodeId, float] = {}

    @property
    def sessions(self) -> Mapping[NodeId, int]:
        """The sessions that stand, as far as the agent knows."""
        return self._sessions

    def by_deadline(self) -> list[tuple[NodeId, int]]:
        """The sessions, those whose lease ends first in front."""
        return sorted(self._sessions.items(), key=lambda pair: self._deadlines.get(pair[0], 0.0))

    def begun(self, sessions: Mapping[NodeId, int], sent_at: float) -> None:
        self._sessions.update(sessions)
        self.renewed(sessions, sent_at)

    def renewed(self, nodes: Collection[NodeId], sent_at: float) -> None:
        for node in nodes:
            before = self._deadlines.get(node, sent_at)
            self._deadlines[node] = max(before, sent_at + self._trusted_seconds)

    def trust_until(self, node: NodeId, deadline: float) -> None:
        """Takes over what an agent before this one knew of the node's lease."""
        self._deadlines[node] = deadline

    def end_session(self, node: NodeId, session: int) -> None:
        """The authority no longer counts this session; the lease's time runs on by itself.

        Until it is over the agent may ask what to do, and need not stop anything on its own.
        """
        if self._sessions.get(node) == session:
            del self._sessions[node]

    def take_lapsed(self, now: float) -> list[NodeId]:
        """The nodes whose lease ended by `now`, each told once; their sessions end with it."""
        lapsed = [node for node, deadline in self._deadlines.items() if deadline <= now]
        for node in lapsed:
            del self._deadlines[node]
            self._sessions.pop(node, None)
        return lapsed

    def holds(self, node: NodeId, now: float) -> bool:
        """Whether the node has a session and a lease at this very moment.

        By the clock, not by who was told: an agent that was suspended wakes up in the middle of
        what it did, before anybody has noticed that the lease is over.
        """
        return node in self._sessions and self._deadlines.get(node, now) > now

    def drop(self, node: NodeId) -> None:
        """This agent no longer hosts the node."""
        self._sessions.pop(node, None)
        self._deadlines.pop(node, None)

    def deadline_of(self, node: NodeId) -> float | None:
        return self._deadlines.get(node)

"""Until when each node may trust its lease, by the agent's own clock and never too late.

The authority counts a lease from when it receives the request, the agent from when it sent it,
which is earlier. So the agent gives up first, whatever the network did in between.
"""

import math
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from durable.model.fleet.region_life import LeaseLeft
from durable.model.ids import NodeId

# What must stop by the end of a lease needs a moment to.
KILLING_SECONDS = 2.0


def boot_seconds() -> float:
    """Seconds since the machine booted, counting those while it was suspended."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a lease lasts, and the intervals that follow from it."""

    lease_ttl_seconds: int = 15
    # A lost notification is made up for by then.
    resync_seconds: float = 30.0
    # Changes within this time are handled together.
    gather_seconds: float = 0.02
    # After an error, before the next try.
    retry_seconds: float = 0.5
    # How often the agent checks whether a lease has ended.
    fence_check_seconds: float = 0.1

    @property
    def renew_seconds(self) -> float:
        """Two renewals may be lost before the third is too late."""
        return self.lease_ttl_seconds / 3

    @property
    def trusted_seconds(self) -> float:
        """How long the agent itself trusts a lease: what must stop by its end needs a moment to.

        The rest, at most two seconds, is for killing; docs/design.md has the arithmetic.
        """
        return self.lease_ttl_seconds - min(KILLING_SECONDS, self.lease_ttl_seconds / 5)

    @property
    def call_seconds(self) -> float:
        """How long a call may take: an answer later than a lease helps nobody."""
        return float(max(self.lease_ttl_seconds, 5))


class Leases:
    """The session and the deadline of each node; either can be lost without the other."""

    def __init__(self, trusted_seconds: float) -> None:
        self._trusted_seconds = trusted_seconds
        # Until when the region is left to itself: then others may run its work, wherever the
        # region's database is.
        self._region_until = math.inf
        self._sessions: dict[NodeId, int] = {}
        self._deadlines: dict[NodeId, float] = {}

    @property
    def sessions(self) -> Mapping[NodeId, int]:
        """The current sessions, as far as the agent knows."""
        return self._sessions

    def by_deadline(self) -> list[tuple[NodeId, int]]:
        """The sessions, ordered by when their leases end."""
        return sorted(self._sessions.items(), key=lambda pair: self._deadlines.get(pair[0], 0.0))

    def begun(self, sessions: Mapping[NodeId, int], sent_at: float) -> None:
        self._sessions.update(sessions)
        self.renewed(sessions, sent_at)

    def renewed(self, nodes: Collection[NodeId], sent_at: float) -> None:
        for node in nodes:
            before = self._deadlines.get(node, sent_at)
            self._deadlines[node] = max(before, sent_at + self._trusted_seconds)

    def bound_by_region(self, left: LeaseLeft, sent_at: float) -> None:
        """Adopts how long the lease of the region lasts.

        While its clock has jumped, what this agent has counted by its own goes on to hold.
        """
        if left.has_jumped and self._region_until < math.inf:
            return
        if left.seconds is None:
            self._region_until = math.inf
        else:
            self._region_until = sent_at + left.seconds - KILLING_SECONDS

    def has_region_lapsed(self, now: float) -> bool:
        """Whether the region may have been given up, although its database answers."""
        return self._region_until <= now

    def trust_until(self, node: NodeId, deadline: float) -> None:
        """Adopts what an earlier agent knew about the node's lease."""
        self._deadlines[node] = deadline

    def end_session(self, node: NodeId, session: int) -> None:
        """The authority no longer accepts this session, but its lease runs on.

        Until the lease ends the agent can ask what to do, and need not stop anything by itself.
        """
        if self._sessions.get(node) == session:
            del self._sessions[node]

    def take_lapsed(self, now: float) -> list[NodeId]:
        """The nodes whose lease ended by `now`, each returned once; their sessions end with it."""
        lapsed = [node for node, deadline in self._deadlines.items() if deadline <= now]
        for node in lapsed:
            del self._deadlines[node]
            self._sessions.pop(node, None)
        return lapsed

    def holds(self, node: NodeId, now: float) -> bool:
        """Whether the node has a session and a lease at this very moment.

        By the clock, not by what was noticed: an agent that was suspended wakes up in the middle
        of its work, before anything has noticed that the lease is over.
        """
        return node in self._sessions and self._deadlines.get(node, now) > now

    def drop(self, node: NodeId) -> None:
        """This agent no longer hosts the node."""
        self._sessions.pop(node, None)
        self._deadlines.pop(node, None)

    def stop_at(self, node: NodeId) -> float | None:
        """When what must not run without a lease has to end on this node."""
        deadline = self._deadlines.get(node)
        return None if deadline is None else min(deadline, self._region_until)

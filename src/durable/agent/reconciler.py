"""Makes the replicas match what the region assigns: starts, stops and forgets them by token."""

from collections.abc import Callable, Collection, Sequence

from durable.agent.driver import ENDS, Driver, StopOrder, as_evidence
from durable.agent.leases import Leases
from durable.agent.replicas import Replica, Replicas
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import NodeId
from durable.model.states import ObservedState

NO_SPEC = "its region holds no description of it that this agent can read"
NEVER_STARTED = "its stop was requested before it was started here"


class ReplicaReconciler:
    """Applies assignments in the order of their versions; all starts go through here."""

    def __init__(
        self, driver: Driver, replicas: Replicas, leases: Leases, clock: Callable[[], float]
    ) -> None:
        self._driver = driver
        self._replicas = replicas
        self._leases = leases
        self._clock = clock
        # Something waits for the end of another, and is found again only by a whole read.
        self.needs_whole_read = False

    async def apply(
        self,
        assignments: Sequence[Assignment],
        *,
        is_whole: bool,
        cut_off: Collection[NodeId] = (),
    ) -> None:
        """Applies changes; a whole list also ends every replica that it does not name.

        It says nothing of nodes that are cut off.
        """
        self.needs_whole_read = False
        for assignment in assignments:
            await self._apply(assignment)
        if not is_whole:
            return
        assigned = {assignment.token for assignment in assignments}
        for replica in self._replicas:
            assignment = replica.assignment
            if assignment.token not in assigned and assignment.node not in cut_off:
                await self.end(replica)

    async def _apply(self, assignment: Assignment) -> None:
        replica = self._replicas.get(assignment.token)
        if assignment.released:
            if replica is not None:
                await self.end(replica)
            return
        if replica is not None and replica.assignment.identity != assignment.identity:
            if not await self._end_foreign(replica):
                return
            replica = None
        if replica is None:
            replica = await self._start(assignment)
        if replica is not None and assignment.stop_requested and not replica.has_ended:
            reason = as_evidence(assignment.stop_reason or "its region requested it")
            await self._driver.stop(assignment.token, StopOrder(reason=reason))

    async def _start(self, assignment: Assignment) -> Replica | None:
        # Without a lease the region may move the work elsewhere at any time, so nothing is started.
        # The whole read after the next registration finds it again.
        now = self._clock()
        has_lease = self._leases.holds(assignment.node, now)
        if assignment.observed in ENDS or not has_lease:
            return None
        if assignment.stops_when_cut_off and self._leases.has_region_lapsed(now):
            # The region may have been given up since this was committed.
            self.needs_whole_read = True
            return None
        replica = self._replicas.add(assignment)
        if assignment.stop_requested and assignment.observed is None:
            self._replicas.record(assignment.token, ObservedState.STOPPED, NEVER_STARTED)
        elif assignment.spec is None:
            self._replicas.record(assignment.token, ObservedState.FAILED, NO_SPEC)
        else:
            await self._driver.start(assignment)
        return replica

    async def _end_foreign(self, replica: Replica) -> bool:
        """Ends what ran here under the same token before; whether it is gone already."""
        replica.is_foreign = True
        is_gone = replica.has_ended
        await self.end(replica)
        self.needs_whole_read |= not is_gone
        return is_gone

    async def end(self, replica: Replica) -> None:
        """Stops a replica that the region has released or never knew, and then forgets it."""
        token = replica.assignment.token
        if replica.has_ended:
            self._replicas.remove(token)
            await self._driver.forget(token)
            return
        replica.is_stray = True
        await self._driver.stop(token, StopOrder(reason="its region no longer has it here"))

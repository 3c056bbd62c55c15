"""Makes the replicas here equal to what the region assigns: starts, stops, forgets, by token."""

from collections.abc import Callable, Sequence

from durable.agent.drivers import ENDS, Driver, StopOrder, as_evidence
from durable.agent.leases import Leases
from durable.agent.replicas import Replica, Replicas
from durable.authority.fleet.assignments import Assignment
from durable.model.states import ObservedState

NO_SPEC = "its region holds no description of what it runs that this agent can read"
NEVER_STARTED = "it was asked to stop before it was started here"


class Reconciler:
    """Applies assignments in the order of their versions; all starts go through here."""

    def __init__(
        self, driver: Driver, replicas: Replicas, leases: Leases, clock: Callable[[], float]
    ) -> None:
        self._driver = driver
        self._replicas = replicas
        self._leases = leases
        self._clock = clock

    async def apply(self, assignments: Sequence[Assignment], *, is_whole: bool) -> None:
        """Follows what changed; when it is all there is, what it does not name has departed."""
        for assignment in assignments:
            await self._apply(assignment)
        if not is_whole:
            return
        assigned = {assignment.token for assignment in assignments}
        for replica in self._replicas:
            if replica.assignment.token not in assigned:
                await self.depart(replica)

    async def _apply(self, assignment: Assignment) -> None:
        replica = self._replicas.get(assignment.token)
        if assignment.released:
            if replica is not None:
                await self.depart(replica)
            return
        if replica is None:
            replica = await self._begin(assignment)
        if replica is not None and assignment.stop_requested and not replica.has_ended:
            reason = as_evidence(assignment.stop_reason or "its region asked for it")
            await self._driver.stop(assignment.token, StopOrder(reason=reason))

    async def _begin(self, assignment: Assignment) -> Replica | None:
        # Without a lease the region may give the work away at any moment: nothing is begun then.
        # Registration is followed by a whole read, which finds it again.
        has_lease = self._leases.holds(assignment.node, self._clock())
        if assignment.observed in ENDS or not has_lease:
            return None
        replica = self._replicas.add(assignment)
        if assignment.stop_requested and assignment.observed is None:
            self._replicas.saw(assignment.token, ObservedState.STOPPED, NEVER_STARTED)
        elif assignment.spec is None:
            self._replicas.saw(assignment.token, ObservedState.FAILED, NO_SPEC)
        else:
            await self._driver.start(assignment)
        return replica

    async def depart(self, replica: Replica) -> None:
        """The region has released it or never knew it: it ends here, and then is forgotten."""
        token = replica.assignment.token
        if replica.has_ended:
            self._replicas.remove(token)
            await self._driver.forget(token)
            return
        replica.is_stray = True
        await self._driver.stop(token, StopOrder(reason="its region no longer has it here"))

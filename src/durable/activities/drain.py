"""The steps of a drain: cordon, mark, observe, finish.

Each is one transaction of the region, idempotent by the request id of the drain: one that was sent
again after a crash or a timeout finds what it did, and one that comes late changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field
from temporalio import activity
from temporalio.client import Client

from durable.activities.failures import refusal_failure, refuse_elsewhere
from durable.authority.drains.orders import begin_drain, end_drain, mark_drained
from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_running
from durable.authority.sides import Regional
from durable.failpoints import Failpoint, reach
from durable.model.fleet.drain import Drain, DrainOrder, DrainProgress, DrainState, NodesTarget
from durable.model.ids import ActorId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage, OrderAnswer
from durable.model.refusal import RefusedError
from durable.signals.drains import DrainNodes
from durable.signals.names import drain_target, workload_id
from durable.signals.payloads import Look
from durable.signals.sending import SignalSender
from durable.validation.text import Sentence
from durable.validation.value import Value

ACTOR = ActorId("controller:drain")


class MarkResult(Value):
    """How many claims were marked, and whether their workloads could be asked to look."""

    claims: Annotated[int, Field(ge=0)] = 0
    workloads: Annotated[int, Field(ge=0)] = 0
    undelivered: Annotated[int, Field(ge=0)] = 0


class EndStep(Value):
    """How a drain is to end."""

    drain: Drain
    state: DrainState
    actor: ActorId = ACTOR
    outcome: Sentence = ""
    # The message that cancels it.
    message: OperatorMessage | None = None


class DrainActivities:
    """Steps in one region."""

    def __init__(self, regional: Regional, client: Client) -> None:
        self._databases, self._region = regional.databases, regional.region
        self._sender = SignalSender(client)

    @activity.defn
    async def recall_drain(self, target: NodesTarget) -> Drain | None:
        """The drain of these nodes that the region knows and that has not ended."""
        refuse_elsewhere(self._region, target.region)
        return await read_running(self._databases, self._region, target)

    @activity.defn
    async def cordon(self, message: OperatorMessage) -> Drain:
        """Keeps new work off the nodes, and records the drain, once per request id."""
        target, asked = drain_target(message.workflow_id), message.payload_as(DrainNodes)
        refuse_elsewhere(self._region, target.region)
        order = DrainOrder(
            target=target,
            message=message,
            deadline=asked.deadline,
            wait_for_jobs=asked.wait_for_jobs,
        )
        try:
            drain = await begin_drain(self._databases, self._region, order)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_CORDON)
        return drain

    @activity.defn
    async def mark(self, drain: Drain) -> MarkResult:
        """Marks what runs there to be replaced, and has its workloads look."""
        refuse_elsewhere(self._region, drain.target.region)
        marked = await mark_drained(self._databases, self._region, drain)
        reach(Failpoint.AFTER_MARK)
        shares = set(marked)
        undelivered = await self._have_workloads_look(shares, "claims were marked")
        return MarkResult(claims=len(marked), workloads=len(shares), undelivered=undelivered)

    @activity.defn
    async def observe(self, drain: Drain) -> DrainProgress:
        """What is left on the nodes, and what keeps it there."""
        refuse_elsewhere(self._region, drain.target.region)
        return await read_progress(self._databases, self._region, drain)

    @activity.defn
    async def finish(self, step: EndStep) -> OrderAnswer[Drain]:
        """Records how the drain ended; what it had not begun to move stays."""
        refuse_elsewhere(self._region, step.drain.target.region)
        ended = await end_drain(
            self._databases,
            self._region,
            step.drain,
            step.state,
            actor=step.actor,
            outcome=step.outcome,
            message=step.message,
        )
        reach(Failpoint.AFTER_END_DRAIN)
        await self._have_workloads_look(ended.unmarked, "claims need not be replaced any more")
        return OrderAnswer(target=ended.drain, sentence=ended.answer)

    async def _have_workloads_look(self, shares: Iterable[tuple[str, str, int]], why: str) -> int:
        """Hints at once; what is lost is found by the status controller's sweep."""
        sent = await self._sender.send_all(
            (
                workload_id(TenantId(tenant), WorkloadName(workload)),
                "look",
                Look(why=why, region=self._region, generation=generation),
            )
            for tenant, workload, generation in sorted(shares)
        )
        return sent.count(False)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.recall_drain, self.cordon, self.mark, self.observe, self.finish)

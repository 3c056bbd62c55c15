"""The wait for a place, of a whole share or of one slot of it."""

from collections.abc import Sequence
from datetime import datetime

from durable.authority.db.connection import Databases
from durable.authority.queue.requests import read_queue
from durable.model.placement.records import Decision
from durable.model.placement.request import SchedulingRequest
from durable.model.states import RequestState
from durable.validation.value import Value


class QueueExplanation(Value):
    """A request for places, its position in the queue, and how long it has waited."""

    request: SchedulingRequest
    position: int | None
    # Until the newest decision; while something waits, until now.
    queue_seconds: float


async def explain_queue(
    databases: Databases, request: SchedulingRequest, decisions: Sequence[Decision], now: datetime
) -> QueueExplanation:
    is_pending = request.state is RequestState.PENDING
    until = now if is_pending or not decisions else decisions[-1].decided_at
    return QueueExplanation(
        request=request,
        position=await _position(databases, request) if is_pending else None,
        queue_seconds=max(0.0, round((until - request.enqueued_at).total_seconds(), 3)),
    )


async def _position(databases: Databases, request: SchedulingRequest) -> int | None:
    key = (request.tenant, request.workload, request.generation)
    queue = await read_queue(databases, request.region)
    found = (one for one in queue if (one.tenant, one.workload, one.generation) == key)
    return next((one.position for one in found), None)


def request_of_slot(
    request: SchedulingRequest, *, is_waiting: bool, is_completed: bool, attempts: int
) -> SchedulingRequest:
    """The share's request as far as it concerns one slot."""
    counts = {"waiting": int(is_waiting), "completed": int(is_completed), "attempts": attempts}
    if is_waiting:
        return request.model_copy(update=counts)
    return request.model_copy(
        update={
            **counts,
            "state": RequestState.PLACED if request.waiting else request.state,
            "pending": None,
            "next_retry_at": None,
        }
    )

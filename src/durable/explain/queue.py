"""The wait for a place, as far as it concerns a share or one slot of it."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import AwareDatetime

from durable.authority.db.connection import Databases
from durable.authority.queue.requests import read_queue
from durable.explain.attempt import AttemptAccount
from durable.explain.ends import End, EndAccount
from durable.model.pending import Pending
from durable.model.pending_reasons import PendingCode
from durable.model.records import Decision
from durable.model.request import RequestRow
from durable.model.slots import ObservedSlot
from durable.model.states import RequestState
from durable.validation.value import Value


class QueueAccount(Value):
    """The wait for a place: since when, for how long, and what for."""

    state: RequestState
    waiting: int
    # How many are done, of a job.
    completed: int
    pending_reason: str | None
    enqueued_at: AwareDatetime
    # Until the newest decision that placed something; while something waits, until now.
    queue_seconds: float
    position: int | None
    attempts: int
    next_retry_at: AwareDatetime | None
    deadline: AwareDatetime

    @property
    def is_held(self) -> bool:
        wait = Pending.said(self.pending_reason or "")
        return wait is not None and wait.code is PendingCode.HELD


async def explain_queue(
    databases: Databases, request: RequestRow, decisions: Sequence[Decision], now: datetime
) -> QueueAccount:
    waits = request.state is RequestState.PENDING
    decided = [one.decided_at for one in decisions]
    until = now if waits or not decided else decided[-1]
    return QueueAccount(
        state=request.state,
        waiting=request.waiting,
        completed=request.completed,
        pending_reason=request.pending_reason,
        enqueued_at=request.enqueued_at,
        queue_seconds=max(0.0, round((until - request.enqueued_at).total_seconds(), 3)),
        position=await _position(databases, request) if waits else None,
        attempts=request.attempts,
        next_retry_at=request.next_retry_at,
        deadline=request.deadline,
    )


async def _position(databases: Databases, request: RequestRow) -> int | None:
    mine = (request.tenant, request.workload, request.generation)
    queue = await read_queue(databases, request.region)
    found = (one for one in queue if (one.tenant, one.workload, one.generation) == mine)
    return next((one.position for one in found), None)


def slot_waits(
    request: RequestRow,
    standing: Sequence[ObservedSlot],
    attempts: Sequence[AttemptAccount],
    ends: Sequence[EndAccount],
) -> bool:
    """Whether one slot is among those that wait; the queue knows only how many they are."""
    if standing or not request.waiting:
        return False
    if not ends:
        return True
    [last] = ends
    # A job's slot may be done, or have been given up.
    is_tried_again = last.tries < request.spec.max_attempts or (
        bool(attempts) and bool(attempts[-1].unplaced)
    )
    return last.end is not End.COMPLETED and is_tried_again


def of_one_slot(
    request: RequestRow, ends: Sequence[EndAccount], *, waits: bool, attempts: int
) -> RequestRow:
    """The share's request as far as it concerns one slot."""
    completed = sum(one.end is End.COMPLETED for one in ends)
    counts = {"waiting": int(waits), "completed": completed, "attempts": attempts}
    if waits:
        return request.model_copy(update=counts)
    return request.model_copy(
        update={
            **counts,
            "state": RequestState.PLACED if request.waiting else request.state,
            "pending_reason": None,
            "next_retry_at": None,
        }
    )

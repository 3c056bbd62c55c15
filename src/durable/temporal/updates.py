"""Sends to a workflow until it is answered, however often its worker dies meanwhile."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from weakref import WeakValueDictionary

from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import ENDING
from durable.state_dir.record import StackError

T = TypeVar("T")

# Temporal lets ten updates of a workflow in at a time; a little room is left to others.
UPDATES_AT_ONCE = 8
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0

# What passes by itself: a server or a worker that is being restarted.
_TRANSIENT = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,  # the connection broke in the middle of the call
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)
# What says that the workflow is there, with too many messages before this one.
_BUSY = frozenset({RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.ABORTED})
# The workflow ended between accepting the update and answering it; the next run accepts it again.
_ENDED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"


@dataclass(frozen=True)
class Patience:
    """How long to try, by what keeps the answer."""

    # No sign of a worker, or of the server.
    silence: timedelta = timedelta(seconds=60)
    # Too many others send to the same workflow, or its workers live and have much to do.
    busy: timedelta = timedelta(minutes=5)
    # One try; after it the same is sent again.
    each: timedelta = timedelta(seconds=20)

    @classmethod
    def within(cls, seconds: float | None) -> "Patience":
        """The usual patience, as far as a wait of so many seconds allows."""
        if seconds is None:
            return PATIENT
        limit = timedelta(seconds=seconds)
        return cls(silence=min(cls.silence, limit), busy=limit, each=min(cls.each, limit))


PATIENT = Patience()


class NotYetError(Exception):
    """What was asked is not known at this moment, and will be soon."""


class Turns:
    """Lets so many of one process send to one workflow at a time; the others wait for their turn.

    Beyond Temporal's limit all of them would be turned away, and their retries would be a storm.
    """

    def __init__(self) -> None:
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, workflow: str) -> asyncio.Semaphore:
        room = self._rooms.get(workflow)
        if room is None:
            room = self._rooms[workflow] = asyncio.Semaphore(UPDATES_AT_ONCE)
        return room


async def _nobody_serves() -> bool:
    return False


async def send_until_answered(
    doing: str,
    send: Callable[[], Awaitable[T]],
    *,
    patience: Patience = PATIENT,
    is_served: Callable[[], Awaitable[bool]] = _nobody_serves,
    unknown: RefusalCode = RefusalCode.UNKNOWN_WORKLOAD,
    see: str = "durable get workloads",
) -> T:
    """Sends until there is an answer; what is sent must be idempotent by its own id.

    `is_served` says after a long silence whether a worker lives that will come to it.
    """
    began = time.monotonic()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await send()
        except _FAILURES as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                # The SDK makes a timeout of an interrupt, which would be sent again.
                raise error.__cause__ from None
            waited = time.monotonic() - began + pause
            is_busy = _is_busy(error) or (
                waited > patience.silence.total_seconds()
                and _is_transient(error)
                and await is_served()
            )
            timeout = patience.busy if is_busy else patience.silence
            if not _is_transient(error) or waited > timeout.total_seconds():
                raise _explained(doing, error, timeout, unknown, see, is_busy=is_busy) from error
        # Each waits for a time of its own, or all would come back together.
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


_FAILURES = (
    RPCError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    NotYetError,
)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, RPCError):
        return error.status in _TRANSIENT
    if isinstance(error, WorkflowUpdateFailedError):
        cause = error.cause
        return isinstance(cause, ApplicationError) and cause.type in (_ENDED_MEANWHILE, ENDING)
    return isinstance(error, WorkflowUpdateRPCTimeoutOrCancelledError | NotYetError)


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, RPCError) and error.status in _BUSY


def _explained(
    doing: str,
    error: BaseException,
    timeout: timedelta,
    unknown: RefusalCode,
    see: str,
    *,
    is_busy: bool,
) -> RefusedError | StackError:
    if isinstance(error, WorkflowUpdateFailedError):
        return _refusal(error.cause)
    if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
        what = unknown.removeprefix("unknown_")
        return RefusedError(
            unknown,
            f"Could not {doing}: there is no such {what}, or it has ended; see `{see}`.",
        )
    if isinstance(error, NotYetError):
        return StackError(f"Could not {doing}: {error}")
    if _is_busy(error):
        return StackError(
            f"Could not {doing}: too many others send to it at the same time, and this request "
            f"found no place in {timeout.total_seconds():.0f} s; send the same request again "
            "later."
        )
    if is_busy and _is_transient(error):
        return StackError(
            f"Could not {doing}: its workers are busy, and did not come to this request in "
            f"{timeout.total_seconds():.0f} s; send the same request again later."
        )
    if isinstance(error, WorkflowQueryFailedError):
        return StackError(f"Could not {doing}: its workflow does not answer: {error}")
    if _is_transient(error):
        return StackError(
            f"Could not {doing}: no worker answered in {timeout.total_seconds():.0f} s; "
            "check with `durable status` that workers run, then send the same request again."
        )
    return StackError(f"Could not {doing}: {error}")


def _refusal(cause: BaseException) -> RefusedError | StackError:
    if not isinstance(cause, ApplicationError):
        return StackError(str(cause))
    if cause.type == "unreachable":
        return StackError(cause.message)
    codes = [str(detail) for detail in cause.details if str(detail) in set(RefusalCode)]
    code = RefusalCode(codes[0]) if codes else RefusalCode.WRONG_STATE
    return RefusedError(code, cause.message)

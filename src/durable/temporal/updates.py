"""Sends to a workflow until it is answered, however often its worker dies meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from durable.model.refusal import RefusalCode, RefusedError
from durable.state_dir.record import StackError

T = TypeVar("T")

ANSWER_TIMEOUT = timedelta(seconds=60)
TRY_TIMEOUT = timedelta(seconds=20)
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
# The workflow ended between accepting the update and answering it; the next run accepts it anew.
_ENDED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"


async def send_until_answered(
    doing: str,
    send: Callable[[], Awaitable[T]],
    *,
    unknown: RefusalCode = RefusalCode.UNKNOWN_WORKLOAD,
    see: str = "durable get workloads",
) -> T:
    """Sends until there is an answer; what is sent must be idempotent by its own id."""
    give_up = time.monotonic() + ANSWER_TIMEOUT.total_seconds()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await send()
        except _FAILURES as error:
            if not _is_transient(error) or time.monotonic() + pause > give_up:
                raise _explained(doing, error, unknown, see) from error
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


_FAILURES = (
    RPCError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, RPCError):
        return error.status in _TRANSIENT
    if isinstance(error, WorkflowUpdateFailedError):
        cause = error.cause
        return isinstance(cause, ApplicationError) and cause.type == _ENDED_MEANWHILE
    return isinstance(error, WorkflowUpdateRPCTimeoutOrCancelledError)


def _explained(
    doing: str, error: BaseException, unknown: RefusalCode, see: str
) -> RefusedError | StackError:
    if isinstance(error, WorkflowUpdateFailedError):
        return _refusal(error.cause)
    if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
        what = unknown.removeprefix("unknown_")
        return RefusedError(
            unknown,
            f"Could not {doing}: there is no such {what}, or it has ended; see `{see}`.",
        )
    if _is_transient(error):
        return StackError(
            f"Could not {doing}: no worker answered in {ANSWER_TIMEOUT.total_seconds():.0f} s; "
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
    return RefusedError(code, cause.message[:500])

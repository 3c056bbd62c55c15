"""Which workers hang: each says every few seconds that it lives, and the server knows when."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from durable.state_dir.record import StackError
from durable.temporal.processes import has_ended, is_here

INTERVAL = timedelta(seconds=3)
# A busy machine may leave a few out.
LONGEST_SILENCE = timedelta(seconds=20)
# Of a process on another machine nobody knows whether it was killed: it is not named for ever.
NAMED_ELSEWHERE = timedelta(minutes=10)
RPC_TIMEOUT = timedelta(seconds=5)
PAGE_SIZE = 1_000
# By a server that keeps no signs, or that does not let us see them.
_NOT_TOLD = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED})


@cache
def runtime() -> Runtime:
    """The SDK's part of this process, with our interval; made when first needed, once."""
    return Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=INTERVAL)


@dataclass(frozen=True)
class _Sign:
    """The last sign of one worker, by its own clock."""

    identity: str
    at: datetime


async def silent_workers(client: Client, now: datetime) -> list[str]:
    """The processes, as `pid@host`, that began to serve and give no sign of life any more.

    A sign carries the clock of its worker, so one that looks old proves nothing: whether another
    comes is looked at, which takes a moment where one is missing, and none otherwise.
    """
    before = await _signs(client)
    suspects = {key: sign for key, sign in before.items() if _looks_silent(sign, now)}
    if not suspects:
        return []
    await asyncio.sleep(2 * INTERVAL.total_seconds())
    after = await _signs(client)
    return sorted({sign.identity for key, sign in suspects.items() if after.get(key) == sign})


def _looks_silent(sign: _Sign, now: datetime) -> bool:
    age = abs(now - sign.at)
    if age < LONGEST_SILENCE or has_ended(sign.identity):
        return False
    return is_here(sign.identity) or age < NAMED_ELSEWHERE


async def _signs(client: Client) -> Mapping[str, _Sign]:
    """By worker, of those that have not said that they end."""
    signs: dict[str, _Sign] = {}
    page = b""
    while True:
        request = ListWorkersRequest(
            namespace=client.namespace, page_size=PAGE_SIZE, next_page_token=page
        )
        try:
            answer = await client.workflow_service.list_workers(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status in _NOT_TOLD:
                return {}
            raise StackError(f"Temporal could not list the workers: {error.message}") from error
        for worker in answer.workers_info:
            sign = worker.worker_heartbeat
            if sign.status == WorkerStatus.WORKER_STATUS_RUNNING:
                at = sign.heartbeat_time.ToDatetime(tzinfo=UTC)
                signs[sign.worker_instance_key] = _Sign(sign.worker_identity, at)
        page = answer.next_page_token
        if not page:
            return signs

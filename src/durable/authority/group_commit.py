"""Group commit: intents that arrive within milliseconds share one transaction and one fsync."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from durable.authority.connection import Databases
from durable.authority.errors import AuthorityUnreachableError
from durable.authority.regional_commit import MAX_BATCH, commit_intents
from durable.model.ids import RegionId
from durable.model.intents import AnyIntent, Granted, Refused

GATHER_SECONDS = 0.003
MAX_WAITING = 20_000


@dataclass(slots=True)
class _Waiting:
    intent: AnyIntent
    answer: "asyncio.Future[Granted | Refused]"


class GroupCommit:
    """One region's queue of intents; `async with` runs it, leaving waits for the last batch.

    An answer that does not come (the caller was cancelled, the process died) loses nothing: the
    outcome is recorded under the intent's key, and the next send of it returns the same.
    """

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._engine = databases.at_region(region, "durable_commit")
        self._region = region
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "GroupCommit":
        self._runner = asyncio.create_task(self._run(), name=f"group commit of {self._region}")
        self._runner.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        assert self._runner is not None
        await self._runner

    async def submit(self, intent: AnyIntent) -> Granted | Refused:
        """The intent's outcome, once its batch has committed."""
        assert intent.region == self._region, "a queue is of one region"
        if self._closing or len(self._waiting) >= MAX_WAITING:
            raise AuthorityUnreachableError(
                f"The commit queue of {self._region} is "
                f"{'closing' if self._closing else 'full'}; send the same intent again shortly."
            )
        waiting = _Waiting(intent, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.answer

    def _ended(self, _: "asyncio.Task[None]") -> None:
        """Also when it was cancelled: nobody may wait for an answer that will not come."""
        self._closing = True
        stopped = f"The commit queue of {self._region} was stopped; send the same intent again."
        self._fail(self._waiting, AuthorityUnreachableError(stopped))

    async def _run(self) -> None:
        while not (self._closing and not self._waiting):
            await self._arrived.wait()
            if len(self._waiting) < MAX_BATCH and not self._closing:
                await asyncio.sleep(GATHER_SECONDS)
            size = min(MAX_BATCH, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            if not self._waiting and not self._closing:
                self._arrived.clear()
            if batch:
                await self._commit(batch)

    async def _commit(self, batch: list[_Waiting]) -> None:
        try:
            intents = [waiting.intent for waiting in batch]
            outcomes = await commit_intents(self._engine, self._region, intents)
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))
            raise
        except Exception as error:
            self._fail(batch, error)
            return
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(outcome)

    def _fail(self, waiting: Iterable[_Waiting], error: Exception) -> None:
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(error)

"""Batches: items that arrive within milliseconds share one transaction and one fsync."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from durable.authority.db.errors import AuthorityUnreachableError, BrokenConstraintError
from durable.authority.db.fair_queue import FairQueue, Turn
from durable.model.ids import RegionId

T = TypeVar("T")
R = TypeVar("R")

# From the first item of a batch on, and as long as more arrive within it: who comes alone waits
# for no other, and those who come in a crowd share more.
GATHER_SECONDS = 0.003
# Of what no placement waits for.
PATIENT_GATHER_SECONDS = 0.03
LONGEST_GATHER_SECONDS = 0.04
LONGEST_PATIENCE_SECONDS = 0.15
MAX_WAITING = 20_000


@dataclass(slots=True)
class _Submission(Generic[T, R]):
    item: T
    answer: "asyncio.Future[R]"


class Batcher(Generic[T, R]):
    """One queue in front of one writer; `async with` runs it, leaving waits for the last batch.

    `turn_of` names the tenant of an item, and its priority: tenants take turns, so that one who
    sends thousands delays the others by little.

    `write_batch` answers its items in their order and is idempotent: an answer that is lost (the
    caller was cancelled, the process died) does no harm, because the same item may be sent again.
    """

    def __init__(
        self,
        queue: str,
        item: str,
        write_batch: Callable[[list[T]], Awaitable[list[R]]],
        *,
        max_batch: int,
        max_waiting: int = MAX_WAITING,
        gather_seconds: float = GATHER_SECONDS,
        turn_of: Callable[[T], Turn] = lambda _: Turn(""),
    ) -> None:
        self._queue, self._item = queue, item
        self._write_batch = write_batch
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._gather_seconds = gather_seconds
        is_patient = gather_seconds > GATHER_SECONDS
        self._longest_seconds = LONGEST_PATIENCE_SECONDS if is_patient else LONGEST_GATHER_SECONDS
        self._waiting = FairQueue[_Submission[T, R]](lambda waiting: turn_of(waiting.item))
        self._arrived = asyncio.Event()
        self._closing = False
        self._runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._runner = asyncio.create_task(self._run(), name=self._queue)
        self._runner.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        assert self._runner is not None
        await self._runner

    async def submit(self, item: T) -> R:
        """The item's own answer, once its batch has committed."""
        if self._closing or len(self._waiting) >= self._max_waiting:
            raise AuthorityUnreachableError(
                f"The {self._queue} is {'closing' if self._closing else 'full'}; "
                f"send the same {self._item} again shortly."
            )
        waiting = _Submission[T, R](item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.answer

    def _ended(self, _: "asyncio.Task[None]") -> None:
        """Fails what still waits, also after a cancellation: their answer will not come."""
        self._closing = True
        stopped = f"The {self._queue} was stopped; send the same {self._item} again."
        self._fail(self._waiting, AuthorityUnreachableError(stopped))

    async def _run(self) -> None:
        while not (self._closing and not self._waiting):
            await self._arrived.wait()
            await self._gather()
            size = min(self._max_batch, len(self._waiting))
            batch = [self._waiting.pop() for _ in range(size)]
            if not self._waiting and not self._closing:
                self._arrived.clear()
            if batch:
                await self._commit(batch)

    async def _gather(self) -> None:
        gathered = 0
        until = time.monotonic() + self._longest_seconds - self._gather_seconds
        while gathered < len(self._waiting) < self._max_batch and not self._closing:
            gathered = len(self._waiting)
            await asyncio.sleep(self._gather_seconds)
            if time.monotonic() > until:
                return

    async def _commit(self, batch: list[_Submission[T, R]]) -> None:
        try:
            answers = await self._write_batch([waiting.item for waiting in batch])
        except asyncio.CancelledError:
            self._waiting.put_back(batch)
            raise
        except BrokenConstraintError as error:
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                await self._commit_one_by_one(batch)
            return
        except Exception as error:
            self._fail(batch, error)
            return
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    async def _commit_one_by_one(self, batch: list[_Submission[T, R]]) -> None:
        """A broken constraint is one item's fault, and its neighbours must not fail with it."""
        for place, waiting in enumerate(batch):
            try:
                await self._commit([waiting])
            except asyncio.CancelledError:
                self._waiting.put_back(batch[place + 1 :])
                raise

    def _fail(self, waiting: Iterable[_Submission[T, R]], error: Exception) -> None:
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(error)


class RegionalQueues(Generic[T, R]):
    """A queue for each region, made when something is first sent there; left all at once."""

    def __init__(self, make: Callable[[RegionId], Batcher[T, R]]) -> None:
        self._make = make
        self._queues: dict[RegionId, Batcher[T, R]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def submit(self, region: RegionId, item: T) -> R:
        queue = self._queues.get(region)
        if queue is None:
            # Registered before it runs: callers that come meanwhile use the same queue.
            queue = self._queues[region] = self._make(region)
            await self._stack.enter_async_context(queue)
        return await queue.submit(item)


def chunks(items: Sequence[T], weight: Callable[[T], int], *, most: int) -> Iterator[list[T]]:
    """The items in their order, in chunks of at most this weight; a heavier item goes alone.

    A transaction that carries too much would not end in time.
    """
    chunk: list[T] = []
    carried = 0
    for item in items:
        if chunk and carried + weight(item) > most:
            yield chunk
            chunk, carried = [], 0
        chunk.append(item)
        carried += weight(item)
    if chunk:
        yield chunk

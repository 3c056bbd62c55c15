"""A breaker per database: while a server does not answer, callers learn it at once.

Closed, it lets everything through and only watches. A transaction that takes long makes it ask the
server for a sign of life; without one it opens: what is under way is given up, what comes is
refused at once. It asks again in the background, and closes with the first answer. A server that
is only slow is never given up. How often it was asked and how much was refused is counted, and
said when it answers.
"""

import asyncio
import logging
import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
from psycopg import waiting
from sqlalchemy import URL

from durable.authority.db.errors import CircuitOpenError, is_refused_login
from durable.ending import end_all

# How long a transaction may take before the server is asked for a sign of life, and how long that
# may take: a connection is made in milliseconds, and in a second by a machine that is overloaded.
PATIENCE_SECONDS = 2.0
PROBE_SECONDS = 3
# While it is open the server is asked after these pauses, jittered: workers are many.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 2.0


log = logging.getLogger(__name__)


class Session(psycopg.AsyncConnection[Any]):
    """A connection that ends at once when the caller that waits for an answer is cancelled.

    The driver would ask the server to cancel the query, and wait ten seconds for one that is
    stopped. Ours is gone at once; `client_connection_check_interval` has the server notice it.
    """

    @classmethod
    async def connect(cls, *args: Any, **options: Any) -> Self:
        """Connects; when that is cancelled, the server is not kept waiting for a password.

        As long as a server waits for one, no database can be created or dropped there.
        """
        try:
            return await super().connect(*args, **options)
        except asyncio.CancelledError as error:
            # The traceback would keep the connection open for as long as the error exists.
            raise error.with_traceback(None) from None

    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - the driver's signature
        task = asyncio.current_task()
        assert task is not None, "a connection is used inside a task"
        before = task.cancelling()
        try:
            answer = await waiting.wait_async(
                gen, self.pgconn.socket, interval=interval, timeout=timeout
            )
            # Python 3.11 forgets a cancellation that comes at the same moment as the answer.
            if task.cancelling() > before:
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise
        return answer


@dataclass
class Outage:
    """A time without an answer: how often the server was asked, and how much was refused."""

    began: float = field(default_factory=time.monotonic)
    asked: int = 0
    refused: int = 0


class Breaker:
    """Of one database, within one event loop."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._place = f"{url.host}:{url.port or 5432}"
        # The deadlines of what is under way, with the moment at which it began.
        self._watched: dict[asyncio.Timeout, float] = {}
        self._check: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        # The one that lasts, and the last one that is over.
        self.outage: Outage | None = None
        self.last_outage: Outage | None = None

    @property
    def is_open(self) -> bool:
        return self.outage is not None

    def refuse_if_open(self, doing: str) -> None:
        if self.outage is not None:
            self.outage.refused += 1
            raise CircuitOpenError(
                f"Could not {doing}: PostgreSQL at {self._place} does not answer; check that it "
                "runs there, then send the same request again."
            )

    @contextmanager
    def watching(self, deadline: asyncio.Timeout) -> Generator[None]:
        """Brings the deadline forward to the moment at which the server is given up."""
        self._watched[deadline] = time.monotonic()
        self._arm(PATIENCE_SECONDS)
        try:
            yield
        finally:
            del self._watched[deadline]

    def open(self) -> None:
        """Gives up what is under way, and refuses what comes until the server answers."""
        was_open = self.is_open
        self.outage = self.outage or Outage()
        for deadline in self._watched:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())
        if self._probing is None or self._probing is asyncio.current_task():
            self._start(self._until_answered())
        if not was_open:  # last: what opened closes by itself, also where no line can be written
            log.warning("PostgreSQL at %s does not answer; it is asked again", self._place)

    async def close(self) -> None:
        """Ends what it does in the background."""
        if self._check is not None:
            self._check.cancel()
        if self._probing is not None:
            await end_all([self._probing])

    # ── asking for a sign of life ───────────────────────────────────────────────────────────────

    def _arm(self, seconds: float) -> None:
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(seconds, self._suspect)

    def _suspect(self) -> None:
        """Asks if something has been under way for long, and otherwise looks again later."""
        self._check = None
        if not self._watched or self._probing is not None:
            return
        oldest = min(self._watched.values()) + PATIENCE_SECONDS - time.monotonic()
        if oldest > 0:
            self._arm(oldest)
        else:
            self._start(self._check_once())

    async def _check_once(self) -> None:
        if not await self._is_answering():
            self.open()
            return
        if self.is_open:  # it was given up while this asked: whether it answers is asked again
            await self._until_answered()
            return
        self._probing = None
        if self._watched:
            self._arm(PATIENCE_SECONDS)

    async def _until_answered(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - it guards nothing
            if self.outage is not None:
                self.outage.asked += 1
            if await self._is_answering():
                break
            pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
        self._probing = None
        self._end_outage()

    async def _is_answering(self) -> bool:
        try:
            return await is_answering(self._url)
        except Exception:  # no file, no thread, no memory: it is asked again
            return False

    def _end_outage(self) -> None:
        over, self.outage = self.outage, None
        if over is not None:
            self.last_outage = over
            log.warning(
                "PostgreSQL at %s answers again after %.0f s; it was asked %s times, and %s calls "
                "were refused at once",
                self._place,
                time.monotonic() - over.began,
                over.asked,
                over.refused,
            )

    def _start(self, asking: Any) -> None:
        self._probing = asyncio.get_running_loop().create_task(asking, name=f"ask {self._place}")


async def is_answering(url: URL) -> bool:
    """Whether the server lets us in, or at least refuses us."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            session = await Session.connect(
                url.set(drivername="postgresql").render_as_string(hide_password=False),
                connect_timeout=PROBE_SECONDS,
                application_name="durable_breaker",
            )
            await session.close()
    except (TimeoutError, psycopg.errors.ConnectionTimeout):
        return False
    except (OSError, psycopg.Error) as error:
        return await asyncio.to_thread(is_refused_login, error)
    return True

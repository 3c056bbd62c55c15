"""A small pool of connections under one role, and what a statement on one of them answers.

Straight to the driver: a toolkit between the two cost as much CPU as the statements themselves.
"""

import asyncio
import re
from collections import namedtuple
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from sqlalchemy import URL, TextClause

from durable.authority.db.breaker import Breaker, Session
from durable.authority.db.errors import PoolTimeoutError

# As many as the code has, and those that are put together at run time.
_KNOWN_STATEMENTS = 4_096
# A name after one colon; `::` is a cast, and `\:` a colon.
_NAMED = re.compile(r"(?<![:\w\\]):(\w+)")


class RowList:
    """What a statement has answered: all of it is here, and it can be read again."""

    __slots__ = ("_items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def all(self) -> Sequence[Any]:
        return self._items

    def first(self) -> Any:
        return self._items[0] if self._items else None

    def one(self) -> Any:
        if len(self._items) != 1:
            raise LookupError(f"One row was expected, and there are {len(self._items)}.")
        return self._items[0]

    def one_or_none(self) -> Any:
        return self.one() if self._items else None


class Answer(RowList):
    """The same with its columns; iterated over, its rows have a field for each of them."""

    __slots__ = ("_columns", "rowcount")

    def __init__(self, columns: "_Columns", rows: Sequence[Any], rowcount: int) -> None:
        super().__init__(rows)
        self._columns, self.rowcount = columns, rowcount

    def __iter__(self) -> Iterator[Any]:
        return map(self._columns.row, self._items)

    def all(self) -> Sequence[Any]:
        return list(self)

    def first(self) -> Any:
        return self._columns.row(self._items[0]) if self._items else None

    def one(self) -> Any:
        return self._columns.row(super().one())

    def mappings(self) -> RowList:
        names = self._columns.names
        return RowList([dict(zip(names, row, strict=True)) for row in self._items])

    def scalars(self) -> RowList:
        return RowList([row[0] for row in self._items])

    def scalar_one(self) -> Any:
        return super().one()[0]

    def scalar_one_or_none(self) -> Any:
        return super().one()[0] if self._items else None


@dataclass(frozen=True, slots=True)
class _Columns:
    names: tuple[str, ...]
    row: Callable[[Any], Any]


@lru_cache(_KNOWN_STATEMENTS)
def _columns(encoded: tuple[bytes | None, ...]) -> _Columns:
    names = tuple((name or b"").decode() for name in encoded)
    row: Any = namedtuple("Row", names, rename=True)  # pyright: ignore[reportUntypedNamedTuple]
    return _Columns(names, row._make)


@lru_cache(_KNOWN_STATEMENTS)
def _in_the_drivers_style(statement: TextClause) -> bytes:
    """`:name` becomes `%(name)s`."""
    named = _NAMED.sub(r"%(\1)s", statement.text.replace("%", "%%"))
    return named.replace("\\:", ":").encode()


class AsyncConnection:
    """What the body of a transaction is given: it can run statements, and nothing else."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    async def execute(
        self, statement: TextClause, parameters: Mapping[str, Any] | None = None
    ) -> Answer:
        cursor = self._session.cursor()
        await cursor.execute(_in_the_drivers_style(statement), parameters or {})
        result = cursor.pgresult
        assert result is not None, "a statement was run"
        if result.status != ExecStatus.TUPLES_OK:  # it answers no rows; one may have no columns
            return Answer(_columns(()), (), cursor.rowcount)
        columns = _columns(tuple(result.fname(place) for place in range(result.nfields)))
        return Answer(columns, await cursor.fetchall(), cursor.rowcount)


class Pool:
    """At most so many connections of a kind, made when they are first needed."""

    def __init__(
        self, connect: Callable[[], Awaitable[Session]], size: int, timeout_seconds: float
    ) -> None:
        self._connect, self._timeout_seconds = connect, timeout_seconds
        self._free = asyncio.Semaphore(size)
        self._idle: list[Session] = []
        self._is_closed = False

    @asynccontextmanager
    async def session(self, *, autocommit: bool) -> AsyncGenerator[Session]:
        """A connection that no one else uses; what it has not committed is rolled back."""
        await self._wait_for_turn()
        try:
            session = await self._take(autocommit)
            try:
                yield session
            except asyncio.CancelledError:
                await session.close()  # to roll back would wait for a server that may be silent
                raise
            except BaseException as error:
                with suppress(psycopg.Error, OSError):
                    if not session.closed:
                        await session.rollback()
                if session.closed and isinstance(error, psycopg.Error):
                    await self._forget_idle()  # they lead to the server that has gone
                raise
            finally:
                await self._give_back(session)
        finally:
            self._free.release()

    async def close(self) -> None:
        self._is_closed = True
        await self._forget_idle()

    async def _wait_for_turn(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise PoolTimeoutError from error

    async def _take(self, autocommit: bool) -> Session:
        # The last one that was used knows the most statements.
        for place in reversed(range(len(self._idle))):
            if self._idle[place].autocommit == autocommit:
                return self._idle.pop(place)
        session = self._idle.pop() if self._idle else await self._connect()
        await session.set_autocommit(autocommit)
        return session

    async def _give_back(self, session: Session) -> None:
        if self._is_closed or session.pgconn.transaction_status != TransactionStatus.IDLE:
            await session.close()
        else:
            self._idle.append(session)

    async def _forget_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()


@dataclass(frozen=True)
class Engine:
    """How transactions are begun at one place, under one role."""

    place: URL
    role: str
    breaker: Breaker
    pool: Pool
    # Whether every statement commits by itself, so that BEGIN and COMMIT are spared.
    commits_each: bool = False

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[AsyncConnection]:
        """A transaction: committed at the end, rolled back by an exception."""
        async with self.pool.session(autocommit=self.commits_each) as session:
            yield AsyncConnection(session)
            if not self.commits_each:
                await session.commit()

    def committing_each(self, commits_each: bool = True) -> Self:
        """The same connections, with or without BEGIN and COMMIT."""
        return replace(self, commits_each=commits_each)

    async def dispose(self) -> None:
        await self.pool.close()

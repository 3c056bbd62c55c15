"""Connections to Postgres under a controller's role, and transactions that survive its faults."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Self, TypeVar

import psycopg
from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import ArgumentError

from durable.authority.db.breaker import Breaker, Session
from durable.authority.db.engine import AsyncConnection, Engine, Pool
from durable.authority.db.errors import (
    LOCK_TIMEOUT,
    LOGIN_REFUSED,
    AuthorityBusyError,
    AuthorityError,
    AuthorityUnreachableError,
    BrokenConstraintError,
    Fault,
    PoolTimeoutError,
    classify,
    explained,
    is_refused_login,
    refuse_what_went_back,
    sqlstate_of,
    why_busy,
)
from durable.authority.db.roles import ROLES
from durable.authority.db.schema_version import check_schema
from durable.model.ids import RegionId

T = TypeVar("T")

# The server's limits, and ours for a server that cannot answer: a partition swallows both.
STATEMENT_TIMEOUT_SECONDS = 10
LOCK_TIMEOUT_SECONDS = 5
CONNECT_TIMEOUT_SECONDS = 5
POOL_TIMEOUT_SECONDS = 10
TRANSACTION_TIMEOUT_SECONDS = 20.0
KEEPALIVE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
ATTEMPTS = 8
FIRST_BACKOFF_SECONDS = 0.02
LONGEST_BACKOFF_SECONDS = 1.0

UNREADABLE_URL = (
    "The database URL cannot be read; write postgresql://user:password@host:port/database."
)

_ROLE_NAMES = frozenset(role.name for role in ROLES)
READER = "durable_reader"


def driver_url(url: str) -> URL:
    """A `postgresql://` URL for the driver in use; anything else is refused by name."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise AuthorityError(UNREADABLE_URL) from error
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise AuthorityError(
            f"The database URL names {parsed.drivername}; durable needs postgresql://…"
        )
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise AuthorityError(UNREADABLE_URL)
    return parsed.set(drivername="postgresql+psycopg")


# These find their rows by keys that they are sent, so that one plan of a statement serves for all
# of them; to plan it costs as much as to run it. Others also ask for what is new, or leave a filter
# out, and are planned for what they ask.
_BY_KEYS = frozenset(
    {"durable_commit", "durable_placement", "durable_scheduler", "durable_workload"}
)


def engine_for(
    url: str, role: str, *, pool_size: int = 4, breaker: Breaker | None = None
) -> Engine:
    """A small pool whose every connection acts as one controller's role, at READ COMMITTED.

    There each statement reads at a moment of its own, so who only reads needs no BEGIN and COMMIT.
    """
    if role not in _ROLE_NAMES:
        raise AuthorityError(
            f"There is no role {role!r}; known are {', '.join(sorted(_ROLE_NAMES))}."
        )
    options = {
        "role": role,
        "default_transaction_isolation": "read\\ committed",
        "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
        "lock_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
        # A session that was given up must not go on holding its locks.
        "client_connection_check_interval": "1s",
        "plan_cache_mode": "force_generic_plan" if role in _BY_KEYS else "auto",
    }
    settings = " ".join(f"-c {name}={value}" for name, value in options.items())

    async def connect() -> Session:
        session = await open_session(url, role, options=settings)
        try:
            await check_schema(session)
        except BaseException:
            await session.close()
            raise
        return session

    place = driver_url(url)
    return Engine(
        place,
        role,
        breaker or Breaker(place),
        # Below the time of a transaction, so that a full pool is told apart from silence.
        Pool(connect, pool_size, POOL_TIMEOUT_SECONDS),
        commits_each=role == READER,
    )


class Databases:
    """Where the global side and each region live: one database, or several, by settings.

    Engines are made at first use, one small pool per place and role, and closed together.
    """

    def __init__(self, url: str, regional_urls: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._regional_urls = dict(regional_urls or {})
        self._engines: dict[tuple[str, str], Engine] = {}
        self._breakers: dict[str, Breaker] = {}

    def at_global(self, role: str) -> Engine:
        return self.at(self._url, role)

    def at_region(self, region: str, role: str, *, commits_each: bool = False) -> Engine:
        engine = self.at(self.url_of(region), role)
        return engine.committing_each() if commits_each else engine

    def url_of(self, region: str) -> str:
        return self._regional_urls.get(region, self._url)

    def is_beside_global(self, region: str) -> bool:
        """Whether the region lives in the database of the global side, and so by the same clock."""
        return self.url_of(region) == self._url

    def is_away(self, region: str) -> bool:
        """Whether the region's database is known not to answer, without asking it."""
        breaker = self._breakers.get(self.url_of(region))
        return breaker is not None and breaker.is_open

    @property
    def urls(self) -> tuple[str, ...]:
        """Every database, the global one first."""
        return tuple(dict.fromkeys([self._url, *self._regional_urls.values()]))

    def regions_of(self, url: str) -> list[RegionId]:
        """The regions that are said to live in this database, which need not answer for that."""
        return sorted(RegionId(name) for name, at in self._regional_urls.items() if at == url)

    def at(self, url: str, role: str) -> Engine:
        if (url, role) not in self._engines:
            breaker = self._breakers.setdefault(url, Breaker(driver_url(url)))
            self._engines[(url, role)] = engine_for(url, role, breaker=breaker)
        return self._engines[(url, role)]

    async def close(self) -> None:
        while self._breakers:
            _, breaker = self._breakers.popitem()
            await breaker.close()
        while self._engines:
            _, engine = self._engines.popitem()
            await engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def refuse_other_schema(databases: Databases) -> None:
    """Refuses if any database that answers is at another schema than this release."""

    async def connect(url: str) -> None:
        # One that does not answer is reported where it is needed.
        with suppress(AuthorityUnreachableError):
            engine = databases.at(url, READER)
            await transact(engine, _nothing, doing="compare the schema")

    await asyncio.gather(*map(connect, databases.urls))


async def _nothing(_: AsyncConnection) -> None:
    """Connecting is all: every new connection compares the schema."""


async def transact(
    engine: Engine,
    body: Callable[[AsyncConnection], Awaitable[T]],
    *,
    doing: str | Callable[[], str],
    timeout_seconds: float | None = None,
) -> T:
    """Runs `body` in one transaction, and retries faults that pass, a bounded number of times.

    `body` must be idempotent: when the answer to COMMIT is lost, only the next run finds out by its
    keys whether it happened. That run waits for the region's lock, so it cannot overtake the lost
    transaction.
    """
    limit = TRANSACTION_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    breaker = engine.breaker
    may_have_committed = False
    for attempt in range(ATTEMPTS):
        if breaker.is_open:
            breaker.refuse_if_open(doing if isinstance(doing, str) else doing())
        try:
            async with asyncio.timeout(limit) as deadline:
                with breaker.watching(deadline):
                    async with engine.begin() as connection:
                        return await body(connection)
        except (psycopg.Error, OSError, TimeoutError, PoolTimeoutError) as error:
            fault = classify(error)
            what = doing if isinstance(doing, str) else doing()
            refuse_what_went_back(error, what)
            if fault is Fault.CONSTRAINT:
                raise BrokenConstraintError(
                    f"Could not {what}: a constraint of the authority refused it and nothing "
                    "changed; check the values, and report it if they are right."
                ) from error
            if fault is Fault.FINAL:
                with explained(what):
                    raise
            may_have_committed = may_have_committed or fault is Fault.UNKNOWN
            if attempt + 1 == ATTEMPTS or (breaker.is_open and fault is Fault.UNKNOWN):
                unavailable = _unavailable(engine, fault, what, error, may_have_committed)
                raise await unavailable from error
        backoff = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**attempt)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - it guards nothing
    raise AssertionError("the loop returns or raises")


# A server that was never migrated does not know the role of the login.
_REFUSED = f"{LOGIN_REFUSED}; if the server is new, run `durable migrate` first"

# Sessions that hold locks and wait for none: for those the others wait.
_HOLDERS = text("""
    SELECT DISTINCT format('%s (pid %s)', coalesce(nullif(application_name, ''), 'a session'), pid)
      FROM pg_stat_activity AS a JOIN pg_locks AS l USING (pid)
     WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
       AND l.granted AND l.locktype = 'relation' AND l.mode <> 'AccessShareLock'
       AND NOT EXISTS (SELECT FROM pg_locks AS w WHERE w.pid = a.pid AND NOT w.granted)
     LIMIT 3
""")


async def _unavailable(
    engine: Engine, fault: Fault, doing: str, error: BaseException, may_have_committed: bool
) -> AuthorityUnreachableError:
    """Why it was not done: the server is busy, refuses the login, or does not answer."""
    place = f"PostgreSQL at {engine.place.host}:{engine.place.port or 5432}"
    if fault is Fault.AGAIN:
        why = await _who_holds_locks(engine) if sqlstate_of(error) == LOCK_TIMEOUT else None
        changed = "An earlier try may have changed it" if may_have_committed else "Nothing changed"
        return AuthorityBusyError(
            f"Could not {doing}: {place} answers, but {why or why_busy(error)}. {changed}; "
            "send the same request again shortly."
        )
    breaker = engine.breaker
    refused = not breaker.is_open and await asyncio.to_thread(is_refused_login, error)
    if not refused:
        breaker.open()
    silent = f"{place} did not answer; check that it runs there"
    only_read = engine.role == READER
    unknown = "; the change may have been made, so send the same request again"
    return AuthorityUnreachableError(
        f"Could not {doing}: {_REFUSED if refused else silent}"
        f"{'' if only_read or refused else unknown}."
    )


async def _who_holds_locks(engine: Engine) -> str:
    """Who seems to hold what was waited for, looked up when the wait has ended."""
    waited = "a lock that it needs was not free in time"
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS), engine.begin() as connection:
            holders = list((await connection.execute(_HOLDERS)).scalars())
    except (psycopg.Error, OSError, TimeoutError, PoolTimeoutError):
        return waited
    return f"{waited}: {' and '.join(holders)} held locks then" if holders else waited


async def open_session(url: str, name: str, *, options: str | None = None) -> Session:
    """Connects under a name that others see, and detects a silent server within seconds."""
    return await Session.connect(
        driver_url(url).set(drivername="postgresql").render_as_string(hide_password=False),
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        application_name=name,
        options=options,
        keepalives_idle=KEEPALIVE["keepalives_idle"],
        keepalives_interval=KEEPALIVE["keepalives_interval"],
        keepalives_count=KEEPALIVE["keepalives_count"],
        tcp_user_timeout=KEEPALIVE["tcp_user_timeout"],
    )

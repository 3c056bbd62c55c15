"""What a database error means for its caller, by SQLSTATE and never by its text."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.errors import FinishedPGconn
from sqlalchemy.exc import DBAPIError


class Fault(Enum):
    """What to do about an error."""

    AGAIN = "again"  # certainly rolled back: run the transaction again
    UNKNOWN = "unknown"  # may or may not have committed: send again, the keys decide
    CONSTRAINT = "constraint"  # a constraint refused the write
    FINAL = "final"  # a bug or a misconfiguration: a retry would not help


class AuthorityError(Exception):
    """The authority could not be used; the sentence says what to do."""


class AuthorityUnreachableError(AuthorityError):
    """No answer within the retries. The write may have committed: send the same keys again."""


class AuthorityBusyError(AuthorityUnreachableError):
    """It answers, but could not do it in time; the same may be sent again."""


class PoolTimeoutError(Exception):
    """No connection of this process was free in time."""


class CircuitOpenError(AuthorityUnreachableError):
    """The database has not answered for a while, so it was not even asked; see `breaker`."""


class WentBackError(AuthorityUnreachableError):
    """The database is older than what others know of it, and changes nothing: the sentence says so.

    Whoever waits for a database that does not answer waits for this one as well.
    """


class BrokenConstraintError(AuthorityError):
    """The schema refused a write that the code believed to be legal; nothing changed."""


# Certainly rolled back: serialization failure, deadlock, lock and statement timeout, our own limit
# on idle transactions, a server short of connections, memory or disk, or one that is read-only
# after a failover.
_AGAIN = frozenset(
    {"40001", "40P01", "55P03", "57014", "25P03", "25P04", "53300", "53200", "53100", "53400",
     "25006"}
)  # fmt: skip


# What keeps a server that answers from doing it, by the same states.
_BUSY = {
    "40001": "it collided with other transactions each time",
    "40P01": "it collided with other transactions each time",
    "53100": "its disk is full: see runbooks/disk-full.md",
    "53200": "it is out of memory",
    "53300": "it has no connection left: raise max_connections, or run fewer processes",
    "25006": "it is read-only: check that the URL names the primary, and not a standby",
}
LOCK_TIMEOUT = "55P03"
_SLOW = "it took longer than its time limit each time"


def why_busy(error: BaseException) -> str:
    """What keeps a server from doing what it was asked for, if the error is of the kind AGAIN."""
    if isinstance(error, PoolTimeoutError):
        return "all of this process's connections for it are in use"
    return _BUSY.get(sqlstate_of(error) or "", _SLOW)


LOGIN_REFUSED = (
    "PostgreSQL answers and refuses the login: check the user, the password and the database in "
    "the database URL, and the server's limit of connections"
)


# Raised by `refuse_what_went_back`, with the sentence.
_WENT_BACK = "DU001"


def refuse_what_went_back(error: BaseException, doing: str) -> None:
    """Raises if the database refused because it was restored from an older copy."""
    cause = _cause_of(error)
    if isinstance(cause, psycopg.Error) and cause.sqlstate == _WENT_BACK:
        raise WentBackError(f"Could not {doing}: {cause.diag.message_primary}") from error


def sqlstate_of(error: BaseException) -> str | None:
    cause = _cause_of(error)
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None


def _cause_of(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def is_refused_login(error: BaseException) -> bool:
    """Whether a failed connection was refused by a server that does answer. Blocks for a moment.

    The driver keeps no SQLSTATE of a failed login, so it looks like a server that is down.
    """
    cause = _cause_of(error)
    tried = cause.pgconn if isinstance(cause, psycopg.OperationalError) else None
    if not isinstance(tried, FinishedPGconn) or sqlstate_of(error) is not None:
        return False
    host, port = tried.hostaddr or tried.host, tried.port
    place = make_conninfo(host=host.decode(), port=port.decode(), connect_timeout=2)
    return pq.PGconn.ping(place.encode()) == pq.Ping.OK


def classify(error: BaseException) -> Fault:
    """The meaning of an error that a transaction raised."""
    state = sqlstate_of(error)
    if state in _AGAIN or isinstance(error, PoolTimeoutError):
        return Fault.AGAIN
    # A value that the database cannot hold is as much one row's fault as a broken constraint.
    if state is not None and state.startswith(("22", "23")):
        return Fault.CONSTRAINT
    # Connection exceptions and server shutdowns, or no state at all because there was no answer.
    if state == "40003" or (state is not None and state.startswith(("08", "57P"))):
        return Fault.UNKNOWN
    silent = psycopg.OperationalError | psycopg.InterfaceError | OSError | TimeoutError
    if state is None and isinstance(_cause_of(error), silent):
        return Fault.UNKNOWN
    return Fault.FINAL


_REMEDIES = {
    "28P01": "the password was refused: check the user and password in the database URL",
    "28000": "the login was refused: check the user in the database URL",
    "3D000": "the database does not exist: create it, or correct the database URL",
    "42501": "the login lacks the privilege: connect as the owner, or as a member of the role",
    "42P01": "a table is missing: run `durable migrate` first",
    "3F000": "a schema is missing: run `durable migrate` first",
    "22023": "a role or setting is unknown: run `durable migrate` first",
}


@contextmanager
def explained(doing: str) -> Generator[None]:
    """Turns a driver's error into one sentence; its text stays in the cause for debugging."""
    try:
        yield
    except (DBAPIError, psycopg.Error, OSError) as error:
        state = sqlstate_of(error)
        if state in _REMEDIES:
            raise AuthorityError(f"Could not {doing}: {_REMEDIES[state]}.") from error
        if is_refused_login(error):
            raise AuthorityError(f"Could not {doing}: {LOGIN_REFUSED}.") from error
        fault = classify(error)
        if fault is Fault.AGAIN:
            raise AuthorityBusyError(
                f"Could not {doing}: PostgreSQL answers, but {why_busy(error)}. Nothing changed; "
                "try again shortly."
            ) from error
        if fault is Fault.UNKNOWN:
            raise AuthorityUnreachableError(
                f"Could not {doing}: PostgreSQL did not answer; check that it runs and answers."
            ) from error
        raise AuthorityError(
            f"Could not {doing}: PostgreSQL refused with SQLSTATE {state}; this is a defect."
        ) from error

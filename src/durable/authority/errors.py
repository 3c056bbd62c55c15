"""What a database error means for the one who met it, by SQLSTATE and never by its text."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError


class Fault(Enum):
    """What to do about an error."""

    AGAIN = "again"  # rolled back for sure: run the transaction again
    UNKNOWN = "unknown"  # may or may not have committed: send again, the keys tell
    CONSTRAINT = "constraint"  # a constraint refused the write
    FINAL = "final"  # a bug or a misconfiguration: again would not help


class AuthorityError(Exception):
    """The authority could not be used; the sentence says what to do."""


class AuthorityUnreachableError(AuthorityError):
    """No answer within the retries. What was sent may have happened: send the same keys again."""


# Serialization failure, deadlock, lock timeout, statement timeout, too many connections.
_AGAIN = frozenset({"40001", "40P01", "55P03", "57014", "53300"})


def sqlstate_of(error: BaseException) -> str | None:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None


def classify(error: BaseException) -> Fault:
    """The meaning of an error that a transaction raised."""
    state = sqlstate_of(error)
    if state in _AGAIN:
        return Fault.AGAIN
    if state is not None and state.startswith("23"):
        return Fault.CONSTRAINT
    # Connection exceptions and server shutdowns, or no state at all because nobody answered.
    if state is not None and state.startswith(("08", "57P")):
        return Fault.UNKNOWN
    silent = isinstance(error, OperationalError | InterfaceError | psycopg.OperationalError)
    if state is None and (silent or isinstance(error, OSError | TimeoutError)):
        return Fault.UNKNOWN
    return Fault.FINAL


_REMEDIES = {
    "28P01": "the password was refused: check the user and password in the database URL",
    "28000": "the login was refused: check the user in the database URL",
    "3D000": "the database does not exist: create it, or correct the database URL",
    "42501": "the login lacks the privilege: connect as the owner, or as a member of the role",
    "42P01": "a table is missing: run `durable up`, or migrate the database",
    "3F000": "a schema is missing: run `durable up`, or migrate the database",
    "22023": "a role or setting is unknown: run `durable up`, or migrate the database",
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
        if classify(error) in (Fault.UNKNOWN, Fault.AGAIN):
            raise AuthorityUnreachableError(
                f"Could not {doing}: PostgreSQL did not answer; check that it runs and answers."
            ) from error
        raise AuthorityError(
            f"Could not {doing}: PostgreSQL refused with SQLSTATE {state}; this is a defect."
        ) from error

"""The schema that this release is written for, and what to do about a database at another one."""

import psycopg

from durable.authority.db.breaker import Session
from durable.authority.db.errors import AuthorityError

# The newest migration. Here too, so that a command need not load Alembic to compare; a test holds
# the two together.
REVISION = "0001"

READ_REVISION = "SELECT version_num FROM alembic_version"


class SchemaVersionError(AuthorityError):
    """The database is at another schema than this release; the sentence says which must move."""


def is_newer(found: str | None) -> bool:
    """Whether a later release migrated the database."""
    return found is not None and (len(found), found) > (len(REVISION), REVISION)


def schema_problem(found: str | None) -> str | None:
    """What to do about a database at this revision (None: never migrated), if anything."""
    if found == REVISION:
        return None
    if found is None:
        return "The database has no schema yet: run `durable migrate` first."
    if is_newer(found):
        return (
            f"The database is at schema {found}, which is newer than this release of durable "
            f"knows ({REVISION}): upgrade durable here."
        )
    return (
        f"The database is at schema {found}, and this release of durable needs {REVISION}: "
        "run `durable migrate` first."
    )


async def check_schema(session: Session) -> None:
    """Refuses a new connection to a database that is at another schema than this release."""
    try:
        row = await (await session.execute(READ_REVISION)).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    problem = schema_problem(None if row is None else row[0])
    if problem is not None:
        raise SchemaVersionError(problem)

"""Brings a database to this release's schema, and its roles to their exact grants."""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from durable.authority.db.connection import (
    CONNECT_TIMEOUT_SECONDS,
    KEEPALIVE,
    Databases,
    driver_url,
)
from durable.authority.db.errors import AuthorityUnreachableError, explained, sqlstate_of
from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.db.roles import grant_statements
from durable.authority.db.schema_version import (
    READ_REVISION,
    SchemaVersionError,
    is_newer,
    schema_problem,
)
from durable.authority.operators.changes import ensure_operator
from durable.model.ids import ActorId, RegionId

LOCK_TIMEOUT_SECONDS = 60  # how long an upgrade waits for another of the same database
# The loser of a race to create the version table begins again and then waits for its lock.
ATTEMPTS = 3


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


def head_revision() -> str:
    """The revision that this release's code expects."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "the package carries its migrations"
    return head


# As Alembic itself would create it.
_CREATE_VERSIONS = """
    CREATE TABLE IF NOT EXISTS alembic_version (
        version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))
"""

_SERVES = text("""
    INSERT INTO regional.deployment (serves_global) VALUES (:serves_global)
        ON CONFLICT (singleton) DO UPDATE SET serves_global = true
     WHERE excluded.serves_global AND NOT deployment.serves_global
""")


def upgrade(url: str, *, serves_global: bool = True) -> None:
    """Migrates to the newest revision and re-applies every role's grants, in one transaction.

    A database that serves regions alone is marked so, because there nothing can be checked against
    the global side. One that serves the global side stays marked, whichever URL it is reached by.
    """
    with explained("migrate the database"):
        limits = f"-c lock_timeout={LOCK_TIMEOUT_SECONDS}s"
        engine = create_engine(
            driver_url(url),
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "options": limits,
                **KEEPALIVE,
            },
        )
        try:
            for attempt in range(ATTEMPTS):
                with _race_lost(last=attempt + 1 == ATTEMPTS), engine.begin() as connection:
                    _upgrade(connection, serves_global)
                    return
        finally:
            engine.dispose()


@contextmanager
def _race_lost(*, last: bool) -> Generator[None]:
    """Lets go of the error of an upgrade whose version table another one created meanwhile."""
    try:
        yield
    except DBAPIError as error:
        # Unique violation of the catalog, or a table that exists by now.
        if last or sqlstate_of(error) not in ("23505", "42P07"):
            raise


def _upgrade(connection: Connection, serves_global: bool) -> None:
    # Two upgrades take turns at a table of the owner's: others may read it, and no reader's lock is
    # in the way. Where it does not exist yet, creating it is the lock.
    connection.execute(text(_CREATE_VERSIONS))
    connection.execute(text("LOCK TABLE alembic_version IN EXCLUSIVE MODE"))
    found = connection.execute(text(READ_REVISION)).scalar_one_or_none()
    if is_newer(found):
        raise SchemaVersionError(schema_problem(found))
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.execute(_SERVES, {"serves_global": serves_global})
    for statement in grant_statements():
        connection.execute(text(statement))


def upgrade_all(
    home: str, regional: Mapping[str, str], first_operator: ActorId
) -> tuple[int, UnreachableRegions]:
    """Migrates the global side's database and every other that answers.

    An operator must be able to begin: a database without operators gets this one, with every right.
    Answers how many were migrated, and the regions whose database did not answer.
    """
    upgrade(home)
    asyncio.run(_ensure_operator(home, first_operator))
    migrated, unreachable = {home}, dict[RegionId, str]()
    for region, url in sorted(regional.items()):
        if url not in migrated:
            try:
                upgrade(url, serves_global=False)
            except AuthorityUnreachableError as error:
                unreachable[RegionId(region)] = str(error)
            else:
                migrated.add(url)
    return len(migrated), unreachable


async def _ensure_operator(home: str, operator: ActorId) -> None:
    async with Databases(home) as databases:
        await ensure_operator(databases, operator)

"""A database comes to the newest schema, whichever way, and faults are one sentence."""

import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import make_url

from durable.authority import migrations
from durable.authority.cache.watch import watch
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError, AuthorityUnreachableError
from durable.authority.db.schema_version import REVISION, schema_problem
from durable.authority.fleet.regions import read_region
from durable.authority.migrations import head_revision, upgrade
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres
from tests.authority.world import EAST
from tests.conftest import Copies

COLUMNS = """
    SELECT n.nspname, c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
           a.attnotnull, a.attidentity::text, a.attgenerated::text,
           pg_get_expr(d.adbin, d.adrelid), co.collname
      FROM pg_attribute AS a
      JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r'
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
      LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      LEFT JOIN pg_collation AS co ON co.oid = a.attcollation
     WHERE n.nspname IN ('global', 'regional', 'audit') AND a.attnum > 0 AND NOT a.attisdropped
"""
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), condeferrable,
           condeferred, convalidated
      FROM pg_constraint
     WHERE connamespace IN (SELECT oid FROM pg_namespace
                             WHERE nspname IN ('global', 'regional', 'audit'))
"""
INDEXES = """
    SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid), indisunique, indisprimary
      FROM pg_index WHERE indrelid IN (
           SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE n.nspname IN ('global', 'regional', 'audit'))
"""
TABLES = """
    SELECT n.nspname, c.relname, c.relkind::text, c.reloptions, c.relpersistence::text
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE n.nspname IN ('global', 'regional', 'audit') AND c.relkind IN ('r', 'S', 'v', 'm')
"""
TRIGGERS = """
    SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
     WHERE NOT tgisinternal
"""


@pytest.fixture
def empty_url(copies: Copies) -> Iterator[str]:
    with copies.lend("template1") as url:
        yield url


def seen(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return sorted(connection.execute(query.encode()).fetchall(), key=repr)


def everything(url: str) -> list[list[tuple[object, ...]]]:
    return [seen(url, query) for query in (TABLES, COLUMNS, CONSTRAINTS, INDEXES, TRIGGERS)]


# ── the way to the newest schema ────────────────────────────────────────────────────────────────


def test_an_empty_database_is_brought_to_the_newest_revision(empty_url: str) -> None:
    upgrade(empty_url)
    assert seen(empty_url, "SELECT version_num FROM alembic_version") == [(head_revision(),)]
    assert seen(empty_url, TABLES)


def test_upgrading_again_changes_nothing(database_url: str) -> None:
    before = everything(database_url)
    upgrade(database_url)
    assert everything(database_url) == before
    assert seen(database_url, "SELECT version_num FROM alembic_version") == [(head_revision(),)]


def test_upgrading_takes_back_what_was_granted_by_hand(database_url: str) -> None:
    with psycopg.connect(database_url) as owner:
        for grant in (
            "DELETE ON global.policies",
            "UPDATE (used_cpu_millis) ON regional.nodes",
            "EXECUTE ON FUNCTION audit.append",
            "CREATE ON SCHEMA regional",
            "USAGE ON ALL SEQUENCES IN SCHEMA regional",
        ):
            owner.execute(f"GRANT {grant} TO durable_reader".encode())
    upgrade(database_url)
    assert seen(
        database_url,
        """
        SELECT has_table_privilege('durable_reader', 'global.policies', 'DELETE')
            OR has_column_privilege('durable_reader', 'regional.nodes', 'used_cpu_millis', 'UPDATE')
            OR has_function_privilege('durable_reader', p.oid, 'EXECUTE')
            OR has_schema_privilege('durable_reader', 'regional', 'CREATE')
            OR (SELECT bool_or(has_sequence_privilege('durable_reader', c.oid, 'USAGE'))
                  FROM pg_class AS c WHERE c.relkind = 'S'),
               has_table_privilege('durable_reader', 'global.policies', 'SELECT')
          FROM pg_proc AS p WHERE p.proname = 'append' AND p.pronamespace = 'audit'::regnamespace
        """,
    ) == [(False, True)]


def test_two_upgrades_at_the_same_time_both_succeed(empty_url: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        for upgraded in [threads.submit(upgrade, empty_url) for _ in range(2)]:
            upgraded.result(timeout=60)
    assert seen(empty_url, "SELECT version_num FROM alembic_version") == [(head_revision(),)]


WAITING = "SELECT FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"


def test_an_upgrade_waits_for_the_one_before_it(database_url: str) -> None:
    with (
        psycopg.connect(database_url) as earlier,
        psycopg.connect(database_url, autocommit=True) as looking,
        ThreadPoolExecutor(1) as threads,
    ):
        earlier.execute("LOCK TABLE alembic_version IN EXCLUSIVE MODE")
        later = threads.submit(upgrade, database_url)
        while not looking.execute(WAITING, [looking.info.dbname]).fetchall():
            assert not later.done()
        earlier.commit()
        later.result(timeout=60)


def test_no_role_keeps_an_upgrade_waiting(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT_SECONDS", 5)
    with psycopg.connect(database_url) as reader:
        reader.execute("SET ROLE durable_reader")
        # Everything that it may take, also the number that upgrades once took turns by.
        reader.execute("SELECT pg_advisory_lock(x'64757261'::int), pg_advisory_lock(0, 0)")
        reader.execute("LOCK TABLE alembic_version IN ACCESS SHARE MODE")
        reader.execute("SELECT version_num FROM alembic_version")
        upgrade(database_url)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("LOCK TABLE alembic_version IN ROW SHARE MODE NOWAIT")


def test_an_upgrade_that_fails_leaves_nothing_behind(empty_url: str) -> None:
    with psycopg.connect(empty_url) as owner:
        owner.execute("CREATE SCHEMA audit CREATE TABLE events (nothing text)")
    before = seen(empty_url, TABLES)
    with pytest.raises(AuthorityError, match="Could not migrate the database"):
        upgrade(empty_url)
    assert seen(empty_url, TABLES) == before
    assert seen(empty_url, "SELECT to_regclass('alembic_version')") == [(None,)]


# ── faults ──────────────────────────────────────────────────────────────────────────────────────

SECRET = "hunter2-and-more"  # noqa: S105


def sentence_of(url: str) -> str:
    """What upgrading says; the password is nowhere, not even in the causes."""
    with pytest.raises(AuthorityError) as error:
        upgrade(url)
    password = make_url(url).password
    assert password
    assert str(password) not in "".join(traceback.format_exception(error.value))
    return str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        f"postgresql://durable:{SECRET}@127.0.0.1:port/durable",
        f"postgresql://durable:{SECRET}@127.0.0.1:99999/durable",
        f"postgresql://durable:{SECRET}@[::1/durable",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_with_how_to_write_it(url: str) -> None:
    with pytest.raises(AuthorityError) as error:
        upgrade(url)
    assert str(error.value) == (
        "The database URL cannot be read; write postgresql://user:password@host:port/database."
    )
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_another_databases_url_is_refused_by_name() -> None:
    assert sentence_of(f"mysql://durable:{SECRET}@127.0.0.1/durable") == (
        "The database URL names mysql; durable needs postgresql://…"
    )


REFUSED = (
    "Could not migrate the database: PostgreSQL answers and refuses the login: check the user, "
    "the password and the database in the database URL, and the server's limit of connections."
)


@pytest.mark.parametrize(
    "wrong", [{"password": SECRET}, {"username": "nobody"}, {"database": "nowhere"}],
    ids=["password", "user", "database"],
)  # fmt: skip
def test_a_refused_login_is_distinguished_from_a_silent_server(
    postgres: EmbeddedPostgres, wrong: dict[str, str]
) -> None:
    assert sentence_of(but(postgres, **wrong)) == REFUSED


def but(postgres: EmbeddedPostgres, **wrong: str | int) -> str:
    url = make_url(postgres.url()).set(**wrong)  # pyright: ignore[reportArgumentType]
    return url.render_as_string(hide_password=False)


def test_a_missing_server_is_reported_as_not_answering(postgres: EmbeddedPostgres) -> None:
    assert sentence_of(but(postgres, port=free_port())) == (
        "Could not migrate the database: PostgreSQL did not answer; check that it runs and answers."
    )


async def test_a_refused_login_is_reported_by_every_other_command_too(
    postgres: EmbeddedPostgres,
) -> None:
    url = but(postgres, password=SECRET)
    async with Databases(url) as databases:
        with pytest.raises(AuthorityUnreachableError, match="answers and refuses the login") as no:
            await read_region(databases, EAST)
    assert SECRET not in "".join(traceback.format_exception(no.value))
    with pytest.raises(AuthorityError, match="answers and refuses the login"):
        await anext(watch(url, frozenset({EAST}), resync_seconds=1))


NO_SCHEMA = "The database has no schema yet: run `durable migrate` first."


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (None, NO_SCHEMA),
        ("0000", "The database is at schema 0000, and this release of durable needs 0001: "
         "run `durable migrate` first."),
        ("0001", None),
        ("0002", "The database is at schema 0002, which is newer than this release of durable "
         "knows (0001): upgrade durable here."),
        ("10000", "The database is at schema 10000, which is newer than this release of durable "
         "knows (0001): upgrade durable here."),
    ],
)  # fmt: skip
def test_a_schema_of_another_release_has_one_sentence(
    found: str | None, sentence: str | None
) -> None:
    assert schema_problem(found) == sentence


def test_the_release_knows_its_newest_migration() -> None:
    assert head_revision() == REVISION


async def test_a_database_that_was_never_migrated_says_so_at_once(
    database_url: str, empty_url: str
) -> None:
    assert seen(database_url, TABLES), "another one of this server was: the roles exist"
    async with Databases(empty_url) as databases:
        with pytest.raises(AuthorityError) as error:
            await read_region(databases, EAST)
    assert str(error.value) == NO_SCHEMA


async def test_a_database_of_a_newer_release_is_neither_used_nor_migrated(
    database_url: str,
) -> None:
    with psycopg.connect(database_url) as owner:
        owner.execute("UPDATE alembic_version SET version_num = '0002'")
    async with Databases(database_url) as databases:
        with pytest.raises(AuthorityError, match="newer than this release of durable"):
            await read_region(databases, EAST)
    with pytest.raises(AuthorityError, match="newer than this release of durable"):
        upgrade(database_url)

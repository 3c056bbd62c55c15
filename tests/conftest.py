"""One real PostgreSQL for the run, and a database of its own for each test, from a template."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from durable.authority.migrations import upgrade
from durable.embedded.ports import free_port
from durable.embedded.postgres import EmbeddedPostgres

TEMPLATE = "durable_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    # Not below pytest's own folder: every run closes that to others, and as root the server runs
    # under another user.
    with tempfile.TemporaryDirectory(prefix="durable-test-") as folder:
        directory = Path(folder) / "postgres"
        directory.mkdir()
        server = EmbeddedPostgres(directory)
        # Nothing here outlives the run: durability is tested by those who kill servers.
        server.start(free_port(), settings={"fsync": "off", "synchronous_commit": "off"})
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres) -> str:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    upgrade(postgres.url(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def new_database(postgres: EmbeddedPostgres, template: str) -> Iterator[Callable[[], str]]:
    """Makes migrated, empty authorities that only this test knows; they end with it."""
    made: list[str] = []
    with psycopg.connect(postgres.url(), autocommit=True) as connection:

        def make() -> str:
            name = f"test_{next(_numbers)}"
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
            made.append(name)
            return postgres.url(name)

        try:
            yield make
        finally:
            for name in made:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def database_url(new_database: Callable[[], str]) -> str:
    return new_database()

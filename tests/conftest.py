"""One real PostgreSQL for the run, and a database of its own for each test, from a template."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from durable.authority.migrations import upgrade
from durable.embedded.ports import free_port
from durable.embedded.postgres import EmbeddedPostgres

TEMPLATE = "durable_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    directory: Path = tmp_path_factory.mktemp("postgres")
    server = EmbeddedPostgres(directory)
    server.start(free_port())
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres) -> str:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")  # pyright: ignore[reportArgumentType]
    upgrade(postgres.url(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database_url(postgres: EmbeddedPostgres, template: str) -> Iterator[str]:
    """A migrated, empty authority that only this test knows."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")  # pyright: ignore[reportArgumentType, reportCallIssue]
        try:
            yield postgres.url(name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # pyright: ignore[reportArgumentType, reportCallIssue]

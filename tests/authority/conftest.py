"""Each test of the authority gets a world in databases of its own, empty or furnished."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from durable.authority.connection import Databases
from durable.authority.migrations import upgrade
from durable.embedded.postgres import EmbeddedPostgres
from tests.authority.world import WEST, World

# Furnishing a world takes twenty transactions: it is done once, and the result is a template.
Furnish = Callable[[World], Coroutine[Any, Any, World]]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with Databases(database_url) as databases:
        yield World(databases)


@contextmanager
def copied(postgres: EmbeddedPostgres, name: str, template: str) -> Generator[str]:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        try:
            yield postgres.url(name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def furnish(databases: Databases, build: Furnish) -> None:
    async def run() -> None:
        async with databases:
            await build(World(databases))

    asyncio.run(run())


@pytest.fixture(scope="session")
def ready_template(postgres: EmbeddedPostgres, template: str) -> Iterator[str]:
    with copied(postgres, "ready_template", template) as url:
        furnish(Databases(url), World.ready)
        yield "ready_template"


@pytest.fixture(scope="session")
def together_template(postgres: EmbeddedPostgres, template: str) -> Iterator[str]:
    with copied(postgres, "together_template", template) as url:
        furnish(Databases(url), World.with_two_regions)
        yield "together_template"


@pytest.fixture(scope="session")
def apart_templates(postgres: EmbeddedPostgres, template: str) -> Iterator[tuple[str, str]]:
    """The global side with us-east, and us-west in a database of its own."""
    with (
        copied(postgres, "apart_template", template) as url,
        copied(postgres, "apart_west_template", "template1") as west_url,
    ):
        upgrade(west_url, serves_global=False)
        furnish(Databases(url, {WEST: west_url}), World.with_two_regions)
        yield "apart_template", "apart_west_template"


@pytest.fixture
async def ready_world(postgres: EmbeddedPostgres, ready_template: str) -> AsyncIterator[World]:
    """`World.ready()`: us-east, node n1, one tenant with room, eight slots."""
    with copied(postgres, "ready_world", ready_template) as url:
        async with Databases(url) as databases:
            yield World(databases, sessions={"n1": 1})


@pytest.fixture
async def neighbours(postgres: EmbeddedPostgres, together_template: str) -> AsyncIterator[World]:
    """`World.with_two_regions()` in one database."""
    with copied(postgres, "neighbours", together_template) as url:
        async with Databases(url) as databases:
            yield World(databases, sessions={"e1": 1, "w1": 1})


@pytest.fixture(params=["one database", "two databases"])
def urls(
    request: pytest.FixtureRequest, postgres: EmbeddedPostgres
) -> Iterator[tuple[str, dict[str, str]]]:
    if request.param == "one database":
        with copied(postgres, "together", request.getfixturevalue("together_template")) as url:
            yield url, {}
    else:
        template, west_template = request.getfixturevalue("apart_templates")
        with (
            copied(postgres, "apart", template) as url,
            copied(postgres, "apart_west", west_template) as west_url,
        ):
            yield url, {WEST: west_url}


@pytest.fixture
async def two_regions(urls: tuple[str, dict[str, str]]) -> AsyncIterator[World]:
    """`World.with_two_regions()`, where the two share a database or do not."""
    async with Databases(*urls) as databases:
        yield World(databases, sessions={"e1": 1, "w1": 1})

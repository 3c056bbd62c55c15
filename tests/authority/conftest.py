"""Each test of the authority gets a world in databases of its own, empty or furnished."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from durable.authority.db.connection import Databases
from durable.authority.migrations import upgrade
from tests.authority.world import WEST, World
from tests.conftest import Copies

# Furnishing a world takes twenty transactions: it is done once, and the result is a template.
Furnish = Callable[[World], Coroutine[Any, Any, World]]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with Databases(database_url) as databases:
        yield World(databases)


def furnished(copies: Copies, template: str, build: Furnish) -> str:
    """The name of a copy in which this was done."""
    name = copies.make(template)
    furnish(Databases(copies.url(name)), build)
    return name


def furnish(databases: Databases, build: Furnish) -> None:
    async def run() -> None:
        async with databases:
            await build(World(databases))

    asyncio.run(run())


@pytest.fixture(scope="session")
def ready_template(copies: Copies, template: str) -> str:
    return furnished(copies, template, World.ready)


@pytest.fixture(scope="session")
def together_template(copies: Copies, template: str) -> str:
    return furnished(copies, template, World.with_two_regions)


@pytest.fixture(scope="session")
def apart_templates(copies: Copies, template: str) -> tuple[str, str]:
    """The global side with us-east, and us-west in a database of its own."""
    name, west_name = copies.make(template), copies.make("template1")
    url, west_url = copies.url(name), copies.url(west_name)
    upgrade(west_url, serves_global=False)
    furnish(Databases(url, {WEST: west_url}), World.with_two_regions)
    return name, west_name


@pytest.fixture
async def ready_world(copies: Copies, ready_template: str) -> AsyncIterator[World]:
    """`World.ready()`: us-east, node n1, one tenant with room, eight slots."""
    with copies.lend(ready_template) as url:
        async with Databases(url) as databases:
            yield World(databases, sessions={"n1": 1})


@pytest.fixture
async def neighbours(copies: Copies, together_template: str) -> AsyncIterator[World]:
    """`World.with_two_regions()` in one database."""
    with copies.lend(together_template) as url:
        async with Databases(url) as databases:
            yield World(databases, sessions={"e1": 1, "w1": 1})


@pytest.fixture(params=["one database", "two databases"])
def urls(request: pytest.FixtureRequest, copies: Copies) -> Iterator[tuple[str, dict[str, str]]]:
    if request.param == "one database":
        with copies.lend(request.getfixturevalue("together_template")) as url:
            yield url, {}
    else:
        template, west_template = request.getfixturevalue("apart_templates")
        with copies.lend(template) as url, copies.lend(west_template) as west_url:
            yield url, {WEST: west_url}


@pytest.fixture
async def two_regions(urls: tuple[str, dict[str, str]]) -> AsyncIterator[World]:
    """`World.with_two_regions()`, where the two share a database or do not."""
    async with Databases(*urls) as databases:
        yield World(databases, sessions={"e1": 1, "w1": 1})

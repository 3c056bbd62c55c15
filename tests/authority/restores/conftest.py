"""Databases that are copied while they run, and put in the place of themselves later."""

from collections.abc import AsyncIterator
from contextlib import ExitStack

import psycopg
import pytest

from durable.authority.db.connection import Databases
from durable.stack.postgres.server import EmbeddedPostgres
from tests.authority.world import WEST, World
from tests.conftest import Copies

GLOBAL = "global"


class Apart:
    """The global side with us-east in one database, and us-west in another."""

    def __init__(
        self, urls: dict[str, str], copies: Copies, stack: ExitStack, server: EmbeddedPostgres
    ) -> None:
        self.urls = urls
        self._copies, self._stack, self._server = copies, stack, server
        self._backups: dict[str, str] = {}
        self._databases: Databases | None = None

    async def open(self) -> World:
        """The world as it is now: with the databases that are in place."""
        await self.close()
        self._databases = Databases(self.urls[GLOBAL], {WEST: self.urls[WEST]})
        return World(self._databases, sessions={"e1": 1, "w1": 1})

    async def back_up(self, *sides: str) -> World:
        """Copies databases as they are; what comes after is lost when they are restored."""
        await self.close()
        for side in sides:
            name = self.urls[side].rpartition("/")[2].partition("?")[0]
            self._end_sessions(name)
            self._backups[side] = self._copies.make(name)
        return await self.open()

    async def restore(self, *sides: str) -> World:
        """Puts the copies in the place of the databases that have gone on."""
        await self.close()
        for side in sides:
            self.urls[side] = self._stack.enter_context(self._copies.lend(self._backups[side]))
        return await self.open()

    async def close(self) -> None:
        if self._databases is not None:
            await self._databases.close()
            self._databases = None

    def _end_sessions(self, name: str) -> None:
        """A database is copied only while nobody is connected; those that were closed are going."""
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                [name],
            )


@pytest.fixture
async def apart(
    postgres: EmbeddedPostgres, copies: Copies, apart_templates: tuple[str, str]
) -> AsyncIterator[Apart]:
    template, west_template = apart_templates
    with ExitStack() as stack:
        urls = {
            GLOBAL: stack.enter_context(copies.lend(template)),
            WEST: stack.enter_context(copies.lend(west_template)),
        }
        world = Apart(urls, copies, stack, postgres)
        yield world
        await world.close()

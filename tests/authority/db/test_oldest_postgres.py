"""The oldest PostgreSQL that is supported, owned by a login that is no superuser."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from durable.authority.db.connection import Databases
from durable.authority.migrations import upgrade
from durable.authority.queue.requests import write_requests
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.reads.share_feed import ShareFeed
from durable.model.placement.intents import ReleaseCause
from durable.stack.child import Child, spawn
from durable.stack.ports import HOST, free_port
from durable.stack.postgres.data import binary
from durable.stack.postgres.system_user import (
    allow_traverse,
    change_owner,
    lend_binaries,
    postgres_user,
)
from tests.authority.queue.test_requests import request
from tests.authority.world import EAST, World, seconds

# The wheel carries this version beside the one that the embedded stack runs.
pytestmark = pytest.mark.server

BINARIES = binary("postgres").parents[2] / "pginstall" / "bin"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL 16 that trusts whoever comes; its address without a database."""
    user = postgres_user()
    with tempfile.TemporaryDirectory(prefix="durable-oldest-") as folder:
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        change_owner(data, user)
        if user is not None:
            allow_traverse(data)
            lend_binaries(BINARIES, user)
        subprocess.run(
            [BINARIES / "initdb", f"-D{data}", "-Udurable", "--auth=trust", "--no-sync"],
            user=user, group=user, cwd=folder, check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        port = free_port()
        options = ("-cunix_socket_directories=", f"-clisten_addresses={HOST}", f"-cport={port}")
        running = spawn(
            Child(
                name="postgres",
                argv=(str(BINARIES / "postgres"), f"-D{data}", "-cfsync=off", *options),
                environment={"LC_ALL": "C"},
                directory=Path(folder) / "run",
                ready=lambda _: _answers(port),
                user=user,
            )
        )
        running.wait_ready()
        try:
            yield f"{HOST}:{port}"
        finally:
            running.stop()


def _answers(port: int) -> bool:
    try:
        psycopg.connect(host=HOST, port=port, user="durable", dbname="postgres").close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def plain_login(server: str) -> str:
    with psycopg.connect(f"postgresql://durable@{server}/postgres", autocommit=True) as connection:
        version = connection.info.server_version
        connection.execute("CREATE ROLE plain LOGIN CREATEROLE")
        connection.execute("CREATE DATABASE authority OWNER plain")
    assert version // 10_000 == 16
    return f"postgresql://plain@{server}/authority"


async def test_a_plain_login_migrates_and_every_controller_works(plain_login: str) -> None:
    upgrade(plain_login)
    upgrade(plain_login)
    async with Databases(plain_login) as databases:
        world = World(databases)
        await world.ready()
        token = await world.running()
        feed = ShareFeed(databases, EAST)
        assert len(await feed.changed(now=world.now)) == 1
        await write_requests(databases, EAST, [request()])
        assert len(await feed.changed(now=world.now)) == 1
        assert await feed.changed(now=world.now) == []
        await world.granted(world.evict(token))
        world.now = seconds(600)
        await world.granted(world.release(token, cause=ReleaseCause.NODE_LOST))
        assert await violations_everywhere(databases) == []

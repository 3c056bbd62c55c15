"""One real PostgreSQL for each worker of the run, a database for each test, and their layers."""

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

from durable.authority.migrations import upgrade
from durable.settings import Settings
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres
from tests import leftovers

# A suite that was started in the background inherits an ignored SIGINT, and would pass it on to the
# commands that it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Generated tests take the time that they take. Here, because what is decorated before a profile is
# loaded keeps the deadlines of the usual one.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
# Tables are as wide as they need to be, whatever terminal the suite was started from.
os.environ.pop("COLUMNS", None)
# Everything is compiled once, not by each of the hundred processes that a run starts.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What is collected stays to the end, and little of what a test makes is garbage in a cycle.
gc.set_threshold(50_000, 20, 50)


MEMORY = Path("/dev/shm")  # noqa: S108 - the folder of every run has a name of its own below it
MEMORY_NEEDED_BYTES = 4 * 2**30
DROPPED_AFTER = 8
_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Keep what tests write in memory, where there is some, unless TMPDIR names another place.

    A database is four hundred files: on some disks they take half a second, in memory 20 ms. What
    must survive here is the kill of a process, and files in memory survive that like any others.
    """
    if leftovers.MARK not in os.environ:
        if "TMPDIR" not in os.environ and _has_room(MEMORY):
            tempfile.tempdir = str(MEMORY)
        # Where pytest keeps the files of tests that failed, which outlive the run.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix="durable-test-"))
        # As root, PostgreSQL runs under another user.
        folder.chmod(0o755)
        os.environ[leftovers.MARK] = str(folder)
        leftovers.clean_up_after_this_process(folder)
    tempfile.tempdir = os.environ[leftovers.MARK]


def _has_room(folder: Path) -> bool:
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= MEMORY_NEEDED_BYTES


# A test that asks for one of these runs on a real server; one that starts a server without them
# says so by the marker.
SERVERS = {"postgres", "other_postgres", "temporal_address", "plane", "scratch", "state_dir"}
SERVER_PROGRAMS = {"postgres", "temporal"}


STACKS_OF_THEIR_OWN = {f"tests/cli/commands/test_{name}.py" for name in ("demo", "drill", "stack")}
# What takes longest begins first: commands share one stack and one worker of the run, and these
# wait for leases, watches and servers that are really killed.
LONGEST = (
    "tests/cli/commands/test_drill.py",
    "tests/cli/",
    "tests/workflows/test_local_progress.py",
    "tests/workflows/test_partition.py",
    "tests/workflows/test_recovery.py",
    "tests/workflows/test_new_message.py",
    "tests/workflows/test_killed_",
    "tests/workflows/test_drain.py",
    "tests/workflows/test_health.py",
    "tests/workflows/test_rollout.py",
    "tests/workflows/test_self_healing.py",
    "tests/chaos/",
    "tests/workflows/",
    "tests/stack/",
    "tests/agent/",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        assert isinstance(item, pytest.Function)
        if SERVERS.intersection(item.fixturenames):
            item.add_marker(pytest.mark.server)
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    """When a test begins in a run of several workers: what only computes fills the end."""
    long = (number for number, path in enumerate(LONGEST) if item.nodeid.startswith(path))
    return item.get_closest_marker("server") is None, next(long, len(LONGEST))


class Chunks(LoadScopeScheduling):
    """What a worker of the run takes at a time, in the order in which tests are collected."""

    def _split_scope(self, nodeid: str) -> str:
        path, _, _ = nodeid.partition("::")
        # All tests of commands share a stack, which no second worker has to start; but for these.
        if path.startswith("tests/cli/") and path not in STACKS_OF_THEIR_OWN:
            return "tests/cli"
        # These share nothing but servers that every worker has, and take long.
        if path.startswith("tests/workflows/"):
            return nodeid
        return path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Chunks:
    config.option.loadscopereorder = False
    return Chunks(config, log)


class _Guard:
    """What is run by `make unit` starts no server."""

    guards = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and self.guards:
            program = Path(os.fsdecode(arguments[0])).name
            assert program not in SERVER_PROGRAMS, f"mark the test: it starts {program}"


_guard = _Guard()
sys.addaudithook(_guard)


def pytest_collection_finish() -> None:
    """No collection of garbage goes through what was collected again."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    _guard.guards = item.get_closest_marker("server") is None


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def other_postgres() -> Iterator[EmbeddedPostgres]:
    """A second server, for a region of its own; tests may freeze it, and thaw it in the end."""
    with running_server() as server:
        yield server


@contextmanager
def running_server() -> Generator[EmbeddedPostgres]:
    # Not below pytest's own folder: every run closes that to others, and as root the server runs
    # under another user.
    with tempfile.TemporaryDirectory(prefix="durable-test-") as folder:
        directory = Path(folder) / "postgres"
        directory.mkdir()
        server = EmbeddedPostgres(directory)
        # Nothing here outlives the run: durability is tested by those who kill servers.
        server.start(
            free_port(),
            settings={
                "fsync": "off",
                "synchronous_commit": "off",
                "max_wal_size": "256MB",
                # Whoever counts what statements touch would count its blocks, too.
                "autovacuum": "off",
            },
        )
        try:
            _ask_for_the_password_quickly(server)
            yield server
        finally:
            server.stop()


def _ask_for_the_password_quickly(server: EmbeddedPostgres) -> None:
    """Every test logs in a dozen times, and thousands of rounds of hashing protect nobody here."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET scram_iterations = 1")
        connection.execute(
            sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(connection.info.password)
        )


class Copies:
    """Databases that are copied from a template, each for one test.

    What was given back is dropped some copies later: DROP waits in steps of a tenth of a second
    for connections that are still on their way out, and by then they have gone.
    """

    def __init__(self, server: EmbeddedPostgres, connection: psycopg.Connection) -> None:
        self._server = server
        self._connection = connection
        self._given_back: deque[str] = deque()

    def make(self, template: str) -> str:
        """The name of one that stays until the server ends, as a template for others may."""
        name = f"copy_{next(_numbers)}"
        # Copying files takes a quarter of the work of the default, which logs every page.
        self._connection.execute(
            f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY".encode()
        )
        return name

    def url(self, name: str) -> str:
        return self._server.url(name)

    @contextmanager
    def lend(self, template: str) -> Generator[str]:
        name = self.make(template)
        try:
            yield self.url(name)
        finally:
            self._given_back.append(name)
            if len(self._given_back) > DROPPED_AFTER:
                oldest = self._given_back.popleft()
                self._connection.execute(f"DROP DATABASE {oldest} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def copies(postgres: EmbeddedPostgres) -> Iterator[Copies]:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        yield Copies(postgres, connection)


@pytest.fixture(scope="session")
def template(copies: Copies) -> str:
    name = copies.make("template1")
    upgrade(copies.url(name))
    seed_operators(copies.url(name))
    name_deployment(copies.url(name))
    return name


# What signatures name in tests of the authority alone.
DEPLOYMENT = "deployment-of-tests"


def name_deployment(url: str) -> None:
    """Gives the authority an id that tests know; by itself it keeps its first one."""
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE global.deployment DISABLE TRIGGER never_changed")
        connection.execute("UPDATE global.deployment SET id = %s", [DEPLOYMENT])
        connection.execute("ALTER TABLE global.deployment ENABLE TRIGGER never_changed")


# Whom tests act as; each may do everything. Tests of rights add operators of their own.
OPERATORS = (
    "test", "another", "another-worker", "alice", "alice@example.com", "ann", "bench", "operator",
    "person:ada", "person:alice", "person:ann", "service:test", "small",
)  # fmt: skip


def seed_operators(url: str) -> None:
    """Makes everybody whom tests act as an operator with every right."""
    names = [*OPERATORS, Settings().acting_as]
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO global.operators (operator, kind, created_by, created_at)"
            " SELECT unnest(%s::text[]), 'person', 'test', now()",
            [names],
        )
        connection.execute(
            "INSERT INTO global.operator_rights (operator, verb, granted_by, granted_at)"
            " SELECT unnest(%s::text[]), '*', 'test', now()",
            [names],
        )


@pytest.fixture
def new_database(copies: Copies, template: str) -> Iterator[Callable[[], str]]:
    """Makes migrated, empty authorities that only this test knows; they end with it."""
    with ExitStack() as lent:
        yield lambda: lent.enter_context(copies.lend(template))


@pytest.fixture
def database_url(new_database: Callable[[], str]) -> str:
    return new_database()

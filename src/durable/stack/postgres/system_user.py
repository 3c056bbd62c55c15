"""PostgreSQL refuses to run as root: give it a system user with the least access it needs."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from durable.state_dir.record import StackError

SYSTEM_USER = "pgserver"
PROBE_DEADLINE_SECONDS = 30.0


def postgres_user() -> str | None:
    """The user that PostgreSQL must run as; None if the current one will do."""
    if os.geteuid() != 0:
        return None
    if not _exists(SYSTEM_USER):
        _create(SYSTEM_USER)
    return SYSTEM_USER


def lend_binaries(binaries: Path, user: str) -> None:
    """Let the user run the installed PostgreSQL, even where a umask made the package private."""
    allow_traverse(binaries / "postgres")
    if _runs(binaries / "postgres", user):
        return
    # The package is public software, so making it readable reveals nothing.
    package = binaries.parent.parent
    for tree in (package, package.with_name(f"{package.name}.libs")):
        for path in (tree, *tree.rglob("*")):
            _add_mode(path, stat.S_IROTH | (stat.S_IXOTH if path.stat().st_mode & 0o100 else 0))
    if not _runs(binaries / "postgres", user):
        raise StackError(
            f"The system user {user} cannot run {binaries / 'postgres'}: "
            "install durable in a directory that other users may enter."
        )


def allow_traverse(path: Path) -> None:
    """Let others pass through the directories above the path, without reading them."""
    for directory in _parents(path):
        _add_mode(directory, stat.S_IXOTH)


def change_owner(path: Path, user: str | None) -> None:
    """Give the path to the user; None leaves the owner as it is."""
    if user is not None:
        shutil.chown(path, user, user)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _create(user: str) -> None:
    """Create a system account without a login."""
    failure = "useradd is missing"
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin")
    if useradd is not None:
        made = subprocess.run(  # noqa: S603
            [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", user],
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_DEADLINE_SECONDS,
        )
        failure = made.stderr.strip()
    # Another process may have created it at the same moment, which is just as good.
    if not _exists(user):
        raise StackError(
            f"PostgreSQL does not run as root, and its system user {user} cannot be created "
            f"({failure}): create it, or run durable as an ordinary user."
        )


def _parents(path: Path) -> Iterator[Path]:
    return (parent for parent in path.resolve().parents if parent != parent.parent)


def _add_mode(path: Path, bits: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & bits == bits:
        return
    try:
        path.chmod(mode | bits)
    except OSError as error:
        raise StackError(
            f"The system user {SYSTEM_USER} cannot pass through {path} ({error.strerror}): "
            f"run chmod o+x on it, or choose another directory with --state-dir."
        ) from error


def _runs(binary: Path, user: str) -> bool:
    try:
        probe = subprocess.run(  # noqa: S603
            [binary, "--version"],
            user=user,
            group=user,
            extra_groups=[],
            cwd="/",
            env={},
            capture_output=True,
            check=False,
            timeout=PROBE_DEADLINE_SECONDS,
        )
    except PermissionError:
        return False
    return probe.returncode == 0

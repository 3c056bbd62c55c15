"""The state directory as its supervisor sees it: the lock, the record, and the ports to reuse."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from durable.state_dir.processes import POLL_SECONDS
from durable.state_dir.record import (
    RECORD_VERSION,
    StackError,
    StackRecord,
    check_version,
    disk_error,
    lock_path,
    open_private,
    read_record,
    record_path,
)

# Commands that only look hold the lock for an instant; a supervisor holds it all its life.
LOCK_DEADLINE_SECONDS = 1.0


class StateDirectory:
    """One directory that holds everything of one stack."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.log = self.path / "supervisor.log"
        self._layout = self.path / "state.json"

    def prepare(self) -> None:
        """Make the directory usable, or say why it is not."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._layout.exists():
                self.remember_ports({})
        except OSError as error:
            raise disk_error(self.path, error) from error
        self.remembered_ports()

    @contextmanager
    def locked(self) -> Generator[None]:
        """Be the only supervisor here, or refuse and name the other."""
        with self._open_lock() as lock:
            give_up = time.monotonic() + LOCK_DEADLINE_SECONDS
            while not _try_lock(lock.fileno()):
                if time.monotonic() > give_up:
                    raise StackError(self._occupied())
                time.sleep(POLL_SECONDS)
            yield

    def write_record(self, record: StackRecord) -> None:
        write_atomically(record_path(self.path), record.model_dump_json(indent=2))

    def remove_record(self) -> None:
        record_path(self.path).unlink(missing_ok=True)

    def remembered_ports(self) -> dict[str, int]:
        """The ports of the last start, which the next one prefers."""
        try:
            content = json.loads(self._layout.read_text())
            check_version(content, self._layout)
            return {str(name): int(port) for name, port in content["ports"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StackError(f"{self._layout} is damaged: remove it and try again.") from error

    def remember_ports(self, ports: Mapping[str, int]) -> None:
        content = {"version": RECORD_VERSION, "ports": dict(ports)}
        write_atomically(self._layout, json.dumps(content, indent=2))

    def _open_lock(self) -> IO[bytes]:
        try:
            return open_private(lock_path(self.path))
        except OSError as error:
            raise disk_error(self.path, error) from error

    def _occupied(self) -> str:
        record = read_record(self.path)
        ui_url = None if record is None else record.temporal_ui_url
        where = "" if ui_url is None else f" with its UI at {ui_url}"
        return (
            f"A stack is already running in {self.path}{where}: "
            f"stop it with `durable down --state-dir {self.path}`."
        )


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that readers, even after a crash, see the old content or the new."""
    # Two commands may prepare one directory at the same moment.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        unfinished.unlink(missing_ok=True)
        with open_private(unfinished) as file:
            file.write(text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise disk_error(path, error) from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

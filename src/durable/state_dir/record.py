"""What a running stack records for every other command: which processes run, and where."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from durable.state_dir.processes import Process, is_alive


class StackError(Exception):
    """The stack refuses or fails; the text is the sentence to show."""


def disk_error(path: Path, error: OSError) -> StackError:
    """What the file system refused, in one sentence."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StackError(f"No space is left for {path}: free some disk space and try again.")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StackError(
                f"{path} is not writable: make it writable, or choose another directory with "
                "--state-dir."
            )
        case errno.ENOTDIR | errno.EEXIST:
            return StackError(
                f"{path} cannot be a directory because a file is in its place: "
                "choose another directory with --state-dir."
            )
        case _:
            return StackError(f"{path} cannot be used: {error.strerror or error}.")


RECORD_VERSION = 1


class Part(BaseModel):
    """One part of the stack; ours has a process, except while it is being restarted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    address: str
    ours: bool = True
    process: Process | None = None
    stop_signals: tuple[int, ...] = ()


class StackRecord(BaseModel):
    """The content of `stack.json`, which exists from the start until a clean stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = RECORD_VERSION
    phase: Literal["starting", "running", "failed"] = "starting"
    reason: str = ""
    supervisor: Process
    parts: tuple[Part, ...] = ()
    database_url: str | None = None
    # Of the regions that have a database of their own.
    regional_database_urls: Mapping[str, str] = {}
    temporal_address: str | None = None
    temporal_ui_url: str | None = None


def record_path(state_dir: Path) -> Path:
    return state_dir / "stack.json"


def lock_path(state_dir: Path) -> Path:
    return state_dir / "lock"


def is_running(state_dir: Path) -> bool:
    """Whether a supervisor is alive: it holds the lock for as long as it is."""
    try:
        with lock_path(state_dir).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        raise _belongs_to_another_user(state_dir) from error
    return False


def read_record(state_dir: Path) -> StackRecord | None:
    """The record of a stack that is running, or was killed before it could remove its record."""
    path = record_path(state_dir)
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise _belongs_to_another_user(state_dir) from error
    except ValueError as error:
        raise StackError(f"{path} is damaged: remove it and run `durable up`.") from error
    check_version(content, path)
    try:
        return StackRecord.model_validate(content)
    except ValidationError as error:
        raise StackError(f"{path} is damaged: remove it and run `durable up`.") from error


def why_nothing_runs(path: Path) -> str:
    """Why no supervisor holds the directory's lock, and what to do about it."""
    record = read_record(path)
    if record is None:
        return f"No stack is running in {path}: start one with `durable up`."
    if record.phase == "failed":
        return (
            f"The stack stopped by itself: {record.reason.rstrip('.')}. See the logs in {path}, "
            "then start it again with `durable up`."
        )
    running = _still_running(record)
    if not running:
        return (
            f"The supervisor of {path} was killed and nothing of its stack is running any more: "
            "`durable up` starts everything again on the same data."
        )
    return (
        f"The supervisor of {path} was killed, so nothing that ends there is restarted; still "
        f"running: {', '.join(running)}. `durable up` stops these and starts everything again on "
        "the same data; `durable down` only stops them."
    )


def _still_running(record: StackRecord) -> list[str]:
    return [
        f"{part.name} (pid {part.process.pid})"
        for part in record.parts
        if part.process is not None and is_alive(part.process)
    ]


def check_version(content: Any, path: Path) -> None:
    """Refuse what a newer release wrote, rather than misread it."""
    match content:
        case {"version": int(version)} if version > RECORD_VERSION:
            raise StackError(
                f"{path.parent} was written by a newer durable (layout {version}; this one reads "
                f"{RECORD_VERSION}): use that release, or another directory with --state-dir."
            )
        case _:
            return


def open_private(path: Path) -> IO[bytes]:
    """Append to a file that only its owner can read."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def _belongs_to_another_user(state_dir: Path) -> StackError:
    return StackError(
        f"{state_dir} belongs to another user: run as that user, "
        "or choose another directory with --state-dir."
    )

"""What a running stack tells every other command: who runs in a state directory, and where."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

RECORD_VERSION = 1


class StackError(Exception):
    """The stack refuses or fails, and its text is the sentence to show."""


class Process(BaseModel):
    """One process of one boot of this machine: the start time makes a reused pid another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started: str


class Part(BaseModel):
    """One server of the stack; ours has a process, except while it is started again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    address: str
    ours: bool = True
    process: Process | None = None
    stop_signals: tuple[int, ...] = ()


class StackRecord(BaseModel):
    """The content of `stack.json`, which exists from start to clean stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = RECORD_VERSION
    phase: Literal["starting", "running", "failed"] = "starting"
    reason: str = ""
    supervisor: Process
    parts: tuple[Part, ...] = ()
    database_url: str | None = None
    temporal_address: str | None = None
    temporal_ui_url: str | None = None


def record_path(state_dir: Path) -> Path:
    return state_dir / "stack.json"


def lock_path(state_dir: Path) -> Path:
    return state_dir / "lock"


def is_running(state_dir: Path) -> bool:
    """Whether a supervisor lives: it holds the lock for as long as it does."""
    try:
        with lock_path(state_dir).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        raise _of_another_user(state_dir) from error
    return False


def read_record(state_dir: Path) -> StackRecord | None:
    """The record of the stack that runs, or that was killed before it could remove its record."""
    path = record_path(state_dir)
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise _of_another_user(state_dir) from error
    except ValueError as error:
        raise StackError(f"{path} is damaged: remove it and run durable up.") from error
    check_version(content, path)
    try:
        return StackRecord.model_validate(content)
    except ValidationError as error:
        raise StackError(f"{path} is damaged: remove it and run durable up.") from error


def check_version(content: Any, path: Path) -> None:
    """Refuse what a newer release wrote, before reading it in the wrong way."""
    match content:
        case {"version": int(version)} if version > RECORD_VERSION:
            raise StackError(
                f"{path.parent} was made by a newer durable (layout {version}, known here is "
                f"{RECORD_VERSION}): use that release, or another directory with --state-dir."
            )
        case _:
            return


def open_private(path: Path) -> IO[bytes]:
    """Append to a file that is for its owner alone."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def _of_another_user(state_dir: Path) -> StackError:
    return StackError(
        f"{state_dir} belongs to another user: run as that user, "
        "or choose another directory with --state-dir."
    )

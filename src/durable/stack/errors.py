"""Failures of the embedded stack, each one a sentence that a person can act on."""

from __future__ import annotations

import errno
from pathlib import Path

from durable.state_dir.record import StackError

__all__ = ["PortTakenError", "StackError", "disk_error"]


class PortTakenError(StackError):
    """Another process holds the port, so that a new one is worth a try."""


def disk_error(path: Path, error: OSError) -> StackError:
    """Say in one sentence what the file system refused."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StackError(f"No space is left for {path}: free some disk space and try again.")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StackError(
                f"{path} is not writable: make it so, or choose another directory with --state-dir."
            )
        case errno.ENOTDIR | errno.EEXIST:
            return StackError(
                f"{path} cannot be a directory because a file is in its place: "
                "choose another directory with --state-dir."
            )
        case _:
            return StackError(f"{path} cannot be used: {error.strerror or error}.")

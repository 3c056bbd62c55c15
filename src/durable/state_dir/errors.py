"""Failures of a stack and of its state directory, each a sentence that a person can act on."""

from __future__ import annotations

import errno
from pathlib import Path


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

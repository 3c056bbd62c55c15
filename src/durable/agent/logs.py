"""Keeps a replica's logs from filling the disk.

The replica appends to its file by itself, so that it can go on while no agent runs; the agent cuts
the file from time to time. Lines written between the copy and the cut are lost.
"""

import os
import shutil
from pathlib import Path

MAX_LOG_BYTES = 8 * 1024**2


def bound_log(log: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Moves the newest part of a log that grew too large aside, and empties it in place."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return False
    if size <= max_bytes:
        return False
    aside = log.with_name(f"{log.name}.new")
    with log.open("rb+") as full:
        full.seek(size - max_bytes)
        with aside.open("wb") as kept:
            shutil.copyfileobj(full, kept, 1024**2)
            kept.truncate(max_bytes)
        aside.rename(log.with_name(f"{log.name}.1"))
        # In place, since the replica keeps its descriptor; opened to append, it goes on at the end.
        os.ftruncate(full.fileno(), 0)
    return True

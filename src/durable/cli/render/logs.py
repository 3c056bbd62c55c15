"""The log files of replicas on this machine, printed."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.2
MAX_BYTES = 1024**2


@dataclass(frozen=True)
class LogFile:
    """What a replica wrote to one of its streams."""

    stream: str
    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


def tail(path: Path) -> bytes:
    """The newest part of a file."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_BYTES))
        return file.read(MAX_BYTES)


def print_logs(files: Sequence[LogFile], follow: bool) -> None:
    """Prints what is in the files now and, if asked to, what is added until an interrupt."""
    copier = _Copier(with_headings=len(files) > 1)
    positions: dict[LogFile, int] = {}
    for file in files:
        positions[file] = file.size
        copier.add(file, tail(file.path))
    try:
        while follow:
            time.sleep(POLL_SECONDS)
            for file in files:
                positions[file] = copier.rest(file, positions[file])
    except KeyboardInterrupt:
        return


class _Copier:
    """Writes to stdout; a heading says whose text follows whenever that changes."""

    def __init__(self, *, with_headings: bool) -> None:
        self._with_headings = with_headings
        self._last: LogFile | None = None
        self._ends_line = True

    def rest(self, file: LogFile, position: int) -> int:
        """Copies what was added after the position, and returns the next one."""
        size = file.size
        # An agent truncates a log that has grown too long.
        position = 0 if size < position else position
        if size == position:
            return position
        with file.path.open("rb") as opened:
            opened.seek(position)
            more = opened.read(MAX_BYTES)
        self.add(file, more)
        return position + len(more)

    def add(self, file: LogFile, text: bytes) -> None:
        out = sys.stdout.buffer
        if self._with_headings and file != self._last:
            before = b"" if self._ends_line else b"\n"
            empty = b"" if text else b" (empty)"
            out.write(before + f"==> {file.stream} <==".encode() + empty + b"\n")
            self._last, self._ends_line = file, True
        if text:
            out.write(text)
            self._ends_line = text.endswith(b"\n")
        out.flush()

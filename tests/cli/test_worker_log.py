"""A worker's log: what cannot be written is left out, and who wrote it goes on."""

import errno
import io
import logging
from collections.abc import Generator

import pytest

from durable.cli.processes import worker
from durable.cli.render.output import progress

log = logging.getLogger("durable.test")


class FullDisk(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def logging_as_a_worker() -> Generator[None]:
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    worker._log_to_stderr()  # pyright: ignore[reportPrivateUsage]
    yield
    root.handlers[:] = kept
    root.setLevel(level)


def test_a_line_that_finds_no_space_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_file", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        progress.print("as anything else is printed")
    log.warning("the disk is full")
    worker._log("serving")  # pyright: ignore[reportPrivateUsage]


def test_a_line_that_cannot_be_made_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(progress, "_file", lines)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # or the standard library prints it
    log.warning("%d nodes", "many")
    log.warning("%d nodes", 3)
    assert "warning: 3 nodes" in lines.getvalue()

"""A full disk is said with its path, ends no supervisor, and needs nobody once there is room."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from durable.health.disks import full_disks
from durable.stack.child import Child, spawn
from durable.stack.restarts import FULL_DISK_DELAY_SECONDS, MAX_RESTARTS, RestartingChild
from durable.stack.supervisor import Supervisor
from durable.state_dir.processes import Process, send_signal
from durable.state_dir.record import Part, StackRecord, read_record

from .polling import eventually
from .test_supervisor import Run

SIZE_MIB = 64


@pytest.fixture
def small_disk(scratch: Path) -> Iterator[Path]:
    """A file system of its own, where this machine lets us mount one."""
    path = scratch / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=755", "none", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no room for anything else."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**20))
    return filler


WRITER = """
import time
with open("data", "ab", buffering=0) as data:
    data.write(bytes(4096))
time.sleep(600)
"""


def writer_in(directory: Path) -> Child:
    return Child(
        name="writer",
        argv=(sys.executable, "-c", WRITER),
        environment={},
        directory=directory,
        ready=lambda _: True,
    )


def test_the_paths_of_full_disks_are_named(small_disk: Path) -> None:
    (small_disk / "postgres").mkdir()
    (small_disk / "temporal").mkdir()
    ours = Part(name="postgres", address="here")
    theirs = Part(name="temporal", address="elsewhere", ours=False)
    record = StackRecord(supervisor=Process(pid=1, started="then"), parts=(ours, theirs))
    assert full_disks(small_disk, record) == []
    filler = fill(small_disk)
    [found] = full_disks(small_disk, record)
    assert f"The disk of PostgreSQL is full: {small_disk}/postgres has 0.0 MiB left" in str(found)
    filler.unlink()
    assert full_disks(small_disk, record) == []


def test_what_dies_of_a_full_disk_is_restarted_until_there_is_room(small_disk: Path) -> None:
    notes: list[str] = []
    child = RestartingChild(spawn(writer_in(small_disk / "writer")), "nowhere", notes.append)
    filler = fill(small_disk)
    now = 0.0
    try:
        _kill(child)
        # More often than it may die in a minute for any other reason.
        for _ in range(MAX_RESTARTS + 2):
            eventually("its end is noticed", partial(child.tick, now))
            now += FULL_DISK_DELAY_SECONDS
            assert child.tick(now), "it is started again"
        assert sum("once there is room" in note for note in notes) == 1, "it is said once"

        eventually("its end is noticed", partial(child.tick, now))
        filler.unlink()
        now += FULL_DISK_DELAY_SECONDS
        assert child.tick(now)
        child.tick(now)
        assert "writer is running again" in notes[-1]
    finally:
        child.stop()


def _kill(child: RestartingChild) -> None:
    process = child.part().process
    assert process is not None
    assert send_signal(process, signal.SIGKILL)


def test_a_supervisor_outlives_a_full_disk(small_disk: Path) -> None:
    """Its record cannot be written then; it is written once there is room."""
    directory = small_disk / "state"

    def start(supervisor: Supervisor) -> None:
        supervisor.launch_together([(writer_in(directory / "writer"), "nowhere")])

    run = Run(directory, start)
    run.until_running()
    first = _process(directory)
    filler = fill(small_disk)
    assert first is not None
    assert send_signal(first, signal.SIGKILL)
    eventually("it is noticed", lambda: bool(run.notes()))
    filler.unlink()
    eventually("another is recorded", lambda: _process(directory) not in (None, first))
    run.stop()
    assert run.failure is None


def _process(directory: Path) -> Process | None:
    record = read_record(directory)
    assert record is not None
    return record.parts[0].process

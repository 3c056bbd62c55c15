"""A state directory says in one sentence why it cannot be used."""

import errno
import os
from pathlib import Path

import pytest

from durable.state_dir.directory import StateDirectory, write_atomically
from durable.state_dir.processes import Process
from durable.state_dir.record import (
    StackError,
    StackRecord,
    is_running,
    lock_path,
    read_record,
    record_path,
)


def test_ports_are_remembered_for_the_next_start(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.prepare()

    state.remember_ports({"postgres": 5433})
    state.prepare()

    assert state.remembered_ports() == {"postgres": 5433}


def test_a_record_is_read_as_it_was_written_and_is_private(tmp_path: Path) -> None:
    record = StackRecord(supervisor=Process(pid=1, started="then"), database_url="postgresql://")

    StateDirectory(tmp_path).write_record(record)

    assert read_record(tmp_path) == record
    assert record_path(tmp_path).stat().st_mode & 0o077 == 0


def test_the_lock_shows_whether_a_supervisor_is_alive(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()

    assert not is_running(tmp_path)
    with state.locked():
        assert is_running(tmp_path)
    assert not is_running(tmp_path)


def test_a_second_supervisor_is_refused_with_the_address_of_the_first(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()
    first = StackRecord(
        supervisor=Process(pid=1, started="then"), temporal_ui_url="http://127.0.0.1:8233"
    )
    with state.locked():
        state.write_record(first)
        expected = (
            f"A stack is already running in {tmp_path} with its UI at http://127.0.0.1:8233: "
            f"stop it with `durable down --state-dir {tmp_path}`."
        )
        with pytest.raises(StackError) as refused, StateDirectory(tmp_path).locked():
            pass
    assert str(refused.value) == expected


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path, below: str) -> None:
    occupied = tmp_path / "state"
    occupied.touch()

    with pytest.raises(StackError, match="because a file is in its place"):
        StateDirectory(occupied / below).prepare()


def test_a_directory_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    newer = '{"version": 99, "ports": {}}'
    (tmp_path / "state.json").write_text(newer)
    (tmp_path / "stack.json").write_text(newer)

    refusal = r"was written by a newer durable \(layout 99"
    with pytest.raises(StackError, match=refusal):
        StateDirectory(tmp_path).prepare()
    with pytest.raises(StackError, match=refusal):
        read_record(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"ports": {"postgres": "x"}}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    state = StateDirectory(tmp_path)
    (tmp_path / "state.json").write_text(content)
    (tmp_path / "stack.json").write_text(content)

    with pytest.raises(StackError, match=r"state\.json is damaged: remove it"):
        state.prepare()
    with pytest.raises(StackError, match=r"stack\.json is damaged: remove it"):
        read_record(tmp_path)


def test_a_full_disk_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StackError, match="No space is left for"):
        write_atomically(path, "new")
    assert path.read_text() == "old\n"


def test_looking_at_a_directory_that_is_not_there_creates_nothing(tmp_path: Path) -> None:
    missing = tmp_path / "state"

    assert not is_running(missing)
    assert read_record(missing) is None
    assert not lock_path(missing).exists()

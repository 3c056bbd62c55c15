"""Of a directory without a supervisor we learn what is still running there, and what to do."""

import os
from pathlib import Path
from typing import Literal

import pytest

from durable.settings import Settings
from durable.state_dir.directory import StateDirectory
from durable.state_dir.processes import Process, identify
from durable.state_dir.record import Part, StackError, StackRecord, why_nothing_runs

GONE = Process(pid=os.getpid(), started="before this boot")


def left_by(
    path: Path, *parts: Part, phase: Literal["running", "failed"] = "running", reason: str = ""
) -> None:
    """The record of a supervisor that is gone."""
    state = StateDirectory(path)
    state.prepare()
    state.write_record(
        StackRecord(
            supervisor=GONE,
            parts=parts,
            phase=phase,
            reason=reason,
            database_url="postgresql://me@127.0.0.1:1/durable",
        )
    )


def test_what_outlived_its_supervisor_is_named(tmp_path: Path) -> None:
    alive = Part(name="postgres", address="127.0.0.1:1", process=identify(os.getpid()))
    left_by(tmp_path, alive, Part(name="temporal", address="127.0.0.1:2", process=GONE))
    said = why_nothing_runs(tmp_path)
    assert f"The supervisor of {tmp_path} was killed" in said
    assert f"still running: postgres (pid {os.getpid()})." in said
    assert "temporal" not in said
    assert "`durable down` only stops them" in said
    with pytest.raises(StackError, match="still running: postgres"):
        Settings(state_dir=tmp_path).require_database_url()


def test_a_killed_stack_without_any_process_left_can_be_started_again(tmp_path: Path) -> None:
    left_by(tmp_path, Part(name="postgres", address="127.0.0.1:1", process=GONE))
    assert "nothing of its stack is running any more: `durable up` starts" in why_nothing_runs(
        tmp_path
    )


@pytest.mark.parametrize("stop", [".", ""])
def test_a_stack_that_gave_up_says_why_and_what_to_do(tmp_path: Path, stop: str) -> None:
    left_by(
        tmp_path, phase="failed", reason=f"temporal died 6 times and will not be restarted{stop}"
    )
    with pytest.raises(StackError) as refused:
        Settings(state_dir=tmp_path).require_database_url()
    assert str(refused.value) == (
        "The stack stopped by itself: temporal died 6 times and will not be restarted. "
        f"See the logs in {tmp_path}, then start it again with `durable up`. "
        "Or set DURABLE_DATABASE_URL to use another server."
    )


def test_a_directory_in_which_nothing_was_started_has_no_stack(tmp_path: Path) -> None:
    assert why_nothing_runs(tmp_path).startswith(f"No stack is running in {tmp_path}: start one")

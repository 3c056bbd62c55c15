"""What a replica leaves behind: how it ended, and logs that stay bounded."""

from pathlib import Path

import pytest

from durable.agent.driver import StopOrder
from durable.agent.process.monitor import bound_log
from durable.agent.process.replica_directory import ReplicaDirectory, end_of
from durable.model.states import ObservedState


@pytest.mark.parametrize(
    ("code", "order", "state"),
    [
        (0, None, ObservedState.STOPPED),
        (1, None, ObservedState.FAILED),
        (None, None, ObservedState.FAILED),
        (143, StopOrder(reason="requested"), ObservedState.STOPPED),
        (None, StopOrder(reason="requested"), ObservedState.STOPPED),
        (None, StopOrder(reason="fenced", ends_as=ObservedState.FAILED), ObservedState.FAILED),
        # A job that was done before it was stopped is done.
        (0, StopOrder(reason="fenced", ends_as=ObservedState.FAILED), ObservedState.STOPPED),
    ],
)
def test_an_end_is_judged_by_its_code_and_by_who_stopped_it(
    tmp_path: Path, code: int | None, order: StopOrder | None, state: ObservedState
) -> None:
    if code is not None:
        (tmp_path / "exit").write_text(f"{code}\n")
    assert end_of(ReplicaDirectory(tmp_path), order)[0] is state


def test_a_cut_log_keeps_its_newest_part(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"old" * 100 + b"new" * 10)
    assert bound_log(log, max_bytes=30)
    assert log.read_bytes() == b""
    assert (tmp_path / "stdout.log.1").read_bytes() == b"new" * 10
    assert not bound_log(log, max_bytes=30)

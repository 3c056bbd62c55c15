"""The supervisor with real servers, when things go wrong."""

import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from durable.stack import ports as ports_module
from durable.stack.child import Child
from durable.stack.ports import HOST, free_port
from durable.stack.postgres.server import EmbeddedPostgres
from durable.stack.shutdown import StopRequest
from durable.stack.supervisor import StackEvent, Supervisor
from durable.stack.temporal_server import temporal_child
from durable.state_dir.directory import StateDirectory
from durable.state_dir.processes import is_alive
from durable.state_dir.record import StackError, is_running, lock_path, read_record, record_path

from .polling import DEADLINE_SECONDS, eventually


class Run:
    """A supervisor in a thread of its own, until it is stopped."""

    def __init__(self, directory: Path, start: Callable[[Supervisor], object]) -> None:
        self.events: list[StackEvent] = []
        self.failure: StackError | None = None
        self._stop = StopRequest()
        self._supervisor = Supervisor(directory, self.events.append, self._stop)
        self._thread = threading.Thread(target=self._run, args=(start,))
        self._thread.start()

    def until_running(self) -> None:
        eventually("it runs or fails", lambda: bool(self._of("running")) or self._ended())
        if self.failure is not None:
            raise self.failure

    def notes(self) -> list[str]:
        return [event.text for event in self._of("note")]

    def stop(self) -> None:
        self._stop.make()
        self.join()

    def join(self) -> None:
        self._thread.join(DEADLINE_SECONDS)
        assert self._ended()

    def _of(self, kind: str) -> list[StackEvent]:
        return [event for event in self.events if event.kind == kind]

    def _ended(self) -> bool:
        return not self._thread.is_alive()

    def _run(self, start: Callable[[Supervisor], object]) -> None:
        try:
            self._supervisor.run(start)
        except StackError as error:
            self.failure = error


def start_postgres(port: int) -> Callable[[Supervisor], None]:
    def start(supervisor: Supervisor) -> None:
        server = EmbeddedPostgres(supervisor.directory / "postgres")
        supervisor.launch({"postgres": port}, lambda ports: server.child(ports["postgres"]))

    return start


def start_temporal(port: int) -> Callable[[Supervisor], None]:
    def start(supervisor: Supervisor) -> None:
        supervisor.launch(
            {"temporal": port, "temporal-ui": free_port()},
            lambda ports: temporal_child(
                supervisor.directory / "temporal", ports["temporal"], ports["temporal-ui"]
            ),
        )

    return start


def looks_free(_: int) -> bool:
    return True


@pytest.mark.parametrize("starter", [start_postgres, start_temporal])
def test_a_port_taken_between_choice_and_bind_is_replaced_by_another(
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    starter: Callable[[int], Callable[[Supervisor], None]],
) -> None:
    # No real process can hold a port that looks free, so the check is faked.
    monkeypatch.setattr(ports_module, "is_free", looks_free)
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        run = Run(state_dir, starter(taken))
        run.until_running()
    record = read_record(state_dir)
    run.stop()

    assert record is not None
    assert record.parts[0].address != f"{HOST}:{taken}"
    assert any("found its port taken" in note for note in run.notes())


def test_the_ports_of_the_last_start_are_preferred_to_the_usual_ones(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process may take a port between two starts, so the check is faked.
    monkeypatch.setattr(ports_module, "is_free", looks_free)
    state = StateDirectory(state_dir)
    state.prepare()
    state.remember_ports({"worker": 7})
    chosen: list[Mapping[str, int]] = []

    def make(ports: Mapping[str, int]) -> Child:
        chosen.append(ports)
        return Child(
            name="worker",
            argv=(sys.executable, "-c", "import time; time.sleep(600)"),
            environment={},
            directory=state_dir / "worker",
            ready=lambda _: True,
        )

    run = Run(state_dir, lambda supervisor: supervisor.launch({"worker": 8, "other": 9}, make))
    run.until_running()
    run.stop()

    assert chosen == [{"worker": 7, "other": 9}]
    assert state.remembered_ports() == {"worker": 7, "other": 9}


def test_a_stop_leaves_no_process_and_no_record(state_dir: Path) -> None:
    run = Run(state_dir, start_postgres(free_port()))
    run.until_running()
    record = read_record(state_dir)
    assert record is not None

    run.stop()

    assert run.failure is None
    assert not any(part.process and is_alive(part.process) for part in record.parts)
    assert not record_path(state_dir).exists()
    assert not is_running(state_dir)


def test_a_start_that_fails_half_way_stops_what_it_had_started(state_dir: Path) -> None:
    before = start_postgres(free_port())
    pids: list[int] = []

    def start(supervisor: Supervisor) -> None:
        before(supervisor)
        record = read_record(state_dir)
        assert record is not None
        pids.extend(part.process.pid for part in record.parts if part.process)
        raise StackError("The second half is missing.")

    run = Run(state_dir, start)
    run.join()

    assert str(run.failure) == "The second half is missing."
    assert len(pids) == 1
    assert not (state_dir / "postgres" / "data" / "postmaster.pid").exists()
    assert not record_path(state_dir).exists()


def test_a_stack_whose_directory_is_removed_stops(state_dir: Path) -> None:
    run = Run(state_dir, lambda _: None)
    run.until_running()

    lock_path(state_dir).unlink()
    run.join()

    assert "was removed, so the stack was stopped" in str(run.failure)


def test_a_stop_request_interrupts_a_start_but_not_between_process_and_record() -> None:
    stop = StopRequest()
    reached: list[str] = []

    def start() -> None:
        with stop.at_once():
            with stop.deferred():
                stop.make()
                reached.append("recorded")
            reached.append("went on")

    with pytest.raises(StackError, match="The start was interrupted"):
        start()
    assert reached == ["recorded"]


def test_an_interrupted_start_is_reported_as_such_even_if_a_library_wraps_the_error() -> None:
    stop = StopRequest()

    def start() -> None:
        with stop.at_once():
            try:
                stop.make()
            except StackError as error:
                raise ConnectionError("no answer") from error

    with pytest.raises(StackError, match="The start was interrupted"):
        start()

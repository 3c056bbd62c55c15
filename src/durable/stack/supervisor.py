"""Run children in a state directory until asked to stop, and leave nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from durable.stack.child import Child, RunningChild, spawn
from durable.stack.errors import PortTakenError, StackError
from durable.stack.events import Event, Report
from durable.stack.keeper import Keeper
from durable.stack.ports import HOST, choose_port
from durable.stack.shutdown import stop_orphans
from durable.stack.state import StateDirectory
from durable.stack.stopping import StopRequest
from durable.state_dir.processes import identify
from durable.state_dir.record import Part, Process, StackRecord, lock_path, read_record

PORT_ATTEMPTS = 3
TICK_SECONDS = 0.1


class Supervisor:
    """The one process that owns a state directory while its stack runs."""

    def __init__(self, directory: Path, report: Report, stop: StopRequest) -> None:
        self._state = StateDirectory(directory)
        self._report = report
        self._stop = stop
        self._keepers: list[Keeper] = []
        self._used: list[Part] = []
        self._record = StackRecord(supervisor=_myself())

    @property
    def directory(self) -> Path:
        return self._state.path

    def run(self, start: Callable[[Supervisor], object]) -> None:
        """Start, then block until a stop request; a StackError tells why it could not go on."""
        self._state.prepare()
        with self._state.locked():
            try:
                self._recover()
                with self._stop.at_once():
                    start(self)
                self.save(phase="running")
                self._report(Event(kind="running", text=self._record.temporal_ui_url or ""))
                self._keep()
            except BaseException as error:
                self._stop_children()
                self._remember_failure(str(error))
                raise
            self._stop_children()
            self._state.remove_record()

    def launch(
        self, usual_ports: Mapping[str, int], make: Callable[[Mapping[str, int]], Child]
    ) -> dict[str, int]:
        """Start a child on the usual ports if it can, and on others when someone was faster."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            ports = self._choose_ports(usual_ports, usual=attempt == 1)
            child = make(ports)
            with self._stop.deferred():
                running = spawn(child)
                keeper = Keeper(running, f"{HOST}:{next(iter(ports.values()))}", self.note)
                self._keepers.append(keeper)
            self.save()
            try:
                running.wait_ready()
            except PortTakenError as error:
                self._keepers.remove(keeper)
                if attempt == PORT_ATTEMPTS:
                    raise
                self.note(f"{error} Trying another.")
                continue
            self._state.remember_ports({**self._state.remembered_ports(), **ports})
            return ports
        raise AssertionError("the last attempt returns or raises")

    def launch_together(self, children: Sequence[tuple[Child, str]]) -> None:
        """Start children that need no port all at once, and wait until every one is ready."""
        started: list[RunningChild] = []
        for child, address in children:
            with self._stop.deferred():
                running = spawn(child)
                self._keepers.append(Keeper(running, address, self.note))
            started.append(running)
            self.save()
        for running in started:
            running.wait_ready()

    def use(self, name: str, address: str, variable: str) -> None:
        """Take a part that somebody else runs."""
        self._used.append(Part(name=name, address=address, ours=False))
        self.save()
        self.note(f"Using {name} at {address} because {variable} is set.")

    def save(self, **changes: Any) -> None:
        """Write down what runs, so that the other commands find it."""
        parts = (*self._used, *(keeper.part() for keeper in self._keepers))
        self._record = self._record.model_copy(update={**changes, "parts": parts})
        self._state.write_record(self._record)

    @contextmanager
    def step(self, text: str) -> Generator[None]:
        """Report a piece of the start with its time."""
        began = time.monotonic()
        self._report(Event(kind="begin", text=text))
        yield
        self._report(Event(kind="done", text=text, seconds=time.monotonic() - began))

    def note(self, text: str) -> None:
        self._report(Event(kind="note", text=text))

    def _recover(self) -> None:
        left = read_record(self.directory)
        if left is not None and left.phase != "failed":
            # Ours from now on, also if we die before its processes do.
            self._state.write_record(left.model_copy(update={"supervisor": _myself()}))
            stopped = " and ".join(stop_orphans(left)) or "nothing, all had ended"
            self.note(f"An earlier stack here was killed. Stopped of it: {stopped}.")
        self.save()

    def _choose_ports(self, wanted: Mapping[str, int], *, usual: bool) -> dict[str, int]:
        remembered = self._state.remembered_ports()
        ports: dict[str, int] = {}
        for name, port in wanted.items():
            liked = (remembered.get(name, port), port) if usual else ()
            ports[name] = choose_port(liked, avoid=ports.values())
        return ports

    def _keep(self) -> None:
        while not self._stop.made:
            time.sleep(TICK_SECONDS)
            if not lock_path(self.directory).exists():
                raise StackError(f"{self.directory} was removed, so the stack was stopped.")
            changed = False
            for keeper in self._keepers:
                changed |= keeper.tick(time.monotonic())
            if changed:
                self.save()

    def _stop_children(self) -> None:
        while self._keepers:
            self._keepers.pop().stop()

    def _remember_failure(self, reason: str) -> None:
        """Leave the reason for `durable status`, unless the start failed: its caller has it."""
        if self._record.phase != "running":
            self._state.remove_record()
            return
        try:
            self.save(phase="failed", reason=reason)
        except StackError:
            # A full disk must not leave the record of a stack that has ended.
            self._state.remove_record()


def _myself() -> Process:
    myself = identify(os.getpid())
    if myself is None:
        raise AssertionError("the process that asks is alive")
    return myself

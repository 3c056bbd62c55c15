"""Run children in a state directory until a stop is requested, and leave nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from durable.health.disks import is_full
from durable.stack.child import Child, PortTakenError, RunningChild, spawn
from durable.stack.ports import HOST, choose_port
from durable.stack.restarts import RestartingChild
from durable.stack.shutdown import StopRequest, stop_orphans
from durable.state_dir.directory import StateDirectory
from durable.state_dir.processes import Process, identify
from durable.state_dir.record import Part, StackError, StackRecord, lock_path, read_record
from durable.validation.value import Value

PORT_ATTEMPTS = 3
TICK_SECONDS = 0.1


class StackEvent(Value):
    """What the supervisor reports: a step begun or done, a note, or how the start ended."""

    kind: Literal["begin", "done", "note", "running", "failed"]
    text: str = ""
    seconds: float = 0.0


EventListener = Callable[[StackEvent], None]


class Supervisor:
    """The one process that owns a state directory while its stack runs."""

    def __init__(self, directory: Path, report: EventListener, stop: StopRequest) -> None:
        self._state = StateDirectory(directory)
        self._report = report
        self._stop = stop
        self._children: list[RestartingChild] = []
        self._external: list[Part] = []
        self._record = StackRecord(supervisor=_myself())

    @property
    def directory(self) -> Path:
        return self._state.path

    def run(self, start: Callable[[Supervisor], object]) -> None:
        """Start, then block until a stop is requested; a StackError says why it could not go on."""
        self._state.prepare()
        with self._state.locked():
            try:
                self._recover()
                with self._stop.at_once():
                    start(self)
                self.save(phase="running")
                self._report(StackEvent(kind="running", text=self._record.temporal_ui_url or ""))
                self._keep_running()
            except BaseException as error:
                self._stop_children()
                self._remember_failure(str(error))
                raise
            self._stop_children()
            self._state.remove_record()

    def launch(
        self, usual_ports: Mapping[str, int], make: Callable[[Mapping[str, int]], Child]
    ) -> dict[str, int]:
        """Start a child on its usual ports, or on others if those were taken first."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            ports = self._choose_ports(usual_ports, usual=attempt == 1)
            child = make(ports)
            with self._stop.deferred():
                running = spawn(child)
                restarting = RestartingChild(
                    running, f"{HOST}:{next(iter(ports.values()))}", self.note
                )
                self._children.append(restarting)
            self.save()
            try:
                running.wait_ready()
            except PortTakenError as error:
                self._children.remove(restarting)
                if attempt == PORT_ATTEMPTS:
                    raise
                self.note(f"{error} Trying another.")
                continue
            self._state.remember_ports({**self._state.remembered_ports(), **ports})
            return ports
        raise AssertionError("the last attempt returns or raises")

    def launch_together(self, children: Sequence[tuple[Child, str]]) -> None:
        """Start children that need no port, all at once, and wait until every one is ready."""
        started: list[RunningChild] = []
        for child, address in children:
            with self._stop.deferred():
                running = spawn(child)
                self._children.append(RestartingChild(running, address, self.note))
            started.append(running)
            self.save()
        for running in started:
            running.wait_ready()

    def use(self, name: str, address: str, variable: str) -> None:
        """Use a part that runs elsewhere."""
        self._external.append(Part(name=name, address=address, ours=False))
        self.save()
        self.note(f"Using {name} at {address} because {variable} is set.")

    def save(self, **changes: Any) -> None:
        """Record what is running, so that other commands find it."""
        parts = (*self._external, *(child.part() for child in self._children))
        self._record = self._record.model_copy(update={**changes, "parts": parts})
        self._state.write_record(self._record)

    @contextmanager
    def step(self, text: str) -> Generator[None]:
        """Report a step of the start and how long it took."""
        began = time.monotonic()
        self._report(StackEvent(kind="begin", text=text))
        yield
        self._report(StackEvent(kind="done", text=text, seconds=time.monotonic() - began))

    def note(self, text: str) -> None:
        self._report(StackEvent(kind="note", text=text))

    def _recover(self) -> None:
        left = read_record(self.directory)
        if left is not None and left.phase != "failed":
            # Ours from now on, even if we die before its processes do.
            self._state.write_record(left.model_copy(update={"supervisor": _myself()}))
            stopped = " and ".join(stop_orphans(left)) or "nothing: all its processes had ended"
            self.note(f"An earlier stack here was killed. Stopped what it left: {stopped}.")
        self.save()

    def _choose_ports(self, wanted: Mapping[str, int], *, usual: bool) -> dict[str, int]:
        remembered = self._state.remembered_ports()
        ports: dict[str, int] = {}
        for name, port in wanted.items():
            preferred = (remembered.get(name, port), port) if usual else ()
            ports[name] = choose_port(preferred, avoid=ports.values())
        return ports

    def _keep_running(self) -> None:
        changed = False
        while not self._stop.made:
            time.sleep(TICK_SECONDS)
            if not lock_path(self.directory).exists():
                raise StackError(f"{self.directory} was removed, so the stack was stopped.")
            for child in self._children:
                changed |= child.tick(time.monotonic())
            if changed:
                changed = not self._could_save()

    def _could_save(self) -> bool:
        """A full disk must not end what still runs: the record is written once there is room."""
        try:
            self.save()
        except StackError:
            if is_full(self.directory):
                return False
            raise
        return True

    def _stop_children(self) -> None:
        while self._children:
            self._children.pop().stop()

    def _remember_failure(self, reason: str) -> None:
        """Keep the reason for `durable status`, unless the start failed: its caller has it."""
        if self._record.phase != "running":
            self._state.remove_record()
            return
        try:
            self.save(phase="failed", reason=reason)
        except StackError:
            # Even on a full disk, no record may claim that an ended stack is running.
            self._state.remove_record()


def _myself() -> Process:
    myself = identify(os.getpid())
    if myself is None:
        raise AssertionError("this process is alive")
    return myself

"""Restart a child that dies, with growing delays, and give up on one that dies too often.

A full disk is no fault of a child: one that dies of it is tried again until there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from durable.health.disks import is_full
from durable.stack.child import READY_DEADLINE_SECONDS, Child, RunningChild, spawn
from durable.state_dir.record import Part, StackError

MAX_RESTARTS = 5
RESTART_WINDOW_SECONDS = 60.0
FIRST_DELAY_SECONDS = 0.1
DELAY_FACTOR = 3
FULL_DISK_DELAY_SECONDS = 3.0


class RestartingChild:
    """A child that was started and must stay up; `tick` is called again and again."""

    def __init__(self, running: RunningChild, address: str, note: Callable[[str], None]) -> None:
        self._address = address
        self._child: Child = running.child
        self._running: RunningChild | None = running
        self._note = note
        self._deaths: deque[float] = deque()
        self._start_at = 0.0
        self._started_at = 0.0
        self._awaits_ready = False
        self._waits_for_room = False

    def part(self) -> Part:
        """Its entry in the record."""
        return Part(
            name=self._child.name,
            address=self._address,
            process=None if self._running is None else self._running.process,
            stop_signals=self._child.stop_signals,
        )

    def tick(self, now: float) -> bool:
        """Do what is due; True if the process has changed."""
        if self._running is None:
            return self._start_when_due(now)
        if self._running.exit_code() is not None:
            return self._schedule_restart(self._running.failure(), now)
        if self._awaits_ready:
            self._await_ready(self._running, now)
        return False

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None

    def _start_when_due(self, now: float) -> bool:
        if now < self._start_at:
            return False
        try:
            self._running = spawn(self._child)
        except StackError as error:
            # A backend of a killed server may linger and block the start; that counts as a death.
            return self._schedule_restart(error, now)
        self._started_at = now
        self._awaits_ready = True
        return True

    def _await_ready(self, running: RunningChild, now: float) -> None:
        if running.is_ready():
            self._awaits_ready = False
            self._note(f"{self._child.name} is running again (pid {running.process.pid}).")
        elif now > self._started_at + READY_DEADLINE_SECONDS:
            # The next tick counts it as dead.
            running.stop()

    def _schedule_restart(self, reason: StackError, now: float) -> bool:
        if is_full(self._child.directory):
            self._running = None
            self._start_at = now + FULL_DISK_DELAY_SECONDS
            if not self._waits_for_room:
                self._waits_for_room = True
                self._note(
                    f"{reason} The disk of {self._child.directory} is full: it will be restarted "
                    "once there is room."
                )
            return True
        self._waits_for_room = False
        while self._deaths and self._deaths[0] < now - RESTART_WINDOW_SECONDS:
            self._deaths.popleft()
        self._deaths.append(now)
        if len(self._deaths) > MAX_RESTARTS:
            raise StackError(
                f"{self._child.name} died {len(self._deaths)} times within "
                f"{RESTART_WINDOW_SECONDS:.0f} s and will not be restarted. Last time: {reason}"
            ) from reason
        self._running = None
        self._start_at = now + FIRST_DELAY_SECONDS * DELAY_FACTOR ** (len(self._deaths) - 1)
        self._note(f"{reason} It will be restarted.")
        return True

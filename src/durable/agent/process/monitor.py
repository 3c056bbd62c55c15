"""Monitors one replica from its start, or from where an earlier agent left it, to its end."""

import asyncio
import os
import shutil
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

from durable.agent.driver import ReplicaReport, StopOrder
from durable.agent.process.killing import kill, terminate
from durable.agent.process.launcher import environment_of
from durable.agent.process.readiness import Prober, keep_probing, report_serving
from durable.agent.process.replica_directory import (
    ReplicaDirectory,
    end_of,
    known_exit_code,
)
from durable.authority.fleet.assignments import Assignment
from durable.model.states import ObservedState
from durable.model.work.running import Run

POLL_SECONDS = 0.1
LOG_CHECK_SECONDS = 1.0
MAX_LOG_BYTES = 8 * 1024**2
# Only the lock decides whether it is alive; the wait for processes without it is bounded.
MAX_SWEEPS = 50


class ReplicaMonitor:
    """The only one that signals a replica and reports its state."""

    def __init__(
        self,
        assignment: Assignment,
        run: Run,
        directory: ReplicaDirectory,
        report: ReplicaReport,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.assignment = assignment
        self.directory = directory
        self._run = run
        self._report = partial(report, log_directory=directory.path)
        self._child = child
        self._logs_due_at = 0.0
        self._stop_requested = asyncio.Event()
        # An earlier agent may have been given it: the stop goes on, and so does its grace period.
        self._order, self._order_age_seconds = directory.stop_order()
        if self._order is not None:
            self._stop_requested.set()

    def stop(self, order: StopOrder) -> None:
        """The first order counts, unless a later one is more urgent."""
        if self._order is not None:
            if not order.at_once or self._order.at_once:
                return
            order = self._order.model_copy(update={"at_once": True})
        self._order = order
        # A full disk must not keep anything running; only an agent's restart would lose the order.
        with suppress(OSError):
            self.directory.order_stop(order)
        self._stop_requested.set()

    async def run(self) -> None:
        """Follows it to its end, and reports the end once nothing of it is alive."""
        probing = asyncio.create_task(self._keep_probing())
        try:
            await self._until_its_end_begins()
        finally:
            probing.cancel()
            (defect,) = await asyncio.gather(probing, return_exceptions=True)
        await self._stop()
        await self._sweep()
        # Its watchdog may have stopped it, and said why.
        order = self._order or self.directory.stop_order()[0]
        state, evidence = end_of(self.directory, order)
        code = known_exit_code(self.directory)
        self._report(self.assignment.token, state, evidence, exit_code=code)
        if isinstance(defect, Exception):
            raise defect

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    async def _until_its_end_begins(self) -> None:
        """Until its stop is requested, its command has ended, or all of it is gone."""
        while (
            self._is_alive()
            and self.directory.exit_code is None
            and not self._stop_requested.is_set()
        ):
            await self._bound_logs()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._stop_requested.wait()

    def _is_alive(self) -> bool:
        if self._child is not None:
            self._child.poll()  # reaps it, or it stays a zombie as long as this agent runs
        return self.directory.is_alive()

    async def _stop(self) -> None:
        """Terminates it, and after the grace period kills whatever still holds its lock."""
        clock = asyncio.get_running_loop().time
        began = clock() - self._order_age_seconds
        if self._is_alive() and not self._grace_is_over(clock() - began):
            await asyncio.to_thread(terminate, self.directory.path, self._leader)
        while self._is_alive():
            if self._grace_is_over(clock() - began):
                await asyncio.to_thread(kill, self.directory.path, self._leader)
            await asyncio.sleep(POLL_SECONDS)

    async def _sweep(self) -> None:
        """Kills what released the lock but still carries the replica's cookie."""
        for _ in range(MAX_SWEEPS):
            if not await asyncio.to_thread(kill, self.directory.path, self._leader):
                return
            await asyncio.sleep(POLL_SECONDS)

    def _grace_is_over(self, waited_seconds: float) -> bool:
        is_urgent = self._order is not None and self._order.at_once
        return is_urgent or waited_seconds >= self._run.stop_grace.total_seconds()

    @property
    def _leader(self) -> int | None:
        """If we started it we know it already; the shell may not have written it yet."""
        return self.directory.leader if self._child is None else self._child.pid

    async def _bound_logs(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._logs_due_at:
            return
        self._logs_due_at = now + LOG_CHECK_SECONDS
        for log in (self.directory.stdout, self.directory.stderr):
            # A disk that is full or gone is reported by whoever needs it, not here.
            with suppress(OSError):
                await asyncio.to_thread(bound_log, log)

    # ── its readiness ───────────────────────────────────────────────────────────────────────────

    async def _keep_probing(self) -> None:
        token, readiness, is_new = self.assignment.token, self._run.readiness, bool(self._child)
        if self._child is not None:
            self._report(token, ObservedState.RUNNING, f"process {self._child.pid} was started")
        if self._stop_requested.is_set():
            return
        if readiness is None:
            report_serving(self._report, token, "it is running, and has no readiness probe")
            return
        prober = Prober(
            readiness,
            port=self.directory.port,
            environment=environment_of(self.assignment, self._run, self.directory),
            directory=self.directory.work,
        )
        await keep_probing(prober, readiness, token, self._report, is_new=is_new)


def bound_log(log: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Moves the newest part of a log that grew too large aside, and empties it in place.

    The replica appends to its file by itself, so that it can go on while no agent runs. Lines
    that it writes between the copy and the cut are lost.
    """
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return False
    if size <= max_bytes:
        return False
    aside = log.with_name(f"{log.name}.new")
    with log.open("rb+") as full:
        full.seek(size - max_bytes)
        with aside.open("wb") as kept:
            shutil.copyfileobj(full, kept, 1024**2)
            kept.truncate(max_bytes)
        aside.rename(log.with_name(f"{log.name}.1"))
        # In place, because the replica keeps its descriptor; it appends, so it goes on at the end.
        os.ftruncate(full.fileno(), 0)
    return True

"""Follows one replica from its start, or from where an agent before left it, to its end."""

import asyncio
import subprocess
from contextlib import suppress

from durable.agent.drivers import Report, StopOrder
from durable.agent.ending import end_of
from durable.agent.killing import kill, terminate
from durable.agent.launcher import environment_of
from durable.agent.logs import bound_log
from durable.agent.probes import Prober
from durable.agent.readiness import keep_asking, tell_serving
from durable.agent.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.model.running import Run
from durable.model.states import ObservedState

POLL_SECONDS = 0.1
LOG_CHECK_SECONDS = 1.0
# The lock decides whether it lives; what is only named after it is not waited for without end.
SWEEPS = 50


class Supervisor:
    """The only one who signals a replica and says what it is."""

    def __init__(
        self,
        assignment: Assignment,
        run: Run,
        directory: ReplicaDirectory,
        report: Report,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.assignment = assignment
        self.directory = directory
        self._run = run
        self._report = report
        self._child = child
        self._logs_due_at = 0.0
        self._stop_asked = asyncio.Event()
        # Told by an agent before this one: the stop goes on, and so does its grace.
        self._order, self._order_age_seconds = directory.stop_order()
        if self._order is not None:
            self._stop_asked.set()

    def stop(self, order: StopOrder) -> None:
        """The first order stands, unless a later one is more urgent."""
        if self._order is not None:
            if not order.at_once or self._order.at_once:
                return
            order = self._order.model_copy(update={"at_once": True})
        self._order = order
        # A full disk must not keep anything running; only a restart would have to ask again.
        with suppress(OSError):
            self.directory.order_stop(order)
        self._stop_asked.set()

    async def run(self) -> None:
        """Follows it to its end, and tells the end once nothing of it lives."""
        asking = asyncio.create_task(self._keep_asking())
        try:
            await self._until_its_end_begins()
        finally:
            asking.cancel()
            (defect,) = await asyncio.gather(asking, return_exceptions=True)
        await self._stop()
        await self._sweep()
        self._report(self.assignment.token, *end_of(self.directory, self._order))
        if isinstance(defect, Exception):
            raise defect

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    async def _until_its_end_begins(self) -> None:
        """It is asked to stop, its command has ended, or all of it is gone."""
        while self._lives() and self.directory.exit_code is None and not self._stop_asked.is_set():
            await self._bound_logs()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._stop_asked.wait()

    def _lives(self) -> bool:
        if self._child is not None:
            self._child.poll()  # or it stays a zombie as long as this agent runs
        return self.directory.lives()

    async def _stop(self) -> None:
        """Asks, and after the grace insists for as long as anything holds its lock."""
        clock = asyncio.get_running_loop().time
        began = clock() - self._order_age_seconds
        if self._lives() and not self._grace_is_over(clock() - began):
            await asyncio.to_thread(terminate, self.directory, self._leader)
        while self._lives():
            if self._grace_is_over(clock() - began):
                await asyncio.to_thread(kill, self.directory, self._leader)
            await asyncio.sleep(POLL_SECONDS)

    async def _sweep(self) -> None:
        """Ends what let go of the lock but still carries the replica's name."""
        for _ in range(SWEEPS):
            if not await asyncio.to_thread(kill, self.directory, self._leader):
                return
            await asyncio.sleep(POLL_SECONDS)

    def _grace_is_over(self, waited_seconds: float) -> bool:
        is_urgent = self._order is not None and self._order.at_once
        return is_urgent or waited_seconds >= self._run.stop_grace.total_seconds()

    @property
    def _leader(self) -> int | None:
        """Known from the start where we started it; the shell may not have written it yet."""
        return self.directory.leader if self._child is None else self._child.pid

    async def _bound_logs(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._logs_due_at:
            return
        self._logs_due_at = now + LOG_CHECK_SECONDS
        for log in (self.directory.stdout, self.directory.stderr):
            # A disk that is full or gone is told by whoever needs it, not by us.
            with suppress(OSError):
                await asyncio.to_thread(bound_log, log)

    # ── its readiness ───────────────────────────────────────────────────────────────────────────

    async def _keep_asking(self) -> None:
        token, readiness, is_new = self.assignment.token, self._run.readiness, bool(self._child)
        if self._child is not None:
            self._report(token, ObservedState.RUNNING, f"process {self._child.pid} was started")
        if self._stop_asked.is_set():
            return
        if readiness is None:
            tell_serving(self._report, token, "it runs, and asks for no readiness probe")
            return
        prober = Prober(
            readiness,
            port=self.directory.port,
            environment=environment_of(self.assignment, self._run, self.directory),
            directory=self.directory.work,
        )
        await keep_asking(prober, readiness, token, self._report, is_new=is_new)

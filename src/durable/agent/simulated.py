"""Pretends to run replicas: thousands of nodes in one process, with delays and faults on demand."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from durable.agent.drivers import ENDS, Report, StopOrder
from durable.agent.faults import Fault, FaultKind, Faults
from durable.agent.timers import Timer, Timers
from durable.authority.fleet.assignments import Assignment
from durable.model.states import ObservedState
from durable.model.workload import WorkloadKind

FAULTS_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Delays:
    """How long pretended work takes; each is spread by up to `jitter` of itself."""

    start_seconds: float = 0.05
    ready_seconds: float = 0.1
    stop_seconds: float = 0.05
    job_seconds: float = 5.0
    jitter: float = 0.2


@dataclass(slots=True)
class _Pretended:
    assignment: Assignment
    state: ObservedState = ObservedState.STARTING
    # Only the newest timer of a replica counts; a number is cheaper than a search in the heap.
    timer: int = 0
    is_timed: bool = False
    stopping: StopOrder | None = None

    @property
    def is_job(self) -> bool:
        spec = self.assignment.spec
        return spec is not None and spec.kind is WorkloadKind.JOB


class SimulatedDriver:
    """One heap of timers and one task for all replicas of a region."""

    def __init__(
        self, delays: Delays | None = None, *, faults: Faults | None = None, seed: int = 0
    ) -> None:
        self._delays = delays or Delays()
        self._faults = faults or Faults()
        self._random = random.Random(seed)  # noqa: S311 - spreads delays, guards nothing
        self._replicas: dict[int, _Pretended] = {}
        self._timers = Timers()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._report: Report = _say_nothing

    async def adopt(self, report: Report) -> Sequence[Assignment]:
        """Nothing: what was pretended before is taken up from what was last observed of it."""
        self._report = report
        self._task = asyncio.create_task(self._run())
        return ()

    async def start(self, assignment: Assignment) -> None:
        if assignment.token in self._replicas:
            return
        pretended = _Pretended(assignment)
        self._replicas[assignment.token] = pretended
        if assignment.observed is None:
            self._report(assignment.token, ObservedState.STARTING, "simulated")
            self._after(pretended, self._delays.start_seconds)
        else:
            # It went on while no agent looked, as a process does.
            pretended.state = assignment.observed
            self._report(assignment.token, assignment.observed, "simulated; found again")
            self._go_on(pretended)

    async def stop(self, token: int, order: StopOrder) -> None:
        pretended = self._replicas.get(token)
        if pretended is None or pretended.state in ENDS:
            return
        if pretended.stopping is None:
            pretended.stopping = order
            self._after(pretended, 0.0 if order.at_once else self._delays.stop_seconds)

    async def forget(self, token: int) -> None:
        self._replicas.pop(token, None)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            if self._faults.reread():
                self._reconsider()
            self._woken.clear()
            for timer in self._timers.due(clock()):
                self._ring(timer)
            due = self._timers.seconds_until_next(clock())
            pause = FAULTS_CHECK_SECONDS if due is None else min(due, FAULTS_CHECK_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()

    def _after(self, pretended: _Pretended, seconds: float, crash: Fault | None = None) -> None:
        spread = 1 + self._delays.jitter * (2 * self._random.random() - 1)
        at = asyncio.get_running_loop().time() + seconds * spread
        number = self._timers.set(at, pretended.assignment.token, crash)
        if crash is None:
            pretended.timer, pretended.is_timed = number, True
        self._woken.set()

    def _ring(self, timer: Timer) -> None:
        pretended = self._replicas.get(timer.token)
        if pretended is None or pretended.state in ENDS:
            return
        if timer.crash is not None:
            # It may have been taken back while the timer ran.
            if self._faults.of(pretended.assignment, FaultKind.CRASH) == timer.crash:
                self._enter(pretended, ObservedState.FAILED, f"simulated: {timer.crash}")
        elif timer.number == pretended.timer:
            pretended.is_timed = False
            self._advance(pretended)

    # ── states ──────────────────────────────────────────────────────────────────────────────────

    def _advance(self, pretended: _Pretended) -> None:
        """The timer of its present step is over."""
        if pretended.stopping is not None:
            self._end_stopped(pretended, pretended.stopping)
            return
        match pretended.state:
            case ObservedState.STARTING:
                fault = self._faults.of(pretended.assignment, FaultKind.FAIL_TO_START)
                if fault is not None:
                    self._enter(pretended, ObservedState.FAILED, f"simulated: {fault}")
                    return
                self._enter(pretended, ObservedState.RUNNING, "simulated")
            case ObservedState.RUNNING | ObservedState.READY:
                if self._faults.of(pretended.assignment, FaultKind.NEVER_READY) is not None:
                    return
                self._enter(pretended, ObservedState.READY, "simulated")
                self._enter(pretended, ObservedState.SERVING, "simulated")
            case _:
                self._enter(pretended, ObservedState.STOPPED, "simulated: exit code 0")
                return
        self._go_on(pretended)

    def _go_on(self, pretended: _Pretended) -> None:
        """Sets the timer of the step that its state begins."""
        match pretended.state:
            case ObservedState.STARTING:
                self._after(pretended, self._delays.start_seconds)
            case ObservedState.RUNNING | ObservedState.READY:
                self._after(pretended, self._delays.ready_seconds)
            case _ if pretended.is_job:
                self._after(pretended, self._delays.job_seconds)
            case _:
                pass
        self._expect_crash(pretended)

    def _expect_crash(self, pretended: _Pretended) -> None:
        crash = self._faults.of(pretended.assignment, FaultKind.CRASH)
        if crash is not None and pretended.state is not ObservedState.STARTING:
            self._after(pretended, crash.after_seconds, crash)

    def _end_stopped(self, pretended: _Pretended, order: StopOrder) -> None:
        if self._faults.of(pretended.assignment, FaultKind.HANG_ON_STOP) is None:
            self._enter(pretended, order.ends_as, f"simulated: {order.reason}")

    def _enter(self, pretended: _Pretended, state: ObservedState, evidence: str) -> None:
        pretended.state = state
        self._report(pretended.assignment.token, state, evidence)

    def _reconsider(self) -> None:
        """The faults are others now: what hung may go on, and what runs may crash."""
        for pretended in self._replicas.values():
            if pretended.state in ENDS:
                continue
            if pretended.stopping is not None and not pretended.is_timed:
                self._after(pretended, self._delays.stop_seconds)
            elif pretended.state is ObservedState.RUNNING and not pretended.is_timed:
                self._after(pretended, self._delays.ready_seconds)
            self._expect_crash(pretended)


def _say_nothing(token: int, state: ObservedState, evidence: str) -> None:
    """Before the agent has said where to report."""

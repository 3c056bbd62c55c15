"""Simulates replicas as states that change with time, after delays and with faults on demand."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from durable.agent.driver import ENDS, ReplicaReport, StopOrder
from durable.agent.simulated.faults import FaultKind, Faults, InjectedFault
from durable.agent.simulated.timers import Timer, Timers
from durable.authority.fleet.assignments import Assignment
from durable.ending import end_all
from durable.model.states import ObservedState
from durable.model.work.workload import WorkloadKind

FAULTS_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Delays:
    """How long each step takes; each is varied by up to `jitter` of itself."""

    start_seconds: float = 0.05
    ready_seconds: float = 0.1
    stop_seconds: float = 0.05
    job_seconds: float = 5.0
    jitter: float = 0.2


@dataclass(slots=True)
class _SimulatedReplica:
    assignment: Assignment
    state: ObservedState = ObservedState.STARTING
    # Only the newest timer of a replica counts; its number is cheaper than a search in the heap.
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
        self._random = random.Random(seed)  # noqa: S311 - varies delays, protects nothing
        self._replicas: dict[int, _SimulatedReplica] = {}
        self._timers = Timers()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._report: ReplicaReport = _report_nothing

    async def adopt(self, report: ReplicaReport) -> Sequence[Assignment]:
        """Nothing: a simulated replica goes on from what was last observed of it."""
        self._report = report
        self._task = asyncio.create_task(self._run())
        return ()

    async def start(self, assignment: Assignment) -> None:
        if assignment.token in self._replicas:
            return
        replica = _SimulatedReplica(assignment)
        self._replicas[assignment.token] = replica
        if assignment.observed is None:
            self._report(assignment.token, ObservedState.STARTING, "simulated")
            self._set_timer(replica, self._delays.start_seconds)
        else:
            # It went on while no agent was there, as a process does.
            replica.state = assignment.observed
            self._report(assignment.token, assignment.observed, "simulated; adopted")
            self._schedule_step(replica)

    async def stop(self, token: int, order: StopOrder) -> None:
        replica = self._replicas.get(token)
        if replica is None or replica.state in ENDS:
            return
        if replica.stopping is None:
            replica.stopping = order
            self._set_timer(replica, 0.0 if order.at_once else self._delays.stop_seconds)

    async def forget(self, token: int) -> None:
        self._replicas.pop(token, None)

    async def close(self) -> None:
        if self._task is not None:
            await end_all([self._task])

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            if self._faults.reread():
                self._reconsider()
            self._woken.clear()
            for timer in self._timers.due(clock()):
                self._fire(timer)
            due = self._timers.seconds_until_next(clock())
            pause = FAULTS_CHECK_SECONDS if due is None else min(due, FAULTS_CHECK_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()

    def _set_timer(
        self, replica: _SimulatedReplica, seconds: float, crash: InjectedFault | None = None
    ) -> None:
        variation = 1 + self._delays.jitter * (2 * self._random.random() - 1)
        at = asyncio.get_running_loop().time() + seconds * variation
        number = self._timers.set(at, replica.assignment.token, crash)
        if crash is None:
            replica.timer, replica.is_timed = number, True
        self._woken.set()

    def _fire(self, timer: Timer) -> None:
        replica = self._replicas.get(timer.token)
        if replica is None or replica.state in ENDS:
            return
        if timer.crash is not None:
            # The fault may have been removed while the timer ran.
            if self._faults.find(replica.assignment, FaultKind.CRASH) == timer.crash:
                self._fail(replica, timer.crash)
        elif timer.number == replica.timer:
            replica.is_timed = False
            self._advance(replica)

    # ── states ──────────────────────────────────────────────────────────────────────────────────

    def _advance(self, replica: _SimulatedReplica) -> None:
        """Its current step is over."""
        if replica.stopping is not None:
            self._finish_stop(replica, replica.stopping)
            return
        match replica.state:
            case ObservedState.STARTING:
                fault = self._faults.find(replica.assignment, FaultKind.FAIL_TO_START)
                if fault is not None:
                    self._fail(replica, fault)
                    return
                self._enter(replica, ObservedState.RUNNING, "simulated")
            case ObservedState.RUNNING | ObservedState.READY:
                if self._faults.find(replica.assignment, FaultKind.NEVER_READY) is not None:
                    return
                self._enter(replica, ObservedState.READY, "simulated")
                self._enter(replica, ObservedState.SERVING, "simulated")
            case _:
                self._enter(replica, ObservedState.STOPPED, "simulated: exit code 0", exit_code=0)
                return
        self._schedule_step(replica)

    def _schedule_step(self, replica: _SimulatedReplica) -> None:
        """Sets the timer of the step that its state begins."""
        match replica.state:
            case ObservedState.STARTING:
                self._set_timer(replica, self._delays.start_seconds)
            case ObservedState.RUNNING | ObservedState.READY:
                self._set_timer(replica, self._delays.ready_seconds)
            case _ if replica.is_job:
                self._set_timer(replica, self._delays.job_seconds)
            case _:
                pass
        self._schedule_crash(replica)

    def _schedule_crash(self, replica: _SimulatedReplica) -> None:
        crash = self._faults.find(replica.assignment, FaultKind.CRASH)
        if crash is not None and replica.state is not ObservedState.STARTING:
            self._set_timer(replica, crash.after_seconds, crash)

    def _finish_stop(self, replica: _SimulatedReplica, order: StopOrder) -> None:
        if self._faults.find(replica.assignment, FaultKind.HANG_ON_STOP) is None:
            self._enter(replica, order.ends_as, f"simulated: {order.reason}")

    def _fail(self, replica: _SimulatedReplica, fault: InjectedFault) -> None:
        evidence = f"simulated: {fault}"
        self._enter(replica, ObservedState.FAILED, evidence, exit_code=fault.exit_code)

    def _enter(
        self,
        replica: _SimulatedReplica,
        state: ObservedState,
        evidence: str,
        *,
        exit_code: int | None = None,
    ) -> None:
        replica.state = state
        self._report(replica.assignment.token, state, evidence, exit_code=exit_code)

    def _reconsider(self) -> None:
        """After the faults have changed: what hung may go on, and what runs may crash."""
        for replica in self._replicas.values():
            if replica.state in ENDS:
                continue
            if replica.stopping is not None and not replica.is_timed:
                self._set_timer(replica, self._delays.stop_seconds)
            elif replica.state is ObservedState.RUNNING and not replica.is_timed:
                self._set_timer(replica, self._delays.ready_seconds)
            self._schedule_crash(replica)


def _report_nothing(
    token: int,
    state: ObservedState,
    evidence: str,
    *,
    log_directory: Path | None = None,
    exit_code: int | None = None,
) -> None:
    """Until the agent says where to report."""

"""Runs commands as processes: one directory, one shell and one monitor per token."""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from durable.agent.driver import ReplicaReport, StopOrder
from durable.agent.log import Log
from durable.agent.process.launcher import launch, port_for
from durable.agent.process.monitor import ReplicaMonitor
from durable.agent.process.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.model.states import ObservedState
from durable.model.work.running import Run

# People may want to read the logs of what has ended, but not of everything that ever ran here.
MAX_ENDED_DIRECTORIES = 50

GONE = "its directory is gone, so its fate is unknown; it is not started again"
FOREIGN = "a process of another assignment still runs here under the same token; stop it by hand"
NO_COMMAND = "its run has no command, and this node runs only commands"


class ProcessDriver:
    """The replicas of one node, in one directory that outlives every agent."""

    def __init__(self, root: Path, region: RegionId, log: Log) -> None:
        self._root = root
        self._region = region
        self._log = log
        self._monitors: dict[int, ReplicaMonitor] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._report: ReplicaReport | None = None

    async def adopt(self, report: ReplicaReport) -> Sequence[Assignment]:
        """Adopts every directory: what is alive is monitored, and what is not has ended."""
        self._report = report
        for aside in self._root.glob(".*.new"):
            shutil.rmtree(aside, ignore_errors=True)  # never claimed, so never started
        adopted: list[Assignment] = []
        for token, directory in sorted(self._directories().items()):
            if directory.is_closed:
                continue
            assignment = directory.assignment()
            if assignment is None or assignment.spec is None:
                self._log("cannot adopt", directory=directory.path)
                continue
            self._log("adopted", token=token, alive=directory.is_alive())
            run = assignment.spec.run
            self._monitor(ReplicaMonitor(assignment, run, directory, report))
            adopted.append(assignment)
        return adopted

    async def start(self, assignment: Assignment) -> None:
        if assignment.token in self._monitors:
            return
        try:
            refusal = self._start(assignment)
        except OSError as error:
            refusal = f"it could not be started: {error}"
        if refusal is not None:
            self._reporting(assignment.token, ObservedState.FAILED, refusal)

    def _start(self, assignment: Assignment) -> str | None:
        """Starts it, or returns why not. Once claimed it counts as started, whatever happens."""
        directory = self._directory(assignment.token)
        run = Run() if assignment.spec is None else assignment.spec.run
        if directory.path.exists() and not self._make_way(assignment, directory):
            return FOREIGN
        if directory.path.exists():
            # Started by an agent whose record we could not read; the region's assignment will do.
            self._monitor(ReplicaMonitor(assignment, run, directory, self._reporting))
            return None
        if assignment.observed is not None:
            return GONE
        if not run.command:
            return NO_COMMAND
        taken = [monitor.directory.port for monitor in self._monitors.values()]
        port = port_for(run, [number for number in taken if number is not None])
        if not directory.claim(assignment, port):
            return f"{directory.path} was claimed by another agent"
        self._reporting(
            assignment.token,
            ObservedState.STARTING,
            "its directory was created",
            log_directory=directory.path,
        )
        child = None
        try:
            child = launch(assignment, run, directory)
        except OSError as error:
            # If it is alive, the error came after the spawn, and it has not failed.
            if not directory.is_alive():
                return f"it could not be started: {error}"
        self._monitor(ReplicaMonitor(assignment, run, directory, self._reporting, child))
        return None

    def _make_way(self, assignment: Assignment, directory: ReplicaDirectory) -> bool:
        """Removes what another assignment of the same token left; False if that is still alive.

        Tokens come again in a database that was restored to an earlier time.
        """
        known = directory.assignment()
        if known is None or known.identity == assignment.identity:
            return True
        if directory.is_alive():
            return False
        self._log("removed another's remains", token=assignment.token, directory=directory.path)
        directory.remove()
        return True

    def _monitor(self, monitor: ReplicaMonitor) -> None:
        token = monitor.assignment.token
        self._monitors[token] = monitor
        task = asyncio.create_task(monitor.run())
        task.add_done_callback(lambda done: self._log_defect(token, done))
        self._tasks[token] = task

    def _log_defect(self, token: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log("monitor failed", token=token, error=repr(task.exception()))

    async def stop(self, token: int, order: StopOrder) -> None:
        monitor = self._monitors.get(token)
        if monitor is not None and not self._tasks[token].done():
            monitor.stop(order)

    async def forget(self, token: int) -> None:
        """Closes its directory; the newest few are kept, and tokens are never issued twice."""
        self._monitors.pop(token, None)
        self._tasks.pop(token, None)
        with suppress(OSError):
            self._directory(token).close()
        closed = [pair for pair in sorted(self._directories().items()) if pair[1].is_closed]
        for _, oldest in closed[:-MAX_ENDED_DIRECTORIES]:
            await asyncio.to_thread(oldest.remove)

    async def close(self) -> None:
        """Ends the monitors alone: the replicas run on, and the next agent adopts them."""
        await end_all(self._tasks.values())

    @property
    def _reporting(self) -> ReplicaReport:
        assert self._report is not None, "an agent adopts before it starts anything"
        return self._report

    def _directory(self, token: int) -> ReplicaDirectory:
        return ReplicaDirectory(self._root / f"{self._region}-{token}")

    def _directories(self) -> dict[int, ReplicaDirectory]:
        prefix = f"{self._region}-"
        names = (path.name.removeprefix(prefix) for path in self._root.glob(f"{prefix}*"))
        return {int(name): self._directory(int(name)) for name in names if name.isdigit()}

"""Really runs commands: one directory, one shell and one supervisor per token."""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from durable.agent.drivers import Report, StopOrder
from durable.agent.launcher import launch, port_for
from durable.agent.log import Log
from durable.agent.replica_directory import ReplicaDirectory
from durable.agent.supervisor import Supervisor
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import RegionId
from durable.model.running import Run
from durable.model.states import ObservedState

# Logs of what has ended are kept for people, but not of everything that ever ran here.
KEPT_AFTER_END = 50

GONE = "its directory is gone, so nobody here knows what became of it; it is not started again"
NO_COMMAND = "its run has no command, and this node runs processes"


class ProcessDriver:
    """The replicas of one node, below one directory that outlives every agent."""

    def __init__(self, root: Path, region: RegionId, log: Log) -> None:
        self._root = root
        self._region = region
        self._log = log
        self._supervisors: dict[int, Supervisor] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._report: Report | None = None

    async def adopt(self, report: Report) -> Sequence[Assignment]:
        """Takes up every directory: what lives is followed on, what does not has ended."""
        self._report = report
        for aside in self._root.glob(".*.new"):
            shutil.rmtree(aside, ignore_errors=True)  # claimed by nobody, so never begun
        adopted: list[Assignment] = []
        for token, directory in sorted(self._directories().items()):
            if directory.is_closed:
                continue
            assignment = directory.assignment()
            if assignment is None or assignment.spec is None:
                self._log("cannot adopt", directory=directory.path)
                continue
            self._log("adopted", token=token, lives=directory.lives())
            run = assignment.spec.run
            self._follow(Supervisor(assignment, run, directory, report))
            adopted.append(assignment)
        return adopted

    async def start(self, assignment: Assignment) -> None:
        if assignment.token in self._supervisors:
            return
        try:
            refusal = self._start(assignment)
        except OSError as error:
            refusal = f"it could not be started: {error}"
        if refusal is not None:
            self._reporting(assignment.token, ObservedState.FAILED, refusal)

    def _start(self, assignment: Assignment) -> str | None:
        """Begins it, or says why not. From the claim on it counts as begun, whatever happens."""
        directory = self._directory(assignment.token)
        run = Run() if assignment.spec is None else assignment.spec.run
        if directory.path.exists():
            # Begun by an agent whose words we could not read; the region's own words will do.
            self._follow(Supervisor(assignment, run, directory, self._reporting))
            return None
        if assignment.observed is not None:
            return GONE
        if not run.command:
            return NO_COMMAND
        taken = [supervisor.directory.port for supervisor in self._supervisors.values()]
        port = port_for(run, [number for number in taken if number is not None])
        if not directory.claim(assignment, port):
            return f"{directory.path} was claimed by another"
        self._reporting(
            assignment.token, ObservedState.STARTING, f"its directory is {directory.path}"
        )
        child = None
        try:
            child = launch(assignment, run, directory)
        except OSError as error:
            # Whatever went wrong after the spawn: what lives is followed, and not called failed.
            if not directory.lives():
                return f"it could not be started: {error}"
        self._follow(Supervisor(assignment, run, directory, self._reporting, child))
        return None

    def _follow(self, supervisor: Supervisor) -> None:
        token = supervisor.assignment.token
        self._supervisors[token] = supervisor
        task = asyncio.create_task(supervisor.run())
        task.add_done_callback(lambda done: self._note_defect(token, done))
        self._tasks[token] = task

    def _note_defect(self, token: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log("supervision failed", token=token, error=repr(task.exception()))

    async def stop(self, token: int, order: StopOrder) -> None:
        supervisor = self._supervisors.get(token)
        if supervisor is not None and not self._tasks[token].done():
            supervisor.stop(order)

    async def forget(self, token: int) -> None:
        """Its directory stays among the newest few that ended; tokens are never issued twice."""
        self._supervisors.pop(token, None)
        self._tasks.pop(token, None)
        with suppress(OSError):
            self._directory(token).close()
        closed = [pair for pair in sorted(self._directories().items()) if pair[1].is_closed]
        for _, oldest in closed[:-KEPT_AFTER_END]:
            await asyncio.to_thread(oldest.remove)

    async def close(self) -> None:
        """Ends the supervision alone: the replicas run on, and the next agent adopts them."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    @property
    def _reporting(self) -> Report:
        assert self._report is not None, "an agent adopts before it starts anything"
        return self._report

    def _directory(self, token: int) -> ReplicaDirectory:
        return ReplicaDirectory(self._root / f"{self._region}-{token}")

    def _directories(self) -> dict[int, ReplicaDirectory]:
        prefix = f"{self._region}-"
        names = (path.name.removeprefix(prefix) for path in self._root.glob(f"{prefix}*"))
        return {int(name): self._directory(int(name)) for name in names if name.isdigit()}

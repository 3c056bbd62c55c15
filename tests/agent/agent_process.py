"""Agents as processes that can be killed, forked from one that has imported everything already."""

import asyncio
import multiprocessing
import os
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from durable.agent.agent import Agent
from durable.agent.leases import Timing
from durable.agent.log import EventLog
from durable.agent.nodes import OwnNode
from durable.agent.process.driver import ProcessDriver
from durable.agent.process.node_directory import NodeDirectory, PersistentLeases
from durable.authority.db.connection import Databases
from durable.failpoints import VARIABLE
from durable.model.ids import NodeId
from tests.agent.waiting import eventually
from tests.authority.world import EAST, TEST, labels, node


def run_agent(url: str, state_dir: str, name: str, failpoints: str, lease: int) -> None:
    """The life of such a process."""
    os.environ[VARIABLE] = failpoints
    asyncio.run(_run(url, Path(state_dir), name, Timing(lease_ttl_seconds=lease)))


async def _run(url: str, state_dir: Path, name: str, timing: Timing) -> None:
    log = EventLog()
    async with Databases(url) as databases:
        with NodeDirectory(state_dir, NodeId(name)) as directory:
            driver = ProcessDriver(directory.path, EAST, log)
            nodes = OwnNode(node(name, labels=labels(driver="process")))
            leases = PersistentLeases(timing.trusted_seconds, directory, EAST, NodeId(name))
            await Agent(
                databases,
                EAST,
                nodes,
                driver,
                name=TEST,
                log=log,
                timing=timing,
                leases=leases,
                host=directory.host,
            ).run()


class AgentProcesses:
    """Starts them, and ends by their ids those that still run."""

    def __init__(self, url: str, state_dir: Path) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", __name__])
        self._url = url
        self._state_dir = state_dir
        self._started: list[ForkServerProcess] = []

    def start(self, name: str, failpoints: str = "", *, lease: int = 15) -> ForkServerProcess:
        arguments = (self._url, str(self._state_dir), name, failpoints, lease)
        child = self._context.Process(target=run_agent, args=arguments)
        child.start()
        self._started.append(child)
        return child

    def end_all(self) -> None:
        for child in self._started:
            child.kill()
            child.join()


async def exit_code_of(child: ForkServerProcess) -> int | None:
    """Waits for its end; in one thread, since two that ask at once would share one answer."""
    await eventually("the agent has ended", lambda: child.exitcode is not None)
    return child.exitcode

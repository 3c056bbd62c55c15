"""A region inside a network namespace, another outside, and agents and replicas as processes."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from durable.authority.db.connection import Databases
from durable.authority.recovery.fence import reopen
from durable.authority.recovery.region_leases import renew
from durable.model.ids import RegionId
from tests.agent.commands import lives, shell
from tests.agent.network_namespace import NetworkNamespace
from tests.agent.region import LiveRegion
from tests.agent.slot_processes import SlotProcesses
from tests.authority.world import EAST, TEST, WEST

DURABLE = (sys.executable, "-c", "from durable.cli.main import run; run()")
# Long enough that a busy machine renews it in time, and has two seconds for killing.
LEASE_SECONDS = 10


class AgentCommands:
    """`durable agent` with real processes; each runs until the test ends."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._started: list[asyncio.subprocess.Process] = []

    async def start(
        self, region: RegionId, node: str, url: str, within: NetworkNamespace | None = None
    ) -> asyncio.subprocess.Process:
        command = (
            *DURABLE, "agent", "--region", region, "--node", node, "--zone", "a", "--cpu", "8",
            "--memory", "32Gi", "--lease", str(LEASE_SECONDS),
        )  # fmt: skip
        settings = {"DURABLE_DATABASE_URL": url, "DURABLE_STATE_DIR": str(self._state_dir)}
        child = await asyncio.create_subprocess_exec(
            *(command if within is None else within.command(*command)),
            env={**os.environ, **settings},
        )
        self._started.append(child)
        return child

    async def end_all(self) -> None:
        for child in self._started:
            if child.returncode is None:
                child.kill()
            await child.wait()


class Partition:
    """us-east inside, with slot 0 that stops and 1 and 2 that run on; us-west outside."""

    def __init__(
        self, east: LiveRegion, west: LiveRegion, namespace: NetworkNamespace, root: Path
    ) -> None:
        self.processes = SlotProcesses(root)
        self._east = east
        self._west = west
        self._namespace = namespace
        self._stops = shell(self.processes.script, on_disconnect="stop")
        self._keeps = shell(self.processes.script, on_disconnect="keep")
        self._begun: tuple[int, int, int] = (0, 0, 0)

    async def begin(self, commands: AgentCommands, url_inside: str) -> None:
        await self._east.world.with_region(WEST)
        await self._east.world.with_tenant(region=WEST)
        agent = await commands.start(EAST, "n1", url_inside, self._namespace)
        await commands.start(WEST, "w1", self._west.url)
        await self._west.until_registered("w1")
        tokens = [await self._east.run(0, self._stops)]
        tokens += [await self._east.run(slot, self._keeps, generation=2) for slot in (1, 2)]
        for token in tokens:
            await self._east.until(token, "serving")
        stopping, moving, staying = [await self.processes.first(slot) for slot in range(3)]
        for pid in (agent.pid, stopping, moving, staying):
            assert self._namespace.contains(pid), f"process {pid} runs outside"
        self._begun = (stopping, moving, staying)

    async def replace(self) -> None:
        """Has slot 0 run on the other side; 1 and 2 run on, whose agent cannot know better."""
        await self._west.until(await self._west.run(0, self._stops, on="w1"), "serving")
        _, moving, staying = self._begun
        assert lives(moving), "slot 1 must run on until its agent hears that it moved"
        assert lives(staying), "slot 2 must run on"

    async def reopen(self, databases: Databases) -> None:
        """Has the region work again, with a new replica as the proof."""
        assert not lives(self._begun[1]), "slot 1 must yield: its replacement may be elsewhere"
        await reopen(databases, EAST, expected_epoch=2, actor=TEST, reason="it is back")
        await renew(databases, EAST, "w", lease_seconds=600)
        self._east.world.epoch = 2
        # Whoever starts this has also read what else it must run.
        await self._east.until(await self._east.run(3, self._keeps, generation=2), "serving")

    def check(self) -> None:
        """Slot 0 ran once inside and then once outside, and the others were never begun again."""
        stopping, moving, staying = self._begun
        begun = [self.processes.begun(slot) for slot in range(3)]
        replacement = begun[0][-1]
        assert begun == [[stopping, replacement], [moving], [staying]], begun
        assert not self._namespace.contains(replacement), "the replacement runs inside"
        seen = [living for living in self.processes.seen if living]
        assert seen == [[stopping], [replacement]], f"of slot 0 there lived at once: {seen}"
        assert lives(staying), "slot 2 did not move, and must run on"


@asynccontextmanager
async def partitioned(
    east: LiveRegion, west: LiveRegion, namespace: NetworkNamespace, root: Path
) -> AsyncGenerator[Partition]:
    """Samples the processes from before the first begins until the test ends."""
    partition = Partition(east, west, namespace, root)
    try:
        async with partition.processes.sampled():
            yield partition
    finally:
        await east.close()
        await west.close()

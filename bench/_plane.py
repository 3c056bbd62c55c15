"""A whole control plane for a benchmark: durable servers, workers and a simulated agent."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench._report import progress
from durable.authority.db.connection import Databases
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.migrations import upgrade_all
from durable.client import Durable
from durable.model.fleet.manifest import Fleet
from durable.model.ids import ActorId, RegionId
from durable.settings import Settings
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres
from durable.stack.temporal_server import temporal_child
from durable.temporal.connection import answers
from durable.temporal.namespace import register

REGION = RegionId("bench")


@dataclass(frozen=True)
class Plane:
    settings: Settings
    databases: Databases
    durable: Durable
    pids: dict[str, int]
    folder: Path
    environment: dict[str, str]
    stack: AsyncExitStack
    # The commands by the name of their process.
    processes: Mapping[str, tuple[str, ...]]
    # Where Temporal counts what it is asked.
    metrics_url: str

    async def start(self, name: str) -> None:
        """Starts one of the processes, also again after it was killed."""
        self.pids[name] = await self.stack.enter_async_context(
            child(
                "-m",
                "durable.cli",
                *self.processes[name],
                environment=self.environment,
                log=self.folder / f"{name}.log",
            )
        )


_PROCESSES = {
    "agent": ("agent", "--simulated", "--region", REGION, "--start-delay", "0",
              "--ready-delay", "0", "--job-duration", "0"),
    "global": ("worker", "--global"),
    "regional": ("worker", "--region", REGION),
}  # fmt: skip


def fleet(nodes: int, tenants: int, cpu: int = 200) -> Fleet:
    """One region of three zones, and tenants with quotas that just hold what they will run."""
    quota = {"cpu": cpu, "memory": f"{cpu}Gi"}
    return Fleet.model_validate(
        {
            "regions": [
                {
                    "id": REGION,
                    "zones": [f"zone-{zone}" for zone in "abc"],
                    "pools": [
                        {
                            "name": f"pool-{zone}",
                            "zone": f"zone-{zone}",
                            "count": nodes // 3 + (zone == "a") * (nodes % 3),
                            "capacity": {"cpu": 16, "memory": "64Gi"},
                        }
                        for zone in "abc"
                    ],
                }
            ],
            "tenants": [
                {"id": f"tenant-{number}", "hard": quota, "grants": {REGION: quota}}
                for number in range(tenants)
            ],
        }
    )


@asynccontextmanager
async def child(*arguments: str, environment: dict[str, str], log: Path) -> AsyncGenerator[int]:
    with log.open("ab") as words:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            env={**os.environ, **environment},
            stdout=words,
            stderr=words,
        )
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def control_plane(
    folder: Path, fleet: Fleet, processes: Mapping[str, tuple[str, ...]] = _PROCESSES
) -> AsyncGenerator[Plane]:
    async with AsyncExitStack() as stack:
        (folder / "postgres").mkdir()
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start(free_port())
        stack.callback(postgres.stop)
        url = postgres.ensure_database("durable")
        await asyncio.to_thread(upgrade_all, url, {}, ActorId("bench"))
        (folder / "temporal").mkdir()
        port = free_port()
        server = temporal_child(folder / "temporal", port, free_port())
        metrics_port = free_port()
        temporal = await asyncio.create_subprocess_exec(
            *server.argv,
            f"--metrics-port={metrics_port}",
            env=dict(server.environment),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(_ended, temporal)
        settings = Settings(
            state_dir=folder, database_url=url, temporal_address=f"127.0.0.1:{port}"
        )
        async with asyncio.timeout(60):
            while not await answers(f"127.0.0.1:{port}"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await register(settings, f"127.0.0.1:{port}")
        databases = await stack.enter_async_context(Databases(url))
        progress(f"a fleet of {sum(1 for _ in fleet.nodes()):,} nodes")
        await apply_fleet(
            databases, fleet, actor=ActorId("bench"), request="bench", report=lambda _: None
        )
        environment = {
            "DURABLE_STATE_DIR": str(folder),
            "DURABLE_DATABASE_URL": url,
            "DURABLE_TEMPORAL_ADDRESS": f"127.0.0.1:{port}",
        }
        pids = {"temporal": temporal.pid, "postgres": postgres.pid}
        durable = await stack.enter_async_context(await Durable.connect(settings, actor="bench"))
        metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        plane = Plane(
            settings, databases, durable, pids, folder, environment, stack, processes, metrics
        )
        for name in processes:
            await plane.start(name)
        yield plane


async def _ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()

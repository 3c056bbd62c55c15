"""A control plane on servers of its own, which a test may kill."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from durable.authority.migrations import upgrade
from durable.model.fleet.manifest import Fleet
from durable.settings import Settings
from tests.chaos.servers import NAMESPACE, PostgresServer, TemporalServer
from tests.conftest import seed_operators
from tests.workflows.plane import Plane, small_fleet


@dataclass
class World:
    postgres: PostgresServer
    temporal: TemporalServer
    plane: Plane


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """With one region, unless a test names another fleet."""
    fleet: Fleet = getattr(request, "param", None) or small_fleet(nodes=4, cpu=8)
    with tempfile.TemporaryDirectory(prefix="durable-chaos-") as folder:
        path = Path(folder)
        postgres, temporal = PostgresServer(path / "postgres"), TemporalServer(path / "temporal")
        plane: Plane | None = None
        try:
            await asyncio.to_thread(upgrade, postgres.url)
            await asyncio.to_thread(seed_operators, postgres.url)
            await temporal.start()
            settings = Settings(
                state_dir=path,
                database_url=postgres.url,
                temporal_address=temporal.address,
                temporal_namespace=NAMESPACE,
            )
            plane = await Plane.make(settings, path / "faults.yaml")
            await plane.load(fleet)
            yield World(postgres, temporal, plane)
        finally:
            if plane is not None:
                await plane.close()
            temporal.kill()
            postgres.stop()

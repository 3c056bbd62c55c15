"""A region with its own database, cut off from the global side: it goes on until its lease ends."""

import asyncio
import json

import psycopg
import pytest

from durable.authority.db import breaker
from durable.authority.migrations import upgrade
from durable.model.placement.claims import RegionalClaim
from durable.model.states import BindingState
from durable.stack.postgres.server import EmbeddedPostgres
from durable.temporal.connection import connect
from durable.temporal.worker import global_worker, regional_worker
from tests.conftest import seed_operators
from tests.frozen import frozen
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until

# Long enough for a replica to be placed again within it, also on a slow machine.
LEASE_SECONDS = 40
HAS_LAPSED = "SELECT lease_expires_at <= clock_timestamp() FROM regional.regions"


async def _crash(plane: Plane, binding: RegionalClaim) -> None:
    """Whatever runs on its node from now on crashes, so that it has to go to another."""
    plane.faults.write_text(json.dumps([{"kind": "crash", "node": str(binding.node)}]))


async def test_a_region_that_is_cut_off_goes_on_until_its_lease_ends_and_then_holds(
    make_plane: MakePlane,
    postgres: EmbeddedPostgres,
    other_postgres: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.5)
    url = other_postgres.ensure_database("cut_off")
    await asyncio.to_thread(upgrade, url)
    await asyncio.to_thread(seed_operators, url)
    east_url = postgres.ensure_database("cut_off_east")
    await asyncio.to_thread(upgrade, east_url, serves_global=False)
    plane = await make_plane(database_url=url, regional_database_urls=json.dumps({EAST: east_url}))
    plane.faults.write_text("[]")
    await (await plane.load(small_fleet(nodes=4))).host()
    client = await connect(plane.settings, plane.settings.require_temporal_address())
    await plane.stack.enter_async_context(global_worker(client, plane.databases))
    await plane.stack.enter_async_context(
        regional_worker(client, plane.databases, EAST, lease_seconds=LEASE_SECONDS)
    )
    await plane.durable.apply(manifest(replicas=2))
    await plane.durable.wait("risk", "api")
    before = await plane.bindings()

    async def serves_elsewhere() -> bool:
        now = (await plane.bindings()).get(("api", 0))
        return (
            now is not None
            and now.node != before["api", 0].node
            and now.state is BindingState.SERVING
        )

    async def has_lapsed() -> bool:
        async with await psycopg.AsyncConnection.connect(east_url) as connection:
            row = await (await connection.execute(HAS_LAPSED)).fetchone()
        return row == (True,)

    async def holds() -> bool:
        pending = (await plane.placement()).pending
        return pending is not None and pending.code == "region_lease_lapsed"

    async def serves() -> bool:
        states = [one.state for one in (await plane.bindings()).values()]
        return states == [BindingState.SERVING] * 2

    with frozen(other_postgres):
        await _crash(plane, before["api", 0])
        await until(serves_elsewhere, "the region places the replica again by itself")
        assert not await has_lapsed()
        await until(has_lapsed, "the lease of the region ends")
        await _crash(plane, (await plane.bindings())["api", 1])
        await until(holds, "nothing is placed any more, and the placement says why")
        assert ("api", 0) in await plane.bindings(), "what runs is left alone"
    await until(serves, "everything serves when the global side is back")
    await plane.no_invariant_is_broken()

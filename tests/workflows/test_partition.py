"""A region that is cut off from everybody else, while its database, worker and agents go on."""

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from durable.authority.db import breaker
from durable.authority.db.connection import Databases
from durable.authority.migrations import upgrade
from durable.authority.operators.changes import set_key
from durable.model.operators.signature import public_key_of
from durable.model.recovery.recoveries import RecoveryPhase
from durable.temporal.connection import connect
from durable.temporal.signing import signer_of
from durable.temporal.worker import global_worker, regional_worker
from tests.agent.cut_proxy import CutProxy
from tests.conftest import Copies, running_server
from tests.frozen import freeze_for_good, kill
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import EAST, WEST, manifest, small_fleet, until
from tests.workflows.test_recovery import (
    CRITICAL,
    KEY,
    SECONDS,
    TEST,
    declare,
    only_shares_run,
    reached,
    share,
    tokens,
    whole,
)

LEASE_SECONDS = 12


async def test_a_regional_database_that_hangs_and_is_killed_comes_back_with_its_old_rows(
    make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fenced by the lapse of its lease, emptied, and reconciled with what it still believes."""
    with running_server() as server:
        east_url = server.ensure_database("east")
        await asyncio.to_thread(upgrade, east_url, serves_global=False)
        plane = await make_plane(regional_database_urls=json.dumps({EAST: east_url}))
        await plane.load(small_fleet("east", "west", nodes=2, cpu=8))
        await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
        plane.durable.signer = await signer_of(plane.databases, KEY)
        client = await connect(plane.settings, plane.settings.require_temporal_address())
        async with (
            global_worker(client, plane.databases),
            regional_worker(client, plane.databases, WEST),
            regional_worker(client, plane.databases, EAST, lease_seconds=LEASE_SECONDS),
        ):
            await plane.host(EAST, WEST)
            await plane.until_live()
            await plane.durable.apply(manifest(replicas=4, **CRITICAL))
            await plane.durable.wait("risk", "api")
            before = await tokens(plane, EAST)
            assert len(before) == 2

            monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.5)
            monkeypatch.setattr(breaker, "PROBE_SECONDS", 2)
            freeze_for_good(server)
            await declare(plane)
            await whole(plane)
            assert await share(plane) == {WEST: 4}
            kill(server)
            await asyncio.to_thread(server.start, urlsplit(east_url).port or 0)

            async def has_let_go() -> bool:
                return not plane.databases.is_away(EAST) and not await tokens(plane, EAST)

            await until(has_let_go, "its old claims are released", seconds=SECONDS)
            await reached(plane, RecoveryPhase.HOLDING)
            assert len(await tokens(plane, WEST)) == 4
            await plane.no_invariant_is_broken()
            await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
            await reached(plane, RecoveryPhase.FAILED_BACK)
            assert await share(plane) == {EAST: 2, WEST: 2}
            await only_shares_run(plane)
            assert set((await tokens(plane, EAST)).values()).isdisjoint(before.values())
            await plane.no_invariant_is_broken()


@pytest.mark.parametrize("stays", ["original", pytest.param("replacement", marks=pytest.mark.soak)])
async def test_what_runs_on_in_a_region_that_nobody_reaches_is_kept_if_the_spec_says_so(
    make_plane: MakePlane, copies: Copies, monkeypatch: pytest.MonkeyPatch, stays: str
) -> None:
    """Its slots are not handed over without it: stand-ins serve elsewhere, until it is back."""
    east_url = copies.url(copies.make("template1"))
    await asyncio.to_thread(upgrade, east_url, serves_global=False)
    run: dict[str, Any] = {"on_disconnect": "keep", "on_reconnect": stays}
    async with CutProxy(east_url) as to_east:
        urls = json.dumps({EAST: to_east.url})
        plane = await make_plane(regional_database_urls=urls)
        await plane.load(small_fleet("east", "west", nodes=2, cpu=8))
        await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
        plane.durable.signer = await signer_of(plane.databases, KEY)
        client = await connect(plane.settings, plane.settings.require_temporal_address())
        async with (
            CutProxy(plane.settings.require_database_url()) as to_global,
            Databases(to_global.url, {EAST: east_url}) as inside,
            global_worker(client, plane.databases),
            regional_worker(client, plane.databases, WEST),
            regional_worker(client, inside, EAST, lease_seconds=LEASE_SECONDS),
            replace(plane, databases=inside).agent(EAST),
        ):
            await plane.host(WEST)
            await plane.until_live()
            await plane.durable.apply(manifest(replicas=4, run=run, **CRITICAL))
            await plane.durable.wait("risk", "api")
            before = await tokens(plane, EAST)
            assert len(before) == 2

            # Not before: on a busy machine a region that answers late would count as away.
            monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.5)
            monkeypatch.setattr(breaker, "PROBE_SECONDS", 2)
            to_east.cut()
            to_global.cut()
            await declare(plane)
            await whole(plane)
            assert await share(plane) == {WEST: 4}
            assert len(await tokens(plane, WEST)) == 4
            beyond = [slot for slot in await tokens(plane, WEST) if slot >= 4]
            assert len(beyond) == (2 if stays == "original" else 0)

            to_global.mend()
            to_east.mend()

            async def answers() -> bool:
                return not plane.databases.is_away(EAST)

            await until(answers, "the database of east answers", seconds=SECONDS)
            await reached(plane, RecoveryPhase.HOLDING)
            await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
            await reached(plane, RecoveryPhase.FAILED_BACK)
            assert await share(plane) == {EAST: 2, WEST: 2}
            await only_shares_run(plane)
            assert (await tokens(plane, EAST) == before) is (stays == "original")
            await plane.no_invariant_is_broken()

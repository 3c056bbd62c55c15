"""A region that is cut off from the global side while its database and its agents go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from durable.agent.leases import Timing
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.region_leases import renew
from durable.authority.slots.ownership import SlotRegistry
from durable.model.refusal import RefusalCode
from durable.model.states import RegionState
from tests.agent.commands import directory_of, lives, number_in, shell
from tests.agent.conftest import Agents
from tests.agent.cut_proxy import CutProxy
from tests.agent.region import LiveRegion
from tests.agent.waiting import eventually
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST

WAITS = "echo $$ > pid; exec sleep 1000"
STOPS = shell(WAITS, on_disconnect="stop")
KEEPS = shell(WAITS, on_disconnect="keep")
LEASE_SECONDS = 4


@pytest.fixture
async def region(
    database_url: str, east_url: str, agents: Agents, tmp_path: Path
) -> AsyncIterator[LiveRegion]:
    """us-east as it sees itself: with a database of its own, and an agent of real processes."""
    async with Databases(database_url, {EAST: east_url}) as inside:
        region = LiveRegion(inside, east_url)
        await region.furnish()
        await region.world.with_region(WEST)
        await region.world.with_tenant(region=WEST)
        await renew(inside, EAST, "w", lease_seconds=LEASE_SECONDS)
        agents.process(region, tmp_path, timing=Timing(lease_ttl_seconds=2))
        yield region
        await agents.end_all()
        await region.close()


async def keep_renewing(databases: Databases) -> None:
    while True:
        await renew(databases, EAST, "w", lease_seconds=LEASE_SECONDS)
        await asyncio.sleep(LEASE_SECONDS / 8)


async def process_of(region: LiveRegion, root: Path, token: int) -> int:
    await region.until(token, "serving")
    return await number_in(directory_of(root, token) / "work" / "pid")


async def test_what_must_stop_has_stopped_before_its_slot_can_go_elsewhere(
    region: LiveRegion, database_url: str, tmp_path: Path
) -> None:
    inside = region.databases
    renewing = asyncio.create_task(keep_renewing(inside))
    stops = await region.run(0, STOPS)
    keeps, stays = [await region.run(slot, KEEPS, generation=2) for slot in (1, 2)]
    stopping, kept, staying = [await process_of(region, tmp_path, t) for t in (stops, keeps, stays)]

    async with (
        CutProxy(region.url) as proxy,
        Databases(database_url, {EAST: proxy.url}) as outside,
    ):
        registry = SlotRegistry(outside, RISK, API, FIRST_DIVISION)

        async def moved() -> bool:
            ran = lives(stopping)
            try:
                await registry.transfer([0, 1], EAST, WEST, transfer="t1", actor=TEST)
            except AuthorityUnreachableError:
                return False
            assert not ran, "it ran when its slot could already go elsewhere"
            return True

        proxy.cut()
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        done = await fence(outside, EAST, expected_epoch=1, actor=TEST, reason="it is cut off")
        assert not done.is_in_region
        await eventually("its slots have moved", moved)
        assert not lives(stopping)
        assert lives(kept)
        assert lives(staying)
        assert await region.session() > 0, "its nodes go on in the region"
        region.world.now = await region.now()
        late = region.world.reserve(3, node="n1")
        assert await region.world.refused(late) is RefusalCode.REGION_LEASE_LAPSED

        proxy.mend()
        await eventually("its database answers", lambda: not outside.is_away(EAST))
        assert (await renew(inside, EAST, "w", lease_seconds=60)).is_fenced
        await region.until_registered()

        async def released() -> bool:
            left = await release_fenced(inside, EAST, epoch=2, most=100)
            return left.waiting == 0

        await eventually("what moved has ended here", released)
        assert not lives(kept), "its replacement is elsewhere"
        assert lives(staying), "what did not move is left alone"
        status = await reopen(outside, EAST, expected_epoch=2, actor=TEST, reason="it is back")
        assert status.state is RegionState.OPEN


async def test_what_cannot_be_moved_goes_on_in_a_fenced_region_that_answers(
    region: LiveRegion, tmp_path: Path
) -> None:
    inside = region.databases
    renewing = asyncio.create_task(keep_renewing(inside))
    stays = await process_of(region, tmp_path, await region.run(0, STOPS))
    fenced = await fence(inside, EAST, expected_epoch=1, actor=TEST, reason="declared by mistake")
    assert fenced.is_in_region
    long_after = await region.now() + timedelta(seconds=3 * LEASE_SECONDS)

    async def is_long_after() -> bool:
        assert lives(stays), "nobody moved it"
        return await region.now() >= long_after

    await eventually("the lease of the region would have lapsed", is_long_after)
    await region.until_registered()
    await release_fenced(inside, EAST, epoch=2, most=100)
    assert lives(stays)
    renewing.cancel()

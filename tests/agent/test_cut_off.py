"""Cut off and back again: what stops, what stays, and what the authority hears afterwards."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durable.agent.leases import Timing
from durable.authority.db.connection import Databases
from durable.authority.recovery.fence import fence
from durable.model.placement.intents import ReleaseCause
from durable.model.work.workload import WorkloadSpec
from tests.agent.commands import directory_of, lives, number_in, shell
from tests.agent.conftest import Agents
from tests.agent.cut_proxy import CutProxy
from tests.agent.region import LiveRegion
from tests.agent.waiting import eventually
from tests.authority.world import EAST, TEST

WAITS = "echo $$ > pid; exec sleep 1000"
STOPS = shell(WAITS, on_disconnect="stop")
KEEPS = shell(WAITS, on_disconnect="keep")


@pytest.fixture
async def proxy(region: LiveRegion, agents: Agents, tmp_path: Path) -> AsyncIterator[CutProxy]:
    """The way of n1's agent to the authority; the lease is two seconds."""
    async with CutProxy(region.url) as proxy, Databases(proxy.url) as databases:
        agents.process(region, tmp_path, databases=databases, timing=Timing(lease_ttl_seconds=2))
        yield proxy
        proxy.mend()
        await agents.end_all()


async def started(
    region: LiveRegion, root: Path, slot: int, generation: int, spec: WorkloadSpec
) -> tuple[int, int]:
    """A serving replica: its token and its process."""
    token = await region.run(slot, spec, generation=generation)
    await region.until(token, "serving")
    return token, await number_in(directory_of(root, token) / "work" / "pid")


async def test_without_a_lease_it_stops_what_has_on_disconnect_stop_and_keeps_the_rest(
    region: LiveRegion, proxy: CutProxy, tmp_path: Path
) -> None:
    stops, stopping = await started(region, tmp_path, 0, 1, STOPS)
    keeps, kept = await started(region, tmp_path, 1, 2, KEEPS)
    session = await region.session()

    proxy.cut()
    await eventually("what must not run without a lease is gone", lambda: not lives(stopping))
    assert lives(kept)

    proxy.mend()
    assert "could not renew its lease" in await region.until(stops, "failed")
    await region.until_registered(after=session)
    await region.until(keeps, "serving")
    assert lives(kept)


async def test_after_a_fence_it_stops_what_moved_before_it_registers_and_keeps_the_rest(
    region: LiveRegion, proxy: CutProxy, tmp_path: Path
) -> None:
    moves, moving = await started(region, tmp_path, 0, 1, KEEPS)
    _, kept = await started(region, tmp_path, 1, 1, KEEPS)

    proxy.cut()
    await fence(region.databases, EAST, expected_epoch=1, actor=TEST, reason="a test")

    async def lapsed() -> bool:
        rows = await region.ask("SELECT expires_at <= clock_timestamp() FROM regional.node_leases")
        return bool(rows[0][0])

    await eventually("the lease from before the fence has lapsed", lapsed)
    await region.release(moves, 0, ReleaseCause.REGION_FENCED, epoch=2)
    assert lives(moving), "the agent cannot know yet"
    proxy.mend()

    # A session at the new epoch exists only once what moved away has ended.
    await region.until_registered()
    assert not lives(moving)
    assert lives(kept)


async def test_a_fence_that_moved_nothing_stops_nothing(
    region: LiveRegion, proxy: CutProxy, tmp_path: Path
) -> None:
    token, pid = await started(region, tmp_path, 0, 1, STOPS)

    await fence(region.databases, EAST, expected_epoch=1, actor=TEST, reason="a test")

    await region.until_registered()
    assert lives(pid)

    async def reported_again() -> bool:
        rows = await region.ask(
            "SELECT o.session = l.session FROM regional.observations o, regional.node_leases l"
            " WHERE o.token = %s AND l.node = 'n1'",
            token,
        )
        return bool(rows[0][0])

    await eventually("the new session reported everything again", reported_again)
    assert (await region.observed(token))[0] == "serving"


async def test_what_happens_while_cut_off_is_reported_afterwards(
    region: LiveRegion, proxy: CutProxy, tmp_path: Path
) -> None:
    token = await region.run(0, shell("until test -e end; do sleep 0.05; done; exit 9"))
    await region.until(token, "serving")

    proxy.cut()
    (directory_of(tmp_path, token) / "work" / "end").touch()
    exit_file = directory_of(tmp_path, token) / "exit"
    await eventually("it has ended", exit_file.exists)
    proxy.mend()

    assert "exit code 9" in await region.until(token, "failed")

"""A job that loses a region: every slot is done once, nothing of it waits for what is over."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.recovery.recoveries import read_moves
from durable.authority.workloads.rows import read_workload
from durable.model.ids import RegionId
from durable.model.recovery.recoveries import RecoveryPhase
from durable.signals.status import WorkloadStatus
from tests.workflows.plane import EAST, WEST, Plane, small_fleet, until
from tests.workflows.test_batch import GATE, QUICKLY, RISK, SCORE, done, job
from tests.workflows.test_jobs import has_completed
from tests.workflows.test_recovery import LOST, declare, reached, sign_as_test
from tests.workflows.test_trouble import set_faults

_DONE = text("""
    SELECT i.slot FROM regional.intents AS i
      JOIN regional.bindings AS b
        ON b.region = i.region AND b.token = CAST(i.outcome ->> 'token' AS bigint)
      JOIN regional.observations AS o ON o.region = b.region AND o.token = b.token
     WHERE i.region = :region AND i.step = 'release' AND o.state = 'stopped'
       AND b.stop_requested_at IS NULL
     ORDER BY i.slot
""")


@asynccontextmanager
async def two_regions(plane: Plane, *hangs: str) -> AsyncGenerator[Any]:
    """The agent of east ends when the caller says so; what runs on these nodes does not end."""
    await plane.load(small_fleet("east", "west", nodes=4, cpu=8))
    await sign_as_test(plane)
    hang(plane, hangs)
    await plane.host(WEST, delays=QUICKLY)
    async with plane.short_lived(EAST) as agents:
        await plane.work(EAST, WEST)
        yield agents


def hang(plane: Plane, nodes: Collection[str] = ()) -> None:
    set_faults(plane, *({**GATE, "node": node} for node in nodes))


@regional_transaction("durable_reader", "read which slots ran to their end")
async def ends_in(connection: AsyncConnection, region: RegionId) -> list[int]:
    return list((await connection.execute(_DONE, {"region": region})).scalars())


async def slots_of(plane: Plane) -> dict[RegionId, tuple[int, ...]]:
    found = await read_workload(plane.databases, RISK, SCORE)
    assert found is not None
    return dict(found.share)


async def is_complete(plane: Plane, count: int) -> WorkloadStatus:
    """Every slot is done, and was done once."""
    status = await done(plane)
    assert (status.phase, status.completed, status.given_up) == ("complete", count, 0)
    ends = [slot for region in (EAST, WEST) for slot in await ends_in(plane.databases, region)]
    assert sorted(ends) == list(range(count))
    await plane.no_invariant_is_broken()
    return status


async def test_what_a_lost_region_has_not_done_is_done_where_the_rest_is_done_already(
    plane: Plane,
) -> None:
    async with two_regions(plane, "east-*") as agents:
        await plane.durable.apply(job(4))
        await has_completed(plane, 2)
        assert await ends_in(plane.databases, WEST) == list((await slots_of(plane))[WEST])
        await agents.aclose()
        hang(plane)
        await declare(plane)
        await is_complete(plane, 4)


async def test_what_another_region_does_for_a_job_does_not_go_back(plane: Plane) -> None:
    """Half of what came to west is done there, half runs there, when east is back."""
    async with two_regions(plane, "east-*") as agents:
        await plane.durable.apply(job(8, spread={"max_per_node": 2}))
        await has_completed(plane, 4)
        await agents.aclose()
        hang(plane, ["west-general-000[01]"])
        await declare(plane)
        halfway = await has_completed(plane, 6)
        assert halfway.phase != "complete"
        await reached(plane, RecoveryPhase.HOLDING)
        async with plane.agent(EAST):
            await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
            ended = await reached(plane, RecoveryPhase.FAILED_BACK)
            assert ended.findings == ()
            [move] = await read_moves(plane.databases, LOST)
            assert move.returned_at is None, "a job does not go back"
            assert (await slots_of(plane)).get(EAST, ()) == ()
            status = await plane.durable.status("risk", "score")
            assert (status.phase, status.completed) == (halfway.phase, 6)
            hang(plane)
            await is_complete(plane, 8)


async def test_a_region_that_comes_back_has_done_what_was_done_again_and_it_counts_once(
    plane: Plane,
) -> None:
    """Of what east had done nothing is known while it is away; distinct slots are counted."""
    async with two_regions(plane, "east-general-000[01]", "west-general-000[01]") as agents:
        await plane.durable.apply(job(8, spread={"max_per_node": 1}, job={"parallelism": 8}))
        await has_completed(plane, 4)
        await agents.aclose()
        await declare(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        hang(plane)
        await is_complete(plane, 8)


async def test_a_job_is_done_although_the_region_of_a_part_that_is_done_is_lost(
    plane: Plane,
) -> None:
    """What east has done stays done there; nothing of it is waited for."""
    async with two_regions(plane, "west-*") as agents:
        await plane.durable.apply(job(6, job={"parallelism": 3}))
        await has_completed(plane, 3)
        kept = (await slots_of(plane))[EAST]
        await agents.aclose()
        await declare(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        assert (await slots_of(plane))[EAST] == kept
        hang(plane)
        await is_complete(plane, 6)


async def test_a_job_that_is_deleted_while_it_moves_leaves_nothing(plane: Plane) -> None:
    async with two_regions(plane, "east-*", "west-*") as agents:
        await plane.durable.apply(job(4))

        async def runs() -> bool:
            return len(await plane.bindings(EAST)) == 2

        await until(runs, "east runs its part")
        await agents.aclose()
        await declare(plane)
        await plane.durable.delete("risk", "score", reason="not wanted any more")
        await plane.durable.wait("risk", "score", until="deleted", within_seconds=180)
        assert await plane.bindings(EAST, WEST) == {}
        await plane.no_invariant_is_broken()

"""A worker is killed, or its answer lost, after every step of a recovery: it ends all the same."""

from pathlib import Path

import pytest

from durable.authority.operators.changes import set_key
from durable.authority.quota.budgets import read_budget
from durable.authority.recovery.recoveries import read_moves
from durable.failpoints import Failpoint
from durable.model.operators.signature import public_key_of
from durable.model.recovery.recoveries import RecoveryPhase
from durable.temporal.signing import signer_of
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import EAST, WEST, manifest, small_fleet
from tests.workflows.processes import WORKER, process
from tests.workflows.test_killed_workers import ACTIONS, insist, revive
from tests.workflows.test_recovery import (
    CRITICAL,
    KEPT,
    KEY,
    LOST,
    TEST,
    declare,
    keep_headroom,
    only_shares_run,
    reached,
    share,
    tokens,
    whole,
)

OUT = (
    Failpoint.AFTER_RECOVERY_ORDER,
    Failpoint.AFTER_FENCE,
    Failpoint.AFTER_DRAW_BUDGETS,
    Failpoint.AFTER_MOVE_OUT,
    Failpoint.AFTER_RELEASE_FENCED,
)
BACK = (Failpoint.AFTER_REOPEN, Failpoint.AFTER_MOVE_BACK, Failpoint.AFTER_END_DRAWS)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_recovery_ends_whatever_dies_meanwhile(
    make_plane: MakePlane, tmp_path: Path, action: str
) -> None:
    plane = await make_plane()
    await plane.load(small_fleet("east", "west", nodes=2, cpu=8))
    await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
    plane.durable.signer = await signer_of(plane.databases, KEY)
    armed = ",".join(f"{point}={action}:{tmp_path / point}" for point in (*OUT, *BACK))
    await plane.host(WEST)
    await keep_headroom(plane)
    async with plane.short_lived(EAST):
        with process(plane.settings, WORKER):
            await plane.durable.apply(manifest(replicas=4, **CRITICAL))
            await plane.durable.wait("risk", "api", within_seconds=180)
            assert await share(plane) == {EAST: 2, WEST: 2}
    with process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: declare(plane))
        await whole(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        assert await plane.bindings(EAST) == {}
        async with plane.agent(EAST):
            who = {"reason": "back", "request_id": "back"}
            await insist(lambda: plane.durable.recoveries.fail_back(EAST, **who))
            await reached(plane, RecoveryPhase.FAILED_BACK)
            await plane.durable.wait("risk", "api", within_seconds=180)
            for_recovery = await read_budget(plane.databases, WEST, KEPT)
            assert for_recovery is not None
            assert for_recovery.incident is None
        reviving.cancel()
    assert all((tmp_path / point).exists() for point in (*OUT, *BACK)), "each point was met"
    assert await share(plane) == {EAST: 2, WEST: 2}
    moves = await read_moves(plane.databases, LOST)
    assert [len(one.slots) for one in moves] == [2]
    await plane.no_invariant_is_broken()


@pytest.mark.soak
async def test_originals_survive_whatever_dies_meanwhile(
    make_plane: MakePlane, tmp_path: Path
) -> None:
    """Their region was only cut off: its agents run on, and so does what they run."""
    plane = await make_plane()
    await plane.load(small_fleet("east", "west", nodes=2, cpu=8))
    await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
    plane.durable.signer = await signer_of(plane.databases, KEY)
    points = (
        Failpoint.AFTER_FENCE,
        Failpoint.AFTER_MOVE_OUT,
        Failpoint.AFTER_RELEASE_FENCED,
        *BACK,
    )
    armed = ",".join(f"{point}=kill:{tmp_path / point}" for point in points)
    run = {"on_disconnect": "keep", "on_reconnect": "original"}
    await plane.host(EAST, WEST)
    with process(plane.settings, WORKER) as worker:
        await plane.durable.apply(manifest(replicas=4, run=run, **CRITICAL))
        await plane.durable.wait("risk", "api", within_seconds=180)
        before = await tokens(plane, EAST)
        assert len(before) == 2
        worker.kill()
    with process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: declare(plane))
        await whole(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        assert await tokens(plane, EAST) == before
        await plane.no_invariant_is_broken()
        who = {"reason": "back", "request_id": "back"}
        await insist(lambda: plane.durable.recoveries.fail_back(EAST, **who))
        await reached(plane, RecoveryPhase.FAILED_BACK)
        await only_shares_run(plane)
        reviving.cancel()
    assert all((tmp_path / point).exists() for point in points), "each point was met"
    assert await tokens(plane, EAST) == before
    await plane.no_invariant_is_broken()

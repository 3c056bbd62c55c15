"""Temporal and PostgreSQL are killed in the middle of a recovery: it ends all the same, once."""

from pathlib import Path

import pytest

from durable.authority.audit.events import read_events
from durable.authority.operators.changes import set_key
from durable.authority.recovery.recoveries import recovery_of_incident
from durable.failpoints import Failpoint
from durable.model.operators.signature import public_key_of
from durable.model.recovery.recoveries import RecoveryPhase
from durable.temporal.signing import signer_of
from tests.chaos.conftest import World
from tests.workflows.plane import EAST, WEST, manifest, small_fleet, until
from tests.workflows.processes import WORKER, Process, process
from tests.workflows.test_killed_workers import insist
from tests.workflows.test_recovery import (
    CRITICAL,
    KEY,
    LOST,
    TEST,
    declare,
    reached,
    share,
    whole,
)

pytestmark = [pytest.mark.server, pytest.mark.soak]


async def killed_at(worker: Process, fired: Path) -> None:
    is_fired = fired.exists

    async def has_died() -> bool:
        return is_fired() and worker.exit_code is not None

    await until(has_died, f"the worker is killed at {fired.name}")


@pytest.mark.parametrize(
    "world", [small_fleet("east", "west", nodes=2, cpu=8)], indirect=True, ids=["two-regions"]
)
async def test_temporal_and_postgres_killed_while_work_moves(world: World, tmp_path: Path) -> None:
    plane = world.plane
    await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
    plane.durable.signer = await signer_of(plane.databases, KEY)
    await plane.host(WEST)
    async with plane.short_lived(EAST):
        with process(plane.settings, WORKER):
            await plane.durable.apply(manifest(replicas=4, **CRITICAL))
            await plane.durable.wait("risk", "api", within_seconds=180)
    fenced, moved = (tmp_path / one for one in (Failpoint.AFTER_FENCE, Failpoint.AFTER_MOVE_OUT))
    armed = ",".join(f"{point.name}=kill:{point}" for point in (fenced, moved))
    with process(plane.settings, WORKER, armed) as worker:
        declaring = plane.background(insist(lambda: declare(plane)))
        await killed_at(worker, fenced)
        world.temporal.kill()
        known = await recovery_of_incident(plane.databases, LOST.incident)
        assert known is not None
        assert known.phase is RecoveryPhase.CONFIRMED
        await world.temporal.start()
        worker.start(armed)
        await killed_at(worker, moved)
        world.postgres.kill()
        world.postgres.restart()
        assert await share(plane) == {WEST: 4}
        worker.start()
        await declaring
        [api] = await whole(plane)
        assert len(api.slots) == 2
        await reached(plane, RecoveryPhase.HOLDING)
        await plane.durable.recoveries.settle(EAST, reason="stay", request_id="stay")
        assert (await reached(plane, RecoveryPhase.SETTLED)).findings == ()
    assert await plane.bindings(EAST) == {}
    assert len(await plane.bindings(WEST)) == 4
    events, _ = await read_events(plane.databases, last=500)
    moves = [one for one in events if one.action == "move out of region"]
    assert len(moves) == 1
    await plane.no_invariant_is_broken()

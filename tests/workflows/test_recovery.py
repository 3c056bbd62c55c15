"""Work moves out of a lost region, critical work first, and back when the region is."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.db.clock import read_time
from durable.authority.fleet.policies import publish_policy
from durable.authority.operators.changes import set_key
from durable.authority.quota.budgets import read_budget, set_budget
from durable.authority.quota.quotas import set_quota
from durable.authority.recovery.recoveries import (
    list_recoveries,
    newest_recovery,
    read_moves,
    recovery_of_incident,
)
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.suspicions import record_suspicion
from durable.authority.workloads.rows import read_workload
from durable.model.ids import ActorId, BudgetId, RegionId, TenantId, WorkloadName
from durable.model.operators.signature import public_key_of
from durable.model.policy.rollout import PolicyPhase
from durable.model.recovery.detection import LossKind, LossVerdict, RegionSigns, Suspicion
from durable.model.recovery.recoveries import Recovery, RecoveryKey, RecoveryPhase, WorkloadMove
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import RegionState
from durable.scheduling.policies import first_policy
from durable.signals.names import RECOVERY
from durable.signals.starting import recovery_options
from durable.temporal.signing import Signer, signer_of
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.serving_log import ServingLog

TEST = ActorId("test")
KEY = Ed25519PrivateKey.generate()
LOST = RecoveryKey(region=EAST, epoch=2)
KEPT = BudgetId("headroom")
CRITICAL: dict[str, Any] = {"priority": 900}
SECONDS = 300.0


@asynccontextmanager
async def serving(plane: Plane, *manifests: dict[str, Any], **fleet: Any) -> AsyncGenerator[Any]:
    """Two regions with their workers; the agent of east ends when the caller says so."""
    await plane.load(small_fleet("east", "west", **{"nodes": 3, "cpu": 8, **fleet}))
    await sign_as_test(plane)
    await plane.host(WEST)
    async with plane.short_lived(EAST) as agents:
        await plane.work(EAST, WEST)
        for one in manifests:
            await plane.durable.apply(one)
        for one in manifests:
            await plane.durable.wait("risk", one["name"])
        yield agents


async def sign_as_test(plane: Plane) -> None:
    """A recovery is ordered by somebody with a key."""
    await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
    plane.durable.signer = await signer_of(plane.databases, KEY)


async def reached(plane: Plane, phase: RecoveryPhase, key: RecoveryKey = LOST) -> Recovery:
    async def is_there() -> Recovery | None:
        found = await recovery_of_incident(plane.databases, key.incident)
        return found if found is not None and found.phase is phase else None

    found = await until(is_there, f"{key} is {phase}", seconds=SECONDS)
    assert found is not None
    return found


async def whole(plane: Plane, key: RecoveryKey = LOST) -> list[WorkloadMove]:
    async def is_whole() -> list[WorkloadMove] | None:
        moves = await read_moves(plane.databases, key)
        return moves if moves and all(one.whole_at is not None for one in moves) else None

    found = await until(is_whole, f"everything that {key} moved serves", seconds=SECONDS)
    assert found is not None
    return found


async def share(plane: Plane, name: str = "api") -> dict[RegionId, int]:
    found = await read_workload(plane.databases, TenantId("risk"), WorkloadName(name))
    assert found is not None
    return {region: len(slots) for region, slots in found.share.items()}


async def keep_headroom(plane: Plane, cores: int = 1) -> None:
    """A part of west, for an hour."""
    expires_at = await read_time(plane.databases) + timedelta(hours=1)
    amount = Resources.of(1_000, 1_024, 0) * cores
    await set_budget(plane.databases, WEST, KEPT, amount, expires_at=expires_at, actor=TEST)


async def recover_by(plane: Plane, **rules: Any) -> None:
    """Puts another recovery policy in force."""
    spec = {**first_policy().model_dump(mode="json"), "recovery": rules}
    await publish_policy(plane.databases, 2, spec, TEST, phase=PolicyPhase.EVERYWHERE)


async def declare(plane: Plane, **who: Any) -> RecoveryKey:
    given = {"reason": "INC-42", "request_id": "INC-42", **who}
    return await plane.durable.recoveries.declare(EAST, **given)


async def test_a_lost_region_is_emptied_and_gets_its_work_back(plane: Plane) -> None:
    jobs = manifest("usual", replicas=4, priority=500)
    async with serving(plane, manifest(replicas=6, **CRITICAL), jobs) as agents:
        assert await share(plane) == {EAST: 3, WEST: 3}
        await agents.aclose()
        assert await declare(plane) == LOST
        moves = await whole(plane)
        assert [one.workload for one in moves] == ["api", "usual"]
        assert moves[0].recovered_at is not None
        assert moves[0].moved_at is not None
        assert moves[1].moved_at is not None
        assert moves[0].moved_at <= moves[1].moved_at, "critical work first"
        assert await share(plane) == {WEST: 6}
        assert await plane.bindings(EAST) == {}
        await plane.no_invariant_is_broken()
        recovery = await reached(plane, RecoveryPhase.HOLDING)
        assert recovery.moved_at is not None
        log = ServingLog(plane)
        async with plane.agent(EAST):
            await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
            ended = await reached(plane, RecoveryPhase.FAILED_BACK)
            assert ended.findings == ()
            assert await share(plane) == {EAST: 3, WEST: 3}
            for name in ("api", "usual"):
                await plane.durable.wait("risk", name)
            lowest = log.lowest()
            assert lowest["api"] >= 6, "its allowance is a tenth: none"
            assert lowest["usual"] >= 3, "its allowance is a quarter"
            found = await read_workload(plane.databases, TenantId("risk"), WorkloadName("api"))
            assert found is not None
            assert found.incident is None
            await plane.no_invariant_is_broken()
    taken = await steps_taken(plane)
    usual = ["evidence", "fence", "move out", "measure", "hold", "open", "move back", "close"]
    assert [step for step in dict.fromkeys(taken) if step in usual] == usual


async def steps_taken(plane: Plane) -> list[str]:
    """The summaries of a recovery's steps as the Temporal UI shows them, without its orders."""
    taken: list[str] = []
    client: Any = plane.durable.client
    async for run in client.list_workflows(f"WorkflowId = '{LOST}'"):
        handle = client.get_workflow_handle(str(LOST), run_id=run.run_id)
        history = await handle.fetch_history()
        summaries = [
            json.loads(event.user_metadata.summary.data)
            for event in history.events
            if event.HasField("marker_recorded_event_attributes")
        ]
        taken = [*summaries, *taken]
    return taken


async def test_work_goes_back_step_by_step_where_the_quota_leaves_nothing_beside_it(
    plane: Plane,
) -> None:
    async with serving(plane, manifest(replicas=10, **CRITICAL)) as agents:
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        hard = Resources.of(10 * 500, 10 * 256)
        await set_quota(plane.databases, TenantId("risk"), hard=hard, actor=TEST)
        log = ServingLog(plane)
        async with plane.agent(EAST):
            await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
            assert (await reached(plane, RecoveryPhase.FAILED_BACK)).findings == ()
            assert await share(plane) == {EAST: 5, WEST: 5}
            await plane.durable.wait("risk", "api")
            assert log.lowest()["api"] >= 9, "its allowance is a tenth"
            await plane.no_invariant_is_broken()


async def test_moved_work_draws_on_recovery_budgets_that_are_closed_at_the_end(
    plane: Plane,
) -> None:
    async with serving(plane, manifest(replicas=4, **CRITICAL), nodes=1, cpu=2) as agents:
        # All that west has left is kept for recovery.
        await keep_headroom(plane)
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        drawn = await read_budget(plane.databases, WEST, KEPT)
        assert drawn is not None
        assert drawn.incident == LOST.incident
        assert drawn.used.cpu_millis == 1_000
        await plane.no_invariant_is_broken()
        await plane.durable.recoveries.settle(EAST, reason="stay", request_id="stay")
        settled = await reached(plane, RecoveryPhase.SETTLED)
        assert any("stay drawn" in finding for finding in settled.findings)
        closed = await read_budget(plane.databases, WEST, KEPT)
        assert closed is not None
        assert closed.incident is None


async def test_replicas_that_are_added_to_moved_work_are_ordinary_work(plane: Plane) -> None:
    async with serving(plane, manifest(replicas=4, **CRITICAL), nodes=1, cpu=4) as agents:
        await keep_headroom(plane, cores=2)
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        await plane.durable.scale("risk", "api", 6)
        await plane.durable.wait("risk", "api")
        assert await share(plane) == {WEST: 6}
        drawn = await read_budget(plane.databases, WEST, KEPT)
        assert drawn is not None
        assert drawn.used.cpu_millis == 1_000, "of the two replicas that were moved"
        await plane.no_invariant_is_broken()


async def test_without_enough_capacity_critical_work_goes_first_and_the_rest_says_why(
    plane: Plane,
) -> None:
    """Of two critical workloads the more important one is back; the other says what it lacks."""
    async with serving(
        plane,
        manifest("low", replicas=2, priority=10),
        manifest("wide", replicas=6, **CRITICAL),
        manifest("top", replicas=4, priority=1_000),
        nodes=1,
        cpu=4,
    ) as agents:
        # West has room for two replicas more.
        await recover_by(plane, moves_at_once=1)
        await agents.aclose()
        await declare(plane)
        await reached(plane, RecoveryPhase.HOLDING)

        async def says_why() -> bool:
            moves = {str(one.workload): one for one in await read_moves(plane.databases, LOST)}
            late = bool(moves["low"].waits) and bool(moves["wide"].waits)
            return late and moves["top"].recovered_at is not None

        await until(says_why, "the first serves, and the rest says what it waits for")
        progress = (await plane.durable.recoveries.status(LOST)).progress
        assert progress is not None
        assert (progress.report.critical, progress.report.recovered) == (2, 1)
        assert not progress.report.is_met
        await plane.no_invariant_is_broken()


async def test_a_loss_that_lasts_is_found_and_recovered_from_without_a_word(plane: Plane) -> None:
    async with serving(plane, manifest(replicas=4, **CRITICAL)) as agents:
        await recover_by(plane, grace_seconds=1, lone_host_grace_seconds=1, agents_grace_seconds=1)
        await agents.aclose()
        [move] = await whole(plane)
        assert move.recovered_at is not None
        found = await reached(plane, RecoveryPhase.HOLDING)
        assert str(found.actor) == "controller:recovery"
        assert found.evidence["verdict"]["kind"] == "region lost"
        assert found.lost_at < found.started_at
        assert await share(plane) == {WEST: 4}
        await plane.no_invariant_is_broken()


async def test_two_declarations_of_one_loss_are_one_recovery(plane: Plane) -> None:
    async with serving(plane, manifest(replicas=2)) as agents:
        await agents.aclose()
        first = await declare(plane)
        second = await declare(plane, request_id="another")
        assert first == second
        await whole(plane)


async def test_a_veto_keeps_a_region_from_being_fenced_and_comes_too_late_afterwards(
    plane: Plane,
) -> None:
    async with serving(plane, manifest(replicas=2)) as agents:
        await plane.durable.recoveries.veto(EAST, reason="planned", request_id="veto")
        assert (await reached(plane, RecoveryPhase.VETOED)).ended_at is not None
        assert await share(plane) == {EAST: 1, WEST: 1}
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        with pytest.raises(RefusedError) as refused:
            await plane.durable.recoveries.veto(EAST, reason="no", request_id="late")
        assert refused.value.refusal.code is RefusalCode.WRONG_STATE


async def test_a_loss_is_declared_only_with_a_signature(plane: Plane) -> None:
    async with serving(plane):
        plane.durable.signer = Signer()
        with pytest.raises(RefusedError) as refused:
            await declare(plane)
        assert refused.value.refusal.code is RefusalCode.SIGNATURE_MISSING
        assert await newest_recovery(plane.databases, EAST) is None


async def test_a_refused_message_about_a_blip_does_not_cut_its_grace_short(plane: Plane) -> None:
    async with serving(plane):
        now = await read_time(plane.databases)
        await recover_by(plane, grace_seconds=3_600, calm_seconds=3_600)
        lost = LossVerdict(
            region=EAST, kind=LossKind.REGION, sentence="silent", signs=RegionSigns(region=EAST)
        )
        blip = Suspicion(region=EAST, epoch=1, since=now, lost_at=now, verdict=lost)
        assert await record_suspicion(plane.databases, blip, TEST)
        plane.durable.signer = Signer()
        for order in (plane.durable.recoveries.confirm, plane.durable.recoveries.veto):
            with pytest.raises(RefusedError) as refused:
                await order(EAST, reason="a blip", request_id="blip")
            assert refused.value.refusal.code is RefusalCode.SIGNATURE_MISSING

        async def has_looked() -> str | None:
            progress = (await plane.durable.recoveries.status(LOST)).progress
            return None if progress is None else progress.waits_for

        assert await until(has_looked, "the recovery has looked") is not None
        assert (await reached(plane, RecoveryPhase.SUSPECTED)).fenced_at is None
        assert (await read_fact(plane.databases, EAST)).epoch == 1


async def test_a_second_region_that_is_lost_meanwhile_takes_no_work_and_has_its_own_recovery(
    plane: Plane,
) -> None:
    south = RegionId("south")
    await plane.load(small_fleet("east", "south", "west", nodes=2, cpu=8))
    await set_key(plane.databases, TEST, public_key_of(KEY), actor=TEST, reason="a test")
    plane.durable.signer = await signer_of(plane.databases, KEY)
    await plane.host(WEST)
    async with plane.short_lived(EAST, south):
        await plane.work(EAST, south, WEST)
        bound: dict[str, Any] = {"requirements": {"regions": ["east", "south"]}}
        for one in (manifest(replicas=6, **CRITICAL), manifest("bound", **bound)):
            await plane.durable.apply(one)
            await plane.durable.wait("risk", one["name"])
    await declare(plane)
    await plane.durable.recoveries.declare(south, reason="INC-43", request_id="INC-43")
    second = RecoveryKey(region=south, epoch=2)
    for key in (LOST, second):
        await reached(plane, RecoveryPhase.HOLDING, key)

    async def is_honest() -> bool:
        moves = [
            *await read_moves(plane.databases, LOST),
            *await read_moves(plane.databases, second),
        ]
        stuck = {one.waits for one in moves if one.workload == "bound"}
        done = [one.whole_at is not None for one in moves if one.workload == "api"]
        return all(done) and any("which is lost" in why for why in stuck)

    await until(is_honest, "api serves in west, and what may run nowhere says so", seconds=SECONDS)
    assert await share(plane) == {WEST: 6}
    await plane.no_invariant_is_broken()


async def test_by_policy_a_region_that_stays_well_gets_its_work_back_without_a_word(
    plane: Plane,
) -> None:
    async with serving(plane, manifest(replicas=4, **CRITICAL)) as agents:
        await recover_by(plane, failback="automatic", calm_seconds=1)
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        async with plane.agent(EAST):
            ended = await reached(plane, RecoveryPhase.FAILED_BACK)
            assert ended.findings == ()
            assert str(ended.actor) == "controller:recovery"
            assert await share(plane) == {EAST: 2, WEST: 2}
            await plane.durable.wait("risk", "api")
            await plane.no_invariant_is_broken()


async def test_a_region_that_is_lost_again_before_it_has_its_work_back_gets_all_of_it_in_the_end(
    plane: Plane,
) -> None:
    """Lost, open again, and lost again: the second recovery ends the first, and inherits it."""
    again = RecoveryKey(region=EAST, epoch=3)
    async with serving(plane, manifest(replicas=6, **CRITICAL)) as agents:
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        # Nobody is there to take it back: the region is open, and its work is elsewhere.
        await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")

        async def is_open() -> bool:
            return (await read_fact(plane.databases, EAST)).state is RegionState.OPEN

        await until(is_open, "east is open again")
        assert await declare(plane, request_id="lost-again") == again
        assert (await reached(plane, RecoveryPhase.SUPERSEDED)).findings == ()
        await reached(plane, RecoveryPhase.HOLDING, again)
        assert await share(plane) == {WEST: 6}
        async with plane.agent(EAST):
            await plane.durable.recoveries.fail_back(EAST, reason="now", request_id="now")
            await reached(plane, RecoveryPhase.FAILED_BACK, again)
            assert await share(plane) == {EAST: 3, WEST: 3}
            await plane.durable.wait("risk", "api")
            await plane.no_invariant_is_broken()


async def test_a_region_that_comes_and_goes_while_it_is_fenced_is_one_loss(plane: Plane) -> None:
    async with serving(plane, manifest(replicas=4, **CRITICAL)) as agents:
        # Nothing goes back before it was well for an hour.
        await recover_by(plane, failback="automatic", calm_seconds=3_600)
        await agents.aclose()
        await declare(plane)
        await whole(plane)

        async def looks_well(expected: bool) -> bool:
            found = await recovery_of_incident(plane.databases, LOST.incident)
            assert found is not None
            return (found.back_since is not None) is expected

        for _ in range(2):
            async with plane.short_lived(EAST):
                await until(lambda: looks_well(True), "east is back")
            await until(lambda: looks_well(False), "east is gone again")
        assert await declare(plane, request_id="another") == LOST
        assert [one.key for one in await list_recoveries(plane.databases, ended=True)] == [LOST]
        assert await share(plane) == {WEST: 4}
        await plane.no_invariant_is_broken()


async def test_a_recovery_of_a_region_that_does_not_exist_ends_at_once(plane: Plane) -> None:
    async with serving(plane):
        client: Any = plane.durable.client
        nowhere = RecoveryKey(region=RegionId("nowhere"), epoch=2)
        handle = await client.start_workflow(RECOVERY, **recovery_options(nowhere))
        async with asyncio.timeout(SECONDS):
            await handle.result()
        status = await plane.durable.recoveries.status(nowhere)
        assert "There is no region nowhere" in status.unreachable


async def tokens(plane: Plane, region: RegionId) -> dict[int, int]:
    return {slot: int(one.token) for (_, slot), one in (await plane.bindings(region)).items()}


async def only_shares_run(plane: Plane) -> None:
    """Once nothing runs beside what the shares want, and all of that does."""

    async def is_so() -> bool:
        found = await read_workload(plane.databases, TenantId("risk"), WorkloadName("api"))
        assert found is not None
        runs = {region: set(await tokens(plane, region)) for region in (EAST, WEST)}
        return all(slots == set(found.share.get(region, ())) for region, slots in runs.items())

    await until(is_so, "what runs is what the shares want", seconds=SECONDS)


@pytest.mark.parametrize("stays", ["original", "replacement"])
async def test_a_region_that_was_only_cut_off_gets_its_work_back_with_the_copy_that_the_spec_names(
    plane: Plane, stays: str
) -> None:
    """Its agents run on: the original is never touched, or makes way for its replacement."""
    run = {"on_disconnect": "keep", "on_reconnect": stays}
    async with serving(plane, manifest(replicas=6, run=run, **CRITICAL)):
        before = await tokens(plane, EAST)
        assert len(before) == 3
        await declare(plane)
        await whole(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        assert await share(plane) == {WEST: 6}
        assert await tokens(plane, EAST) == (before if stays == "original" else {})
        assert len(await tokens(plane, WEST)) == 6
        await plane.no_invariant_is_broken()
        await plane.durable.recoveries.fail_back(EAST, reason="back", request_id="back")
        ended = await reached(plane, RecoveryPhase.FAILED_BACK)
        assert ended.findings == ()
        assert await share(plane) == {EAST: 3, WEST: 3}
        await only_shares_run(plane)
        assert (await tokens(plane, EAST) == before) is (stays == "original")
        await plane.durable.wait("risk", "api")
        await plane.no_invariant_is_broken()


async def test_an_original_makes_way_when_its_work_stays_where_it_was_moved_to(
    plane: Plane,
) -> None:
    run = {"on_disconnect": "keep", "on_reconnect": "original"}
    async with serving(plane, manifest(replicas=4, run=run, **CRITICAL)):
        before = await tokens(plane, EAST)
        await declare(plane)
        await whole(plane)
        await reached(plane, RecoveryPhase.HOLDING)
        assert await tokens(plane, EAST) == before
        await plane.durable.recoveries.settle(EAST, reason="stay", request_id="stay")
        await reached(plane, RecoveryPhase.SETTLED)
        assert await share(plane) == {WEST: 4}
        await only_shares_run(plane)
        await plane.durable.wait("risk", "api")
        await plane.no_invariant_is_broken()

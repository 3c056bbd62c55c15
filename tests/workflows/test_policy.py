"""A revision comes into force region by region, is watched, and is taken back by its state."""

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError

from durable.authority.policies.phases import watch_region
from durable.authority.policies.region_reads import read_in_force
from durable.authority.policies.rows import read_rollout
from durable.authority.reads.claims import read_claims
from durable.controllers.reconciler import Reconciler
from durable.drills import policy_rollback
from durable.drills.world import World as Rehearsal
from durable.model.ids import RegionId
from durable.model.policy.policy import Guardrails, Policy
from durable.model.policy.rollout import PolicyPhase, PolicyProgress
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import BindingState, PolicyState
from durable.scheduling.policies import first_policy
from durable.signals.names import POLICY, policy_id
from durable.signals.starting import policy_options
from tests.authority.policies.world import have_operators
from tests.authority.world import TEST, World
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.serving_log import ServingLog
from tests.workflows.test_replay import SAVES, save
from tests.workflows.test_trouble import set_faults

AT_ONCE = Guardrails(bake_seconds=0, step_seconds=0)
WATCHED = Guardrails(bake_seconds=3_600, step_seconds=3_600)
WHO: dict[str, Any] = {"reason": "INC-42"}


def policy(guardrails: Guardrails = AT_ONCE, **fields: Any) -> Policy:
    """Packs instead of spreading, so that decisions differ from those of revision 1."""
    given = {"weights": {"packing": 10.0}, "choice_band": 0.0, **fields}
    return first_policy().model_copy(update={**given, "guardrails": guardrails})


async def ready(plane: Plane, *regions: RegionId) -> Plane:
    await plane.load(small_fleet(*map(str, regions or (EAST,)), nodes=4, cpu=8))
    have_operators(World(plane.databases), TEST)
    return await (await plane.host(*regions)).work(*regions)


async def publish(plane: Plane, guardrails: Guardrails = AT_ONCE, **fields: Any) -> int:
    return await plane.durable.policies.publish(policy(guardrails, **fields), reason="pack")


async def in_force(plane: Plane, region: RegionId = EAST) -> dict[int, PolicyState]:
    return await read_in_force(plane.databases, region)


async def came_to(plane: Plane, phase: PolicyPhase, revision: int = 2) -> PolicyProgress:
    """As its own workflow reports it."""

    async def progress() -> PolicyProgress | None:
        found = (await plane.durable.policies.status(revision)).progress
        return found if found is not None and found.rollout.phase is phase else None

    reached = await until(progress, f"revision {revision} is {phase}")
    assert reached is not None
    return reached


async def revisions_of(plane: Plane, *regions: RegionId) -> set[int]:
    """Under which revisions the live claims were decided."""
    return {
        claim.policy_revision
        for region in regions or (EAST,)
        for claim in await read_claims(plane.databases, region)
    }


async def test_a_revision_is_compared_promoted_region_by_region_and_rolled_back(
    plane: Plane,
) -> None:
    await ready(plane, EAST, WEST)
    await plane.durable.apply(manifest("api", replicas=4))
    await plane.durable.wait("risk", "api")
    assert await publish(plane) == 2

    async def shadows() -> PolicyProgress | None:
        progress = (await plane.durable.policies.status(2)).progress
        return progress if progress is not None and progress.shadows else None

    compared = await until(shadows, "recent decisions were made again")
    assert compared is not None
    assert sum(one.decisions for one in compared.shadows) >= 2
    assert sum(one.unrepeatable for one in compared.shadows) == 0
    moved = [one for report in compared.shadows for one in report.workloads]
    assert any(one.moved for one in moved), "packing puts replicas of one workload together"
    assert await in_force(plane) == {1: PolicyState.ACTIVE}, "it changes nothing before a promote"

    await plane.durable.policies.promote(2, request_id="up", **WHO)
    await came_to(plane, PolicyPhase.EVERYWHERE)
    for region in (EAST, WEST):
        assert await in_force(plane, region) == {2: PolicyState.ACTIVE}
    await plane.durable.apply(manifest("more", replicas=4))
    await plane.durable.wait("risk", "more")
    assert await revisions_of(plane, EAST, WEST) == {1, 2}

    await plane.durable.policies.roll_back(2, request_id="down", **WHO)
    back = await came_to(plane, PolicyPhase.ROLLED_BACK)
    assert {(str(one.workload), one.goes_on) for one in back.report} == {("more", 2)}
    for region in (EAST, WEST):
        assert await in_force(plane, region) == {1: PolicyState.ACTIVE}
    assert (await read_rollout(plane.databases, 1)).phase is PolicyPhase.EVERYWHERE
    await plane.no_invariant_is_broken()
    if SAVES:
        await save(plane, policy_id(2))


async def test_reroll_replaces_what_the_bad_revision_placed_step_by_step_and_nothing_else(
    plane: Plane,
) -> None:
    set_faults(plane, {"kind": "never_ready", "workload": "risk/starting"})
    await ready(plane)
    await plane.durable.apply(manifest("good", replicas=2))
    await plane.durable.wait("risk", "good")
    good = {slot: one.token for (_, slot), one in (await plane.bindings()).items()}
    await publish(plane)
    await plane.durable.policies.promote(2, request_id="up", **WHO)
    await came_to(plane, PolicyPhase.EVERYWHERE)
    log = ServingLog(plane)
    # One of four may be down by choice, of critical work none, and one may be added.
    await plane.durable.apply(manifest("bad", replicas=4))
    await plane.durable.apply(manifest("vital", replicas=4, priority=900))
    await plane.durable.apply(manifest("starting", replicas=4))
    for name in ("bad", "vital"):
        await plane.durable.wait("risk", name)

    async def starts() -> bool:
        found = [one for (name, _), one in (await plane.bindings()).items() if name == "starting"]
        return [one.state for one in found] == [BindingState.RUNNING] * 4

    await until(starts, "the replicas of one workload run, and are not ready")
    await plane.durable.policies.roll_back(2, request_id="down", reroll=True, **WHO)
    back = await came_to(plane, PolicyPhase.ROLLED_BACK)
    assert {(str(one.workload), one.replaced) for one in back.report} == {
        ("bad", 4), ("vital", 4), ("starting", 4),
    }  # fmt: skip
    set_faults(plane)

    async def only_first() -> bool:
        return await revisions_of(plane) == {1}

    await until(only_first, "everything runs under revision 1")
    for name in ("bad", "vital", "starting"):
        await plane.durable.wait("risk", name)
        assert await most_claims(plane, name) <= 4 + 1, f"{name}: no more than the surge at once"
        replaced = Counter(slot for slot in await plane.started(name) if slot < 4)
        assert replaced == dict.fromkeys(range(4), 2), f"{name}: each of them once"
    assert log.fewest(4, "bad") >= 3
    assert log.fewest(4, "vital") == 4, "each is up before another is stopped"
    now = {s: one.token for (name, s), one in (await plane.bindings()).items() if name == "good"}
    assert now == good, "what another revision placed was not touched"
    await plane.no_invariant_is_broken()


async def most_claims(plane: Plane, name: str) -> int:
    """How many claims a workload had at once, at the version of the region with most of them."""
    claims = await read_claims(plane.databases, EAST, and_ended=True)
    mine = [one for one in claims if one.workload == name]
    return max(
        sum(
            one.created_version <= version and (one.freed_version or version + 1) > version
            for one in mine
        )
        for version in {one.created_version for one in mine}
    )


async def test_a_paused_revision_stays_in_its_canary_and_a_rollback_ends_it(plane: Plane) -> None:
    await ready(plane, EAST, WEST)
    await publish(plane, WATCHED)
    policies = plane.durable.policies
    await policies.promote(2, request_id="up", canary=WEST, **WHO)
    seen = await came_to(plane, PolicyPhase.CANARY)
    assert "west is watched until" in seen.waits_for
    assert await in_force(plane, WEST) == {1: PolicyState.ACTIVE, 2: PolicyState.CANARY}
    assert await in_force(plane, EAST) == {1: PolicyState.ACTIVE}
    await policies.pause(2, request_id="wait", after=seen.rollout.number, **WHO)
    with pytest.raises(RefusedError, match="test paused revision 2") as no:
        await policies.promote(2, request_id="late", after=seen.rollout.number, **WHO)
    assert no.value.refusal.code is RefusalCode.OVERTAKEN
    await policies.roll_back(2, request_id="down", **WHO)
    await came_to(plane, PolicyPhase.ROLLED_BACK)
    assert await in_force(plane, WEST) == {1: PolicyState.ACTIVE}


async def test_a_broken_guardrail_rolls_back_by_itself(plane: Plane) -> None:
    await ready(plane)
    await publish(plane, WATCHED)
    await plane.durable.policies.promote(2, request_id="up", **WHO)
    await came_to(plane, PolicyPhase.CANARY)
    one_per_node = {"cpu": "5", "memory": "1Gi"}
    await plane.durable.apply(manifest("huge", replicas=6, resources=one_per_node))
    back = await came_to(plane, PolicyPhase.ROLLED_BACK)
    assert back.rollout.actor == "controller:policy"
    assert "points more than before" in back.rollout.reason
    assert await in_force(plane) == {1: PolicyState.ACTIVE}


async def test_a_frozen_policy_is_not_promoted_and_can_be_rolled_back(plane: Plane) -> None:
    await ready(plane)
    await publish(plane, WATCHED)
    policies, overrides = plane.durable.policies, plane.durable.overrides
    frozen, _ = await overrides.create("policy-freeze", {}, reason="holidays")
    with pytest.raises(RefusedError, match="test froze the policy everywhere") as no:
        await policies.promote(2, request_id="up", **WHO)
    assert no.value.refusal.code is RefusalCode.POLICY_FROZEN
    await overrides.revoke(frozen.id, reason="back again")
    await policies.promote(2, request_id="up", **WHO)
    seen = await came_to(plane, PolicyPhase.CANARY)
    await overrides.create("policy-freeze", {}, reason="again")
    with pytest.raises(RefusedError, match="again"):
        await policies.promote(2, request_id="on", after=seen.rollout.number, **WHO)
    with pytest.raises(RefusedError, match="again"):
        await watch_region(plane.databases, seen.rollout, WEST, 0.0)
    await policies.roll_back(2, request_id="down", **WHO)
    await came_to(plane, PolicyPhase.ROLLED_BACK)


@pytest.mark.soak
async def test_the_drill_of_a_rollback_meets_every_expectation(plane: Plane) -> None:
    await ready(plane, EAST, WEST)
    await plane.durable.apply(manifest("api", replicas=2))
    await plane.durable.wait("risk", "api")
    seen = [one async for one in policy_rollback.run(Rehearsal(plane.durable, Path()))]
    assert len(seen) == 7
    assert [one for one in seen if not one.met] == []


async def test_a_terminated_workflow_goes_on_from_the_authority(plane: Plane) -> None:
    await ready(plane)
    await publish(plane, WATCHED)
    await plane.durable.policies.promote(2, request_id="up", **WHO)
    await came_to(plane, PolicyPhase.CANARY)
    await plane.durable.client.get_workflow_handle(policy_id(2)).terminate()
    reconciler = Reconciler(plane.durable.client, plane.databases)

    async def missing() -> bool:
        return policy_id(2) in (await reconciler.unmanaged(await reconciler.running())).ids

    await until(missing, "Temporal lists it no more")
    await reconciler.start(await reconciler.unmanaged(await reconciler.running()))
    assert (await came_to(plane, PolicyPhase.CANARY)).rollout.number == 1
    await plane.durable.policies.promote(2, request_id="on", after=1, **WHO)
    await plane.durable.policies.promote(2, request_id="on", after=1, **WHO)


async def test_a_comparison_that_fails_is_shown(plane: Plane) -> None:
    await ready(plane)
    with psycopg.connect(plane.databases.urls[0]) as owner:
        owner.execute("REVOKE UPDATE (shadows) ON global.policy_rollouts FROM durable_policy")
    await publish(plane)

    handle: Any = plane.durable.client.get_workflow_handle(policy_id(2))

    async def shown() -> bool:
        page = (await handle.query("__temporal_workflow_metadata")).current_details
        return "Could not compare" in page

    await until(shown, "the page says that it could not be compared")


WRONG_INPUTS: list[tuple[list[Any], str]] = [
    ([], "It has no payload"),
    (["two"], "Invalid input"),
    ([7], "Invalid input"),
    ([{}], 'Start it with {"revision": NUMBER}'),
    ([{"revision": "two"}], "revision: got 'two'"),
    ([{"revision": 2}], "is not the workflow of its input; start it as policy/2"),
    ([{"revision": 2, "memory": {}}], "is not the workflow of its input; start it as policy/2"),
]


async def test_a_workflow_that_is_started_with_a_wrong_input_fails_with_a_sentence(
    plane: Plane,
) -> None:
    await ready(plane)
    client: Any = plane.durable.client
    for number, (given, words) in enumerate(WRONG_INPUTS):
        options = {**policy_options(2), "id": f"policy/1{number}"}
        handle = await client.start_workflow(POLICY, args=given, **options)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert words in str(failed.value.cause), given


async def test_bad_messages_change_nothing_and_are_answered(plane: Plane) -> None:
    await ready(plane)
    await publish(plane)
    handle: Any = plane.durable.client.get_workflow_handle(policy_id(2))
    who = {"actor": "test", "reason": "INC-42", "request_id": "one"}
    for payload, words in (
        ({}, "actor"),
        ({**who, "to": "first"}, "to"),
        ({**who, "after": -1}, "after"),
        ({**who, "actor": "eve"}, "eve is not an operator"),
        ({**who, "to": 9}, "There is no policy revision 9"),
        ({**who, "to": 2}, "cannot go back to itself"),
    ):
        with pytest.raises(WorkflowUpdateFailedError) as no:
            await handle.execute_update("rollback", payload)
        assert words in str(no.value.cause), payload
    with pytest.raises(WorkflowUpdateFailedError) as no:
        await handle.execute_update("promote", {**who, "canary": "nowhere"})
    assert "There is no region nowhere" in str(no.value.cause)
    await handle.signal("promot", who)
    status = await plane.durable.policies.status(2)
    assert status.rejected_count == 8
    assert status.phase is PolicyPhase.SHADOW

    async def audited() -> bool:
        query = text(
            "SELECT count(*) FROM audit.events WHERE action LIKE 'reject message%'"
            " AND object = 'policy/2'"
        )
        async with plane.databases.at_global("durable_reader").begin() as connection:
            return (await connection.execute(query)).scalar_one() == 8

    await until(audited, "what was refused is in the audit")

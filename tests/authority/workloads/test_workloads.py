"""A workload is admitted once per request; its generation advances when what it runs differs."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.audit.chain import GLOBAL_CHAIN, verify_all
from durable.authority.audit.events import audit_message
from durable.authority.db.connection import Databases
from durable.authority.slots.assignment import FIRST_NUMBER, SlotOwner
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.workloads.admission import AdmissionRequest
from durable.authority.workloads.admission_queue import AdmissionResult, admit_workloads
from durable.authority.workloads.deletion import (
    finish_delete,
    finish_job,
    request_delete,
)
from durable.authority.workloads.rollouts import read_to_divide
from durable.authority.workloads.rows import list_workloads, read_workload
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.operators.rights import OrderAnswer
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.workload import AdmittedWorkload, Condition, WorkloadManifest, WorkloadSpec
from tests.authority.world import (
    API,
    BILLING,
    EAST,
    FIRST_DIVISION,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    workload_message,
)

SIZE = Resources.of(1000, 512)


def manifest(tenant: TenantId = RISK, **spec: Any) -> WorkloadManifest:
    values: dict[str, Any] = {"replicas": 3, "resources": SIZE, **spec}
    return WorkloadManifest(tenant=tenant, name=API, spec=WorkloadSpec(**values))


def all_in_east(replicas: int = 3) -> Any:
    def divide(_: AdmittedWorkload | None) -> Mapping[RegionId, tuple[int, ...]]:
        return {EAST: tuple(range(replicas))}

    return divide


async def apply(
    world: World, request: str, wanted: WorkloadManifest | None = None, actor: ActorId = TEST
) -> AdmittedWorkload:
    asked = wanted or manifest()
    return await admit_workload(
        world.databases,
        asked,
        request=request,
        actor=actor,
        divide=all_in_east(asked.spec.replicas),
    )


async def delete(world: World, request: str) -> OrderAnswer[AdmittedWorkload]:
    return await request_delete(world.databases, RISK, API, workload_message("delete", request))


async def bury(world: World, generation: int = 1) -> AdmittedWorkload:
    return await finish_delete(world.databases, RISK, API, generation=generation, actor=TEST)


async def give_up_all(world: World) -> None:
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.give_up(range(8), EAST, transfer="x")


async def audited(world: World) -> list[str]:
    query = text("SELECT action FROM audit.events WHERE object = 'workload/risk/api' ORDER BY at")
    async with world.databases.at_global("durable_reader").begin() as connection:
        return list((await connection.execute(query)).scalars())


# ── admission ───────────────────────────────────────────────────────────────────────────────────


async def test_what_was_admitted_is_read_back(ready_world: World) -> None:
    assert await read_workload(ready_world.databases, RISK, API) is None
    admitted = await apply(ready_world, "r1")
    assert (admitted.generation, admitted.share) == (1, {EAST: (0, 1, 2)})
    assert await read_workload(ready_world.databases, RISK, API) == admitted
    assert await audited(ready_world) == ["apply workload"]


async def test_a_request_that_is_sent_again_is_answered_the_same(ready_world: World) -> None:
    first = await apply(ready_world, "r1")
    await apply(ready_world, "r2", manifest(replicas=5))
    assert await apply(ready_world, "r1") == first
    now = await read_workload(ready_world.databases, RISK, API)
    assert now is not None
    assert now.spec.replicas == 5, "the old answer changes nothing"
    assert len(await audited(ready_world)) == 2


async def test_a_request_id_is_its_senders_own(ready_world: World) -> None:
    """Whoever else sends the same under it learns nothing, whatever rights they have."""
    await apply(ready_world, "r1")
    await delete(ready_world, "r2")
    eve = ActorId("eve")
    for other in (
        apply(ready_world, "r1", actor=eve),
        request_delete(ready_world.databases, RISK, API, workload_message("delete", "r2", eve)),
    ):
        with pytest.raises(RefusedError, match=f"was used by {TEST} for the (apply|delete)") as no:
            await other
        assert no.value.refusal.code is RefusalCode.KEY_CONFLICT


async def test_a_request_id_is_not_used_for_something_else(ready_world: World) -> None:
    await apply(ready_world, "r1")
    for other in (apply(ready_world, "r1", manifest(replicas=4)), delete(ready_world, "r1")):
        with pytest.raises(RefusedError, match="Request id r1 was used for the apply at 20") as no:
            await other
        assert no.value.refusal.code is RefusalCode.KEY_CONFLICT
    assert await audited(ready_world) == ["apply workload"]


async def test_one_request_fifty_times_at_once_is_one_admission(ready_world: World) -> None:
    url = ready_world.databases.urls[0]
    async with Databases(url) as here, Databases(url) as there:
        worlds = [World(databases) for databases in (here, there)]
        answers = await asyncio.gather(*(apply(worlds[n % 2], "r1") for n in range(50)))
    assert answers == [answers[0]] * 50
    assert await audited(ready_world) == ["apply workload"]


async def test_different_requests_at_once_take_turns(ready_world: World) -> None:
    url = ready_world.databases.urls[0]
    async with Databases(url) as here, Databases(url) as there:
        worlds = [World(databases) for databases in (here, there)]
        answers = await asyncio.gather(
            *(apply(worlds[n % 2], f"r{n}", manifest(run={"image": f"api:{n}"})) for n in range(10))
        )
    assert sorted(answer.generation for answer in answers) == list(range(1, 11))


@pytest.mark.parametrize(
    "scaled",
    [{"replicas": 7}, {"weights": {EAST: 2}}, {"minimum": 2}, {"deadlines": {"placed": "5m"}}],
)
async def test_a_scale_keeps_the_generation(ready_world: World, scaled: dict[str, Any]) -> None:
    await apply(ready_world, "r1")
    admitted = await apply(ready_world, "r2", manifest(**scaled))
    assert admitted.generation == 1
    assert admitted.spec == manifest(**scaled).spec
    assert await read_workload(ready_world.databases, RISK, API) == admitted


@pytest.mark.parametrize(
    ("changed", "generation"),
    [
        ({"spread": {"max_per_node": 1}}, 1),
        ({"prefers": {"disk": "ssd"}}, 1),
        ({"max_attempts": 9}, 1),
        ({"priority": 200}, 1),
        ({"weights": {EAST: 2}}, 2),
        ({"replicas": 4}, 2),
    ],
)
async def test_how_a_job_is_placed_and_retried_does_not_run_it_again(
    ready_world: World, changed: dict[str, Any], generation: int
) -> None:
    await apply(ready_world, "r1", manifest(kind="job"))
    admitted = await apply(ready_world, "r2", manifest(kind="job", **changed))
    assert admitted.generation == generation
    assert admitted.spec == manifest(kind="job", **changed).spec


async def test_what_a_replica_runs_makes_a_generation(ready_world: World) -> None:
    await apply(ready_world, "r1")
    changes: list[dict[str, Any]] = [
        {"requirements": {"labels": {"disk": "ssd"}}}, {"run": {"image": "api:2"}},
        {"resources": SIZE * 2},
    ]  # fmt: skip
    for generation, spec in enumerate(changes, start=2):
        assert (await apply(ready_world, f"r{generation}", manifest(**spec))).generation == (
            generation
        )


async def test_what_changes_nothing_is_answered_and_not_audited(ready_world: World) -> None:
    assert await apply(ready_world, "r1") == await apply(ready_world, "r2")
    assert await audited(ready_world) == ["apply workload"]


async def test_a_share_is_divided_on_the_current_workload(ready_world: World) -> None:
    seen: list[AdmittedWorkload | None] = []

    def divide(current: AdmittedWorkload | None) -> Mapping[RegionId, tuple[int, ...]]:
        seen.append(current)
        return {EAST: (0,), WEST: (1, 2)}

    for request in ("r1", "r2"):
        await admit_workload(
            ready_world.databases, manifest(), request=request, actor=TEST, divide=divide
        )
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1].share == {EAST: (0,), WEST: (1, 2)}


async def test_an_unknown_tenant_is_refused_with_those_that_are_known(ready_world: World) -> None:
    with pytest.raises(RefusedError, match="no tenant billing; known tenants: risk") as no:
        await apply(ready_world, "r1", manifest(BILLING))
    assert no.value.refusal.code is RefusalCode.UNKNOWN_TENANT


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_deleted_workload_goes_when_nobody_owns_a_slot_of_it(ready_world: World) -> None:
    await apply(ready_world, "r1")
    with pytest.raises(RefusedError, match="There is no request to delete workload risk/api"):
        await bury(ready_world)
    assert (await delete(ready_world, "d1")).target.deleting
    with pytest.raises(RefusedError, match="us-east still owns 8 slots of risk/api") as no:
        await bury(ready_world)
    assert no.value.refusal.code is RefusalCode.WRONG_STATE
    await give_up_all(ready_world)
    gone = await bury(ready_world)
    assert (gone.deleted, gone.deleting) == (True, False)
    assert await bury(ready_world) == gone, "again changes nothing"
    assert await audited(ready_world) == [
        "apply workload", "delete workload", "finish deleting workload",
    ]  # fmt: skip


async def test_a_delete_counts_once(ready_world: World) -> None:
    await apply(ready_world, "r1")
    first = await delete(ready_world, "d1")
    assert await delete(ready_world, "d1") == first
    assert (await delete(ready_world, "d2")).sentence == "It is being deleted already."
    assert await audited(ready_world) == ["apply workload", "delete workload"]


async def test_nothing_is_applied_while_a_delete_is_under_way(ready_world: World) -> None:
    first = await apply(ready_world, "r1")
    await delete(ready_world, "d1")
    with pytest.raises(RefusedError, match="is being deleted; wait until it is gone") as no:
        await apply(ready_world, "r2")
    assert no.value.refusal.code is RefusalCode.BEING_DELETED
    assert await apply(ready_world, "r1") == first, "what was answered stays answered"


async def test_what_was_never_applied_cannot_be_deleted(ready_world: World) -> None:
    with pytest.raises(RefusedError, match="There is no workload risk/api"):
        await delete(ready_world, "d1")


async def in_another_life(world: World) -> None:
    """Applied under r1, deleted under d1, and applied again under r2."""
    await apply(world, "r1")
    await delete(world, "d1")
    await give_up_all(world)
    await bury(world)
    await apply(world, "r2", manifest(priority=7))


async def test_a_request_of_an_earlier_life_is_answered_the_same_and_changes_nothing(
    ready_world: World,
) -> None:
    await in_another_life(ready_world)
    now = await read_workload(ready_world.databases, RISK, API)
    before = await audited(ready_world)
    again = await delete(ready_world, "d1")
    assert again.sentence.startswith("Deleting")
    assert again.target == now
    assert (await apply(ready_world, "r1")).generation == 1
    assert await read_workload(ready_world.databases, RISK, API) == now
    assert await audited(ready_world) == before


async def test_what_has_ended_cannot_be_deleted_under_a_new_id(ready_world: World) -> None:
    await apply(ready_world, "r1")
    first = await delete(ready_world, "d1")
    await give_up_all(ready_world)
    await bury(ready_world)
    with pytest.raises(RefusedError, match="risk/api has ended already, at 20"):
        await delete(ready_world, "d2")
    assert (await delete(ready_world, "d1")).sentence == first.sentence


async def test_a_request_is_kept_for_a_month_and_then_forgotten_by_the_next_one(
    ready_world: World,
) -> None:
    await apply(ready_world, "old")
    await apply(ready_world, "young")
    age = """
        UPDATE global.operator_requests SET kept_until = kept_until - interval '31 days'
         WHERE request = 'old'
    """
    with psycopg.connect(ready_world.databases.urls[0], autocommit=True) as owner:
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="a request is kept"):
            owner.execute("DELETE FROM global.operator_requests WHERE request = 'young'")
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"):
            owner.execute(age)
        owner.execute("ALTER TABLE global.operator_requests DISABLE TRIGGER append_only")
        owner.execute(age)
        await apply(ready_world, "next")
        kept = owner.execute("SELECT request FROM global.operator_requests ORDER BY at").fetchall()
    assert kept == [("young",), ("next",)]


async def test_a_generation_never_comes_again(ready_world: World) -> None:
    await apply(ready_world, "r1")
    await delete(ready_world, "d1")
    await give_up_all(ready_world)
    await bury(ready_world)
    assert await list_workloads(ready_world.databases) == []
    (tombstone,) = await list_workloads(ready_world.databases, deleted=True)
    assert tombstone.deleted
    again = await apply(ready_world, "r2")
    assert (again.generation, again.deleted) == (2, False)
    assert not (await bury(ready_world)).deleted, "the old end is not the new one's"
    with (
        psycopg.connect(ready_world.databases.urls[0]) as owner,
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="keeps its row"),
    ):
        owner.execute("DELETE FROM global.workloads")


def condition(kind: str, status: bool = True) -> Condition:
    return Condition(
        type=kind,
        status=status,
        reason="Test",
        sentence="It is so.",
        since=datetime(2030, 1, 1, tzinfo=UTC),
        observed_generation=1,
    )


async def test_a_finished_job_keeps_its_status_and_runs_again_when_applied(
    ready_world: World,
) -> None:
    job = manifest(kind="job")
    await apply(ready_world, "r1", job)

    async def finish() -> AdmittedWorkload:
        return await finish_job(
            ready_world.databases,
            RISK,
            API,
            generation=1,
            conditions=[condition("Complete")],
            replicas_by_state={"completed": 3},
            actor=TEST,
        )

    with pytest.raises(RefusedError, match="still owns 8 slots"):
        await finish()
    await give_up_all(ready_world)
    assert (await finish()).deleted
    assert await finish() == await finish()
    (row,) = await list_workloads(ready_world.databases, RISK, deleted=True)
    assert (row.conditions, row.replicas_by_state) == ((condition("Complete"),), {"completed": 3})
    again = await apply(ready_world, "r2", job)
    assert again.generation == 2
    assert not (await finish()).deleted
    (row,) = await list_workloads(ready_world.databases, RISK)
    assert row.conditions == ()


# ── slots and messages ──────────────────────────────────────────────────────────────────────────


async def admitted(world: World, name: str) -> AdmissionResult:
    wanted = manifest().model_copy(update={"name": WorkloadName(name)})
    message = workload_message("apply", name, workload=f"risk/{name}")
    request = AdmissionRequest(wanted, message, all_in_east())
    [answer] = await admit_workloads(world.databases, [request])
    assert isinstance(answer, AdmissionResult)
    return answer


async def test_the_slots_of_a_new_workload_are_assigned_with_its_admission(
    ready_world: World,
) -> None:
    assert (await admitted(ready_world, "new")).is_new
    assert not (await admitted(ready_world, "new")).is_new, "it was created before"
    read = await read_to_divide(ready_world.databases, RISK, WorkloadName("new"))
    assert read.owners == dict.fromkeys(range(3), SlotOwner(EAST, FIRST_NUMBER))
    assert read.is_settled


async def test_slots_that_a_region_has_owned_are_not_those_of_a_new_workload(
    ready_world: World,
) -> None:
    assert not (await admitted(ready_world, API)).is_new, "us-east owns eight slots of it"


async def test_five_thousand_slots_are_assigned_and_given_up_however_often(
    ready_world: World,
) -> None:
    registry = SlotRegistry(ready_world.databases, RISK, API, FIRST_DIVISION)
    for _ in range(2):
        await registry.assign(range(5000), EAST, transfer="big")
    for _ in range(2):
        await registry.give_up(range(5000), EAST, transfer="end")
    query = text("SELECT count(*) FILTER (WHERE region IS NULL), max(number) FROM global.slots")
    async with ready_world.databases.at_global("durable_reader").begin() as connection:
        assert tuple((await connection.execute(query)).one()) == (5000, 1)


@pytest.mark.parametrize("chain", [GLOBAL_CHAIN, EAST])
async def test_a_refused_message_is_audited_once(ready_world: World, chain: str) -> None:
    async def tell(databases: Databases) -> bool:
        return await audit_message(
            databases,
            chain,
            actor=TEST,
            action="reject message release",
            target="placement/risk/api/g1/us-east",
            key="event-7",
            detail={"why": "it is not JSON"},
        )

    url = ready_world.databases.urls[0]
    async with Databases(url) as here, Databases(url) as there:
        told = await asyncio.gather(*(tell((here, there)[n % 2]) for n in range(8)))
    assert sorted(told) == [False] * 7 + [True]
    reports, _ = await verify_all(ready_world.databases)
    assert all(report.broken_at is None for report in reports)

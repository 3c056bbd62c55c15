"""Workloads that are requested together are admitted together, and none pays for another."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from sqlalchemy import text

from durable.authority.audit.chain import verify_all
from durable.authority.db import connection as connection_module
from durable.authority.db.connection import Databases
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.workloads.admission import AdmissionRequest, Divide
from durable.authority.workloads.admission_queue import (
    AdmissionQueue,
    AdmissionResult,
    admit_workloads,
)
from durable.authority.workloads.deletion import request_delete
from durable.authority.workloads.rows import list_workloads, read_workload
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.running import Run
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest, WorkloadSpec
from tests.authority.lossy_proxy import Loses, LossyProxy
from tests.authority.world import BILLING, EAST, RISK, World, apply_message, workload_message

Share = Mapping[RegionId, tuple[int, ...]]


def in_east(_: AdmittedWorkload | None) -> Share:
    return {EAST: (0,)}


def nowhere(_: AdmittedWorkload | None) -> Share:
    raise RefusedError(RefusalCode.RESIDENCY, "No region may have it.")


def admission(
    name: str,
    request: str = "r1",
    *,
    tenant: TenantId = RISK,
    version: int = 100,
    divide: Divide = in_east,
) -> AdmissionRequest:
    run = Run(image=f"api:{version}")
    spec = WorkloadSpec(replicas=1, resources=Resources.of(1000, 512), run=run)
    manifest = WorkloadManifest(tenant=tenant, name=WorkloadName(name), spec=spec)
    return AdmissionRequest(manifest, apply_message(manifest, request), divide)


def scale(name: str, request: str, version: int) -> AdmissionRequest:
    """To one replica, of a workload that is known to have this version."""
    one = admission(name, request, version=version)
    message = workload_message("scale", request, workload=f"risk/{name}", replicas=1)
    return AdmissionRequest(one.manifest, message, in_east, scales=one.manifest.spec)


async def admit(world: World, *requests: AdmissionRequest) -> list[AdmissionResult | Refusal]:
    return await admit_workloads(world.databases, requests)


def generations(outcomes: Sequence[AdmissionResult | Refusal]) -> list[int]:
    return [
        outcome.answer.generation for outcome in outcomes if isinstance(outcome, AdmissionResult)
    ]


async def names(world: World) -> list[str]:
    return [str(row.workload) for row in await list_workloads(world.databases)]


async def audited(world: World) -> list[str]:
    query = text("""
        SELECT object FROM audit.events WHERE action = 'apply workload' ORDER BY sequence
    """)
    async with world.databases.at_global("durable_reader").begin() as connection:
        return list((await connection.execute(query)).scalars())


async def test_a_refused_neighbour_changes_nothing_for_the_others(ready_world: World) -> None:
    first, stranger, homeless, last = await admit(
        ready_world,
        admission("a"),
        admission("b", tenant=BILLING),
        admission("c", divide=nowhere),
        admission("d"),
    )
    assert generations([first, last]) == [1, 1]
    assert isinstance(stranger, Refusal)
    assert stranger.code is RefusalCode.UNKNOWN_TENANT
    assert isinstance(homeless, Refusal)
    assert homeless.code is RefusalCode.RESIDENCY
    assert await names(ready_world) == ["a", "d"], "what was refused leaves no row behind"
    assert await audited(ready_world) == ["workload/risk/a", "workload/risk/d"]


async def test_a_refused_first_request_leaves_no_row_and_may_be_sent_again(
    ready_world: World,
) -> None:
    (refused,) = await admit(ready_world, admission("a", divide=nowhere))
    assert isinstance(refused, Refusal)
    assert await read_workload(ready_world.databases, RISK, WorkloadName("a")) is None
    assert generations(await admit(ready_world, admission("a"))) == [1]


async def test_requests_about_one_workload_see_each_other_in_their_order(
    ready_world: World,
) -> None:
    outcomes = await admit(
        ready_world,
        admission("a", "r0", divide=nowhere),
        admission("a", "r1"),
        admission("a", "r2", version=7),
        admission("a", "r2", version=8),
        admission("a", "r1"),
        admission("a", "r3", version=9),
    )
    assert generations(outcomes) == [1, 2, 1, 3]
    conflict = outcomes[3]
    assert isinstance(conflict, Refusal)
    assert conflict.code is RefusalCode.KEY_CONFLICT
    current = await read_workload(ready_world.databases, RISK, WorkloadName("a"))
    assert [o.current for o in outcomes if isinstance(o, AdmissionResult)] == [current] * 4
    assert len(await audited(ready_world)) == 3
    assert all(report.broken_at is None for report in (await verify_all(ready_world.databases))[0])


async def test_an_old_answer_comes_with_the_current_workload(ready_world: World) -> None:
    (first,) = await admit(ready_world, admission("a", "r1"))
    await admit(ready_world, admission("a", "r2", version=7))
    message = workload_message("delete", "d", workload="risk/a")
    await request_delete(ready_world.databases, RISK, WorkloadName("a"), message)
    again, refused = await admit(ready_world, admission("a", "r1"), admission("a", "r3"))
    assert isinstance(first, AdmissionResult)
    assert isinstance(again, AdmissionResult)
    assert (again.answer, again.current.generation, again.current.deleting) == (
        first.answer, 2, True,
    )  # fmt: skip
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.BEING_DELETED


async def test_a_scale_counts_once_whatever_the_spec_has_become(ready_world: World) -> None:
    await admit(ready_world, admission("a", "r1"))
    (first,) = await admit(ready_world, scale("a", "s1", 100))
    await admit(ready_world, admission("a", "r2", version=7))
    (again,) = await admit(ready_world, scale("a", "s1", 7))
    assert isinstance(first, AdmissionResult)
    assert isinstance(again, AdmissionResult)
    assert again.answer == first.answer
    assert again.current.spec.run.image == "api:7"


async def test_a_scale_of_what_was_changed_or_ended_meanwhile_changes_nothing(
    ready_world: World,
) -> None:
    await admit(ready_world, admission("a", "r1", version=7))
    changed, never = await admit(ready_world, scale("a", "s1", 100), scale("b", "s1", 100))
    for refused in (changed, never):
        assert isinstance(refused, Refusal)
        assert "was changed meanwhile" in refused.sentence
    assert await names(ready_world) == ["a"]


async def test_requests_that_arrive_together_share_one_transaction(ready_world: World) -> None:
    async with AdmissionQueue(ready_world.databases) as queue:
        outcomes = await asyncio.gather(*(queue.submit(admission(f"w{n}")) for n in range(50)))
    assert generations(outcomes) == [1] * 50
    query = text("SELECT count(DISTINCT xmin::text) FROM global.workloads")
    async with ready_world.databases.at_global("durable_reader").begin() as connection:
        assert (await connection.execute(query)).scalar_one() == 1


async def test_one_request_fifty_times_in_one_batch_is_one_admission(ready_world: World) -> None:
    async with AdmissionQueue(ready_world.databases) as queue:
        outcomes = await asyncio.gather(*(queue.submit(admission("a")) for _ in range(50)))
    assert outcomes == [outcomes[0]] * 50
    assert await audited(ready_world) == ["workload/risk/a"]


async def test_a_value_that_cannot_be_kept_fails_alone(ready_world: World) -> None:
    async with AdmissionQueue(ready_world.databases) as queue:
        good, bad, last = await asyncio.gather(
            queue.submit(admission("a")),
            queue.submit(admission("b", "nul\0")),
            queue.submit(admission("c")),
            return_exceptions=True,
        )
    assert isinstance(bad, BrokenConstraintError)
    assert isinstance(good, AdmissionResult)
    assert isinstance(last, AdmissionResult)
    assert await names(ready_world) == ["a", "c"]


async def test_batches_with_the_same_workloads_in_opposite_order_never_deadlock(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One try: the victim of a deadlock would be told, and not tried again in silence.
    monkeypatch.setattr(connection_module, "ATTEMPTS", 1)
    url = ready_world.databases.urls[0]
    async with Databases(url) as here, Databases(url) as there:
        for turn in range(12):
            # Many, so that the two meet half way; some stand and some are new.
            common = [f"{kind}-{n}" for kind in ("old", f"new{turn}") for n in range(90)]
            mine = [admission(name, f"h{turn}", version=turn) for name in [*common, f"h{turn}"]]
            theirs = [
                admission(name, f"t{turn}", version=turn + 500) for name in [f"t{turn}", *common]
            ]
            outcomes = await asyncio.gather(
                admit_workloads(here, mine), admit_workloads(there, theirs[::-1])
            )
            assert not any(isinstance(o, Refusal) for batch in outcomes for o in batch)
    assert all(report.broken_at is None for report in (await verify_all(ready_world.databases))[0])


@pytest.mark.parametrize("loses", [Loses.THE_COMMIT, Loses.THE_ANSWER])
async def test_a_batch_whose_answer_was_lost_is_admitted_once(
    ready_world: World, loses: Loses
) -> None:
    async with LossyProxy(ready_world.databases.urls[0]) as proxy, Databases(proxy.url) as lossy:
        await admit_workloads(lossy, [admission("before")])
        proxy.loses = loses
        outcomes = await admit_workloads(lossy, [admission(f"w{n}") for n in range(5)])
        assert proxy.lost == 1
    assert generations(outcomes) == [1] * 5
    assert await audited(ready_world) == ["workload/risk/before"] + [
        f"workload/risk/w{n}" for n in range(5)
    ]
    assert await admit(ready_world, *(admission(f"w{n}") for n in range(5))) == outcomes

"""Workloads that are asked for together are admitted together, and none pays for another."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from sqlalchemy import text

from durable.authority.audit.chain import verify_all
from durable.authority.db import connection as connection_module
from durable.authority.db.connection import Databases
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.workloads import (
    Admission,
    AdmissionQueue,
    Answered,
    Ask,
    admit_workloads,
    list_workloads,
    read_workload,
    request_delete,
)
from durable.authority.workloads.deciding import ShareOf
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.workload import WorkloadManifest, WorkloadSpec
from tests.authority.lossy_proxy import Loses, LossyProxy
from tests.authority.world import BILLING, EAST, RISK, TEST, World

Share = Mapping[RegionId, tuple[int, ...]]


def in_east(_: Admission | None) -> Share:
    return {EAST: (0,)}


def nowhere(_: Admission | None) -> Share:
    raise RefusedError(RefusalCode.RESIDENCY, "No region may have it.")


def ask(
    name: str,
    request: str = "r1",
    *,
    tenant: TenantId = RISK,
    priority: int = 100,
    share_of: ShareOf = in_east,
) -> Ask:
    spec = WorkloadSpec(replicas=1, resources=Resources.of(1000, 512), priority=priority)
    manifest = WorkloadManifest(tenant=tenant, name=WorkloadName(name), spec=spec)
    return Ask(manifest, request, TEST, share_of)


async def admit(world: World, *asks: Ask) -> list[Answered | Refusal]:
    return await admit_workloads(world.databases, asks)


def generations(outcomes: Sequence[Answered | Refusal]) -> list[int]:
    return [outcome.answer.generation for outcome in outcomes if isinstance(outcome, Answered)]


async def names(world: World) -> list[str]:
    return [str(row.workload) for row in await list_workloads(world.databases)]


async def audited(world: World) -> list[str]:
    query = text("""
        SELECT object FROM audit.events WHERE action = 'apply workload' ORDER BY sequence
    """)
    async with world.databases.at_global("durable_reader").connect() as connection:
        return list((await connection.execute(query)).scalars())


async def test_a_refused_neighbour_changes_nothing_for_the_others(ready_world: World) -> None:
    first, stranger, homeless, last = await admit(
        ready_world, ask("a"), ask("b", tenant=BILLING), ask("c", share_of=nowhere), ask("d")
    )
    assert generations([first, last]) == [1, 1]
    assert isinstance(stranger, Refusal)
    assert stranger.code is RefusalCode.UNKNOWN_TENANT
    assert isinstance(homeless, Refusal)
    assert homeless.code is RefusalCode.RESIDENCY
    assert await names(ready_world) == ["a", "d"], "what was refused leaves no row behind"
    assert await audited(ready_world) == ["workload/risk/a", "workload/risk/d"]


async def test_a_refused_first_ask_leaves_no_row_and_may_be_sent_again(ready_world: World) -> None:
    (refused,) = await admit(ready_world, ask("a", share_of=nowhere))
    assert isinstance(refused, Refusal)
    assert await read_workload(ready_world.databases, RISK, WorkloadName("a")) is None
    assert generations(await admit(ready_world, ask("a"))) == [1]


async def test_asks_of_one_workload_see_each_other_in_their_order(ready_world: World) -> None:
    outcomes = await admit(
        ready_world,
        ask("a", "r0", share_of=nowhere),
        ask("a", "r1"),
        ask("a", "r2", priority=7),
        ask("a", "r2", priority=8),
        ask("a", "r1"),
        ask("a", "r3", priority=9),
    )
    assert generations(outcomes) == [1, 2, 1, 3]
    conflict = outcomes[3]
    assert isinstance(conflict, Refusal)
    assert conflict.code is RefusalCode.KEY_CONFLICT
    current = await read_workload(ready_world.databases, RISK, WorkloadName("a"))
    assert [o.current for o in outcomes if isinstance(o, Answered)] == [current] * 4
    assert len(await audited(ready_world)) == 3
    assert all(report.broken_at is None for report in await verify_all(ready_world.databases))


async def test_an_old_answer_comes_with_what_stands_now(ready_world: World) -> None:
    (first,) = await admit(ready_world, ask("a", "r1"))
    await admit(ready_world, ask("a", "r2", priority=7))
    await request_delete(
        ready_world.databases, RISK, WorkloadName("a"), request="d", actor=TEST, reason="gone"
    )
    again, refused = await admit(ready_world, ask("a", "r1"), ask("a", "r3"))
    assert isinstance(first, Answered)
    assert isinstance(again, Answered)
    assert (again.answer, again.current.generation, again.current.deleting) == (
        first.answer, 2, True,
    )  # fmt: skip
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.BEING_DELETED


async def test_asks_that_arrive_together_share_one_transaction(ready_world: World) -> None:
    async with AdmissionQueue(ready_world.databases) as queue:
        outcomes = await asyncio.gather(*(queue.submit(ask(f"w{n}")) for n in range(50)))
    assert generations(outcomes) == [1] * 50
    query = text("SELECT count(DISTINCT xmin::text) FROM global.workloads")
    async with ready_world.databases.at_global("durable_reader").connect() as connection:
        assert (await connection.execute(query)).scalar_one() == 1


async def test_one_request_fifty_times_in_one_batch_is_one_admission(ready_world: World) -> None:
    async with AdmissionQueue(ready_world.databases) as queue:
        outcomes = await asyncio.gather(*(queue.submit(ask("a")) for _ in range(50)))
    assert outcomes == [outcomes[0]] * 50
    assert await audited(ready_world) == ["workload/risk/a"]


async def test_a_value_that_cannot_be_kept_fails_alone(ready_world: World) -> None:
    async with AdmissionQueue(ready_world.databases) as queue:
        good, bad, last = await asyncio.gather(
            queue.submit(ask("a")),
            queue.submit(ask("b", "nul\0")),
            queue.submit(ask("c")),
            return_exceptions=True,
        )
    assert isinstance(bad, BrokenConstraintError)
    assert isinstance(good, Answered)
    assert isinstance(last, Answered)
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
            mine = [ask(name, f"h{turn}", priority=turn) for name in [*common, f"h{turn}"]]
            theirs = [ask(name, f"t{turn}", priority=turn + 500) for name in [f"t{turn}", *common]]
            outcomes = await asyncio.gather(
                admit_workloads(here, mine), admit_workloads(there, theirs[::-1])
            )
            assert not any(isinstance(o, Refusal) for batch in outcomes for o in batch)
    assert all(report.broken_at is None for report in await verify_all(ready_world.databases))


@pytest.mark.parametrize("loses", [Loses.THE_COMMIT, Loses.THE_ANSWER])
async def test_a_batch_whose_answer_was_lost_is_admitted_once(
    ready_world: World, loses: Loses
) -> None:
    async with LossyProxy(ready_world.databases.urls[0]) as proxy, Databases(proxy.url) as lossy:
        await admit_workloads(lossy, [ask("before")])
        proxy.loses = loses
        outcomes = await admit_workloads(lossy, [ask(f"w{n}") for n in range(5)])
        assert proxy.lost == 1
    assert generations(outcomes) == [1] * 5
    assert await audited(ready_world) == ["workload/risk/before"] + [
        f"workload/risk/w{n}" for n in range(5)
    ]
    assert await admit(ready_world, *(ask(f"w{n}") for n in range(5))) == outcomes

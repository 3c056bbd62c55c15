"""Grant is brought where slots wait for it, from where it is not used, and never over the quota."""

import pytest
from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.queue.requests import write_requests
from durable.authority.quota.quotas import read_quota, set_quota
from durable.authority.quota.rebalancing import read_needs, read_owing
from durable.authority.quota.transfers import transfer_grant
from durable.controllers import quota as quota_controller
from durable.controllers.quota import RETRY_FIRST_SECONDS, QuotaController
from durable.model.ids import RegionId, WorkloadName
from durable.model.placement.intents import Reserve
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.workload import WorkloadSpec
from tests.authority.invariants import assert_promises_hold
from tests.authority.queue.test_requests import request
from tests.authority.quota.test_grants import billing, cpu, moving, split, use
from tests.authority.world import BILLING, EAST, RISK, TEST, WEST, World
from tests.model.pending import pending

SPEC = WorkloadSpec(replicas=3, resources=cpu(1))


async def wait_in(
    world: World,
    region: RegionId,
    waiting: int,
    code: PendingCode = PendingCode.GRANT,
    spec: WorkloadSpec = SPEC,
) -> None:
    row = request(
        region=region,
        tenant=BILLING,
        workload=WorkloadName(f"{code}".replace("_", "-")),
        spec=spec,
        waiting=waiting,
        pending=pending(code, "It waits."),
    )
    await write_requests(world.databases, region, [row])


@pytest.mark.parametrize("code", [PendingCode.GRANT, PendingCode.GANG])
async def test_what_is_missing_is_brought_and_nothing_more(
    two_regions: World, code: PendingCode
) -> None:
    databases = await billing(two_regions, hard=10, east=6, west=2)
    await use(two_regions, WEST, 2)
    await wait_in(two_regions, WEST, 3, code)
    controller = QuotaController(databases)
    await controller.once(0)
    assert await split(databases) == (0, 5, 5), "two were ungranted, one came from us-east"
    await controller.once(1)
    assert await split(databases) == (0, 5, 5), "it has what it waits for, and will look by itself"
    await assert_promises_hold(databases)


@pytest.mark.parametrize("code", [PendingCode.CAPACITY, PendingCode.NO_GRANT, PendingCode.HELD])
async def test_who_waits_for_something_else_is_brought_nothing(
    two_regions: World, code: PendingCode
) -> None:
    databases = await billing(two_regions, hard=10, east=6, west=2)
    await wait_in(two_regions, WEST, 3, code)
    await QuotaController(databases).once(0)
    assert await split(databases) == (2, 6, 2)


async def test_a_tenant_with_nothing_to_give_is_tried_less_and_less_often(
    neighbours: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = await billing(neighbours, hard=2, west=2)
    await use(neighbours, WEST, 2)
    await wait_in(neighbours, WEST, 1)
    asked: list[float] = []
    top_up = quota_controller.top_up

    async def counted(*of: object, **more: object) -> Resources:
        asked.append(now)
        return await top_up(*of, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(quota_controller, "top_up", counted)
    controller = QuotaController(databases)
    for now in range(int(8 * RETRY_FIRST_SECONDS)):
        await controller.once(now)
    assert asked == [0, RETRY_FIRST_SECONDS, 3 * RETRY_FIRST_SECONDS, 7 * RETRY_FIRST_SECONDS]
    assert await split(databases) == (0, 0, 2)


async def test_who_waits_behind_a_thousand_of_another_tenant_gets_grant(neighbours: World) -> None:
    databases = await billing(neighbours, hard=10)
    await fill_queue(neighbours, 1_001)
    await wait_in(neighbours, WEST, 3)
    needs = await read_needs(databases, WEST)
    assert needs[BILLING] == cpu(3)
    assert needs[RISK].cpu_millis == 1_001 * 200_000 - (100_000)
    await QuotaController(databases).once(0)
    assert await split(databases) == (7, 0, 3)


async def fill_queue(world: World, count: int) -> None:
    """So many requests of risk, all before anybody else's."""
    spec = WorkloadSpec(replicas=1, resources=Resources.of(200_000, 1))
    first = request(
        region=WEST, workload=WorkloadName("first"), spec=spec, waiting=1, priority=900,
        pending=pending(PendingCode.GRANT, "It waits."),
    )  # fmt: skip
    await write_requests(world.databases, WEST, [first])
    more = text("""
        INSERT INTO regional.requests
               (region, tenant, workload, generation, slots, priority, state, pending_code,
                pending_parameters, enqueued_at, deadline, spec, waiting)
        SELECT region, tenant, 'more-' || number, generation, slots, priority, state, pending_code,
               pending_parameters, enqueued_at, deadline, spec, waiting
          FROM regional.requests, generate_series(2, :count) AS number
    """)
    async with world.databases.at_region(WEST, "durable_placement").begin() as connection:
        await connection.execute(more, {"count": count})


async def test_a_region_that_cannot_be_reached_keeps_nobody_else(two_regions: World) -> None:
    databases = await billing(two_regions, hard=10, east=5, west=2)
    await use(two_regions, WEST, 2)
    await wait_in(two_regions, WEST, 4)
    away = "postgresql://durable@127.0.0.1:1/nowhere"
    urls: dict[str, str] = {WEST: databases.url_of(WEST), EAST: away}
    async with Databases(databases.url_of(RegionId("elsewhere")), urls) as with_one_away:
        await QuotaController(with_one_away).once(0)
    assert await split(databases) == (0, 5, 5), "only what was ungranted could be brought"


async def test_of_two_that_wait_one_is_served_and_they_do_not_take_turns(
    two_regions: World,
) -> None:
    databases = await billing(two_regions, hard=10, east=5, west=5)
    spec = WorkloadSpec(replicas=1, resources=cpu(6))
    for region in (EAST, WEST):
        await wait_in(two_regions, region, 1, spec=spec)
    controller = QuotaController(databases)
    for now in range(0, 20, 2):
        await controller.once(now)
        assert await split(databases) == (0, 6, 4)


async def test_a_lowered_quota_takes_effect_as_use_falls_while_others_queue(
    two_regions: World,
) -> None:
    """What is freed comes back to the quota, and is not taken by whoever waits."""
    databases = await billing(two_regions, hard=6, west=6)
    await two_regions.with_slots(8, tenant=BILLING, region=WEST)
    west = two_regions.at(WEST)

    def reserve(slot: int, attempt: int = 1) -> Reserve:
        return west.reserve(slot, node="w1", tenant=BILLING, resources=cpu(1), attempt=attempt)

    tokens = [(await west.granted(reserve(slot))).token for slot in range(6)]

    async def free(slot: int) -> None:
        await west.granted(west.release(tokens[slot], slot, tenant=BILLING))

    await wait_in(two_regions, WEST, 3)
    await set_quota(databases, BILLING, hard=cpu(3), actor=TEST)
    controller = QuotaController(databases)
    await controller.once(0)
    assert await split(databases) == (0, 0, 6), "all of it is in use"
    await free(0)
    await free(1)
    assert await west.refused(reserve(6)) is RefusalCode.GRANT_EXHAUSTED, "the quota wants it back"
    await controller.once(2)
    quota = await read_quota(databases, BILLING)
    assert (quota.granted, quota.hard) == (cpu(4), cpu(4)), "the limit in force follows"
    await free(2)
    await controller.once(4)
    assert (await read_quota(databases, BILLING)).hard == cpu(3)
    await free(3)
    await controller.once(6)
    assert await read_owing(databases, WEST) == []
    await west.granted(reserve(6, attempt=2))
    await assert_promises_hold(databases)


async def test_a_transfer_ends_in_settled_or_refused(neighbours: World) -> None:
    databases = await billing(neighbours, hard=10, east=5)
    too_much = moving(9, EAST, WEST, id="too-much")
    for _ in range(2):
        with pytest.raises(RefusedError) as no:
            await transfer_grant(databases, too_much)
        assert no.value.refusal.code is RefusalCode.GRANT_IN_USE
        await transfer_grant(databases, moving(5, None, EAST, id="more"))
    await transfer_grant(databases, moving(2, EAST, WEST, id="some"))
    async with databases.at_global("durable_reader").begin() as connection:
        rows = await connection.execute(text("SELECT transfer, state FROM global.grant_transfers"))
        states = {row.transfer: row.state for row in rows}
    assert states["too-much"] == "refused"
    assert {state for id, state in states.items() if id != "too-much"} == {"settled"}

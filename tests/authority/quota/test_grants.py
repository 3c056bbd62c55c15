"""Grants move as escrow: whatever crashes, repeats or races, nothing is spent twice or lost."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.fleet.manifest import apply_fleet, divide_protected
from durable.authority.quota import rebalancing, transfers
from durable.authority.quota.grants import read_grant_left
from durable.authority.quota.quotas import read_quota, set_quota
from durable.authority.quota.rebalancing import reclaim, resume_transfers, top_up
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.model.fleet.manifest import Fleet, TenantSpec
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import BILLING, EAST, TEST, WEST, World

NOWHERE = RegionId("nowhere")


def cpu(cores: int) -> Resources:
    return Resources.of(cores * 1000, cores * 1024)


def moving(
    cores: int,
    from_region: RegionId | None = None,
    to_region: RegionId | None = None,
    *,
    id: str = "t1",
    tenant: TenantId = BILLING,
) -> GrantTransfer:
    return GrantTransfer(
        id=id, tenant=tenant, amount=cpu(cores),
        from_region=from_region, to_region=to_region, actor=TEST,
    )  # fmt: skip


async def billing(world: World, hard: int, east: int = 0, west: int = 0) -> Databases:
    """A tenant of its own with this quota and these grants, in cores."""
    await set_quota(world.databases, BILLING, hard=cpu(hard), actor=TEST)
    for region, cores in ((EAST, east), (WEST, west)):
        if cores:
            seed = moving(cores, to_region=region, id=f"seed/{region}")
            await transfer_grant(world.databases, seed)
    return world.databases


async def split(databases: Databases) -> tuple[int, int, int]:
    """What of billing's quota is ungranted, in us-east and in us-west, in whole cores."""
    quota = await read_quota(databases, BILLING)
    held = [await held_in(databases, region) for region in (EAST, WEST)]
    assert quota.granted == held[0] + held[1], "what is settled is the same in both books"
    east, west = (amount.cpu_millis // 1000 for amount in held)
    assert held == [cpu(east), cpu(west)], "all dimensions move together"
    return quota.hard.cpu_millis // 1000 - east - west, east, west


async def held_in(databases: Databases, region: RegionId) -> Resources:
    query = text("""
        SELECT granted_cpu_millis, granted_memory_mib, granted_gpus FROM regional.grants
         WHERE region = :region AND tenant = :tenant
    """)
    async with databases.at_region(region, "durable_reader").begin() as connection:
        of = {"region": region, "tenant": BILLING}
        row = (await connection.execute(query, of)).one_or_none()
    return ZERO if row is None else Resources.of(*row)


async def use(world: World, region: RegionId, cores: int) -> int:
    """Work of billing that holds this much of the region's grant; answers its token."""
    await world.with_slots(1, tenant=BILLING, region=region)
    here = world.at(region)
    node = "e1" if region == EAST else "w1"
    work = here.reserve(0, node=node, tenant=BILLING, resources=cpu(cores))
    return (await here.granted(work)).token


async def stop_using(world: World, region: RegionId, token: int) -> None:
    here = world.at(region)
    await here.granted(here.release(token, tenant=BILLING))


async def code_of(work: Coroutine[Any, Any, Any]) -> RefusalCode:
    with pytest.raises(RefusedError) as no:
        await work
    return no.value.refusal.code


# ── one transfer ────────────────────────────────────────────────────────────────────────────────


# Each kind of transfer, and what of 60 ungranted and 20 in each region is where after it.
KINDS = [
    (moving(10, None, WEST, id="t1"), (50, 20, 30)),
    (moving(10, EAST, WEST, id="t2"), (50, 10, 40)),
    (moving(10, WEST, None, id="t3"), (60, 10, 30)),
]


async def test_a_transfer_moves_its_amount_once_however_often_it_is_sent(
    two_regions: World,
) -> None:
    databases = await billing(two_regions, hard=100, east=20, west=20)
    for transfer, after in KINDS:
        await transfer_grant(databases, transfer)
        assert await split(databases) == after
        await transfer_grant(databases, transfer)
        assert await split(databases) == after
    await assert_promises_hold(databases)


async def test_the_same_id_with_another_payload_is_a_conflict(neighbours: World) -> None:
    databases = await billing(neighbours, hard=100, east=40)
    await transfer_grant(databases, moving(10, EAST, WEST))
    for other in (moving(11, EAST, WEST), moving(10, None, WEST), moving(10, EAST, None)):
        assert await code_of(transfer_grant(databases, other)) is RefusalCode.TRANSFER_CONFLICT
    assert await split(databases) == (60, 30, 10)


async def test_grant_in_use_is_not_taken_until_it_is_free(two_regions: World) -> None:
    databases = await billing(two_regions, hard=8, east=6)
    token = await use(two_regions, EAST, 4)
    too_much = moving(3, EAST, WEST)
    assert await code_of(transfer_grant(databases, too_much)) is RefusalCode.GRANT_IN_USE
    assert await split(databases) == (2, 6, 0)
    await assert_promises_hold(databases)

    await stop_using(two_regions, EAST, token)
    await transfer_grant(databases, moving(3, EAST, WEST, id="anew"))
    assert await split(databases) == (2, 3, 3)


async def test_what_is_granted_is_never_more_than_the_hard_quota(two_regions: World) -> None:
    databases = await billing(two_regions, hard=10, east=6)
    too_much = transfer_grant(databases, moving(5, None, WEST))
    assert await code_of(too_much) is RefusalCode.OVER_HARD_QUOTA
    assert await split(databases) == (4, 6, 0)
    await transfer_grant(databases, moving(4, None, WEST))  # a refusal leaves nothing behind
    assert await split(databases) == (0, 6, 4)
    await assert_promises_hold(databases)


async def test_a_region_that_was_never_granted_anything_has_nothing_to_give(
    neighbours: World,
) -> None:
    databases = await billing(neighbours, hard=10)
    nothing = transfer_grant(databases, moving(1, EAST, WEST))
    assert await code_of(nothing) is RefusalCode.GRANT_IN_USE


async def test_a_transfer_that_makes_no_sense_is_refused_before_anything_moves(
    two_regions: World,
) -> None:
    databases = await billing(two_regions, hard=10, east=5)
    for transfer, code in (
        (moving(1, EAST, NOWHERE), RefusalCode.UNKNOWN_REGION),
        (moving(1, NOWHERE, EAST), RefusalCode.UNKNOWN_REGION),
        (moving(1, EAST, WEST, tenant=TenantId("stranger")), RefusalCode.UNKNOWN_TENANT),
        (moving(1, EAST, EAST), RefusalCode.TRANSFER_CONFLICT),
        (moving(1, None, None), RefusalCode.TRANSFER_CONFLICT),
    ):
        assert await code_of(transfer_grant(databases, transfer)) is code, transfer
    assert await split(databases) == (5, 5, 0)
    async with databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT count(*) FROM global.grant_transfers WHERE transfer = 't1'")
        assert (await connection.execute(query)).scalar_one() == 0


# ── crashes ─────────────────────────────────────────────────────────────────────────────────────


STEPS = ("_begin", "take_grant", "_move_books", "add_grant", "settle_books")


class Crash(Exception):  # noqa: N818 - it stands for the end of a process
    """The sender died here."""


@contextmanager
def crash_after(step: str, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Lets senders die once this step of theirs has committed."""
    whole = getattr(transfers, step)

    async def then_crash(*arguments: Any, **named: Any) -> None:
        await whole(*arguments, **named)
        raise Crash(step)

    with monkeypatch.context() as patch:
        patch.setattr(transfers, step, then_crash)
        yield


@pytest.mark.parametrize("step", STEPS)
async def test_a_transfer_that_crashed_is_finished_when_it_is_sent_again(
    two_regions: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    databases = await billing(two_regions, hard=100, east=20, west=20)
    crashes = 0
    for transfer, after in KINDS:
        with crash_after(step, monkeypatch):
            try:
                await transfer_grant(databases, transfer)
            except Crash:
                crashes += 1
        await assert_promises_hold(databases)
        await transfer_grant(databases, transfer)
        assert await split(databases) == after
    assert crashes == {"_begin": 3}.get(step, 2), "not every kind has every step"
    await assert_promises_hold(databases)


async def test_what_is_under_way_can_be_spent_at_neither_end_nor_granted_again(
    two_regions: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = await billing(two_regions, hard=4, east=4)
    with crash_after("take_grant", monkeypatch), pytest.raises(Crash):
        await transfer_grant(databases, moving(4, EAST, WEST))
    assert (await read_grant_left(databases, EAST, BILLING)).rest == ZERO
    assert (await read_grant_left(databases, WEST, BILLING)).rest == ZERO
    more = transfer_grant(databases, moving(1, None, WEST, id="t2"))
    assert await code_of(more) is RefusalCode.OVER_HARD_QUOTA


# ── a lowered quota ─────────────────────────────────────────────────────────────────────────────


async def test_a_quota_below_its_use_says_so_and_is_reclaimed_as_usage_falls(
    two_regions: World,
) -> None:
    databases = await billing(two_regions, hard=10, east=6, west=4)
    token = await use(two_regions, EAST, 5)
    lowered = await set_quota(databases, BILLING, hard=cpu(3), actor=TEST)
    assert (lowered.hard, lowered.target) == (cpu(10), cpu(3))
    assert lowered.reclaiming is not None
    assert "was lowered to 3 cpu" in lowered.reclaiming

    rest = await reclaim(databases, BILLING, [EAST, WEST], request="r1", actor=TEST)
    assert rest == cpu(2), "five are in use and three are allowed"
    assert (await read_quota(databases, BILLING)).hard == cpu(5)
    assert await split(databases) == (0, 5, 0)
    again = await reclaim(databases, BILLING, [EAST, WEST], request="r1", actor=TEST)
    assert again == cpu(2)
    await assert_promises_hold(databases)

    await stop_using(two_regions, EAST, token)
    assert await reclaim(databases, BILLING, [EAST, WEST], request="r2", actor=TEST) == ZERO
    quota = await read_quota(databases, BILLING)
    assert quota.hard == quota.target == cpu(3)
    assert quota.reclaiming is None
    assert await split(databases) == (0, 3, 0)
    await assert_promises_hold(databases)


async def test_a_lowered_quota_grants_nothing_more(neighbours: World) -> None:
    databases = await billing(neighbours, hard=10, east=6)
    await set_quota(databases, BILLING, hard=cpu(6), actor=TEST)
    more = transfer_grant(databases, moving(1, None, WEST))
    assert await code_of(more) is RefusalCode.OVER_HARD_QUOTA
    await transfer_grant(databases, moving(6, EAST, WEST))  # what is granted may still move
    assert await split(databases) == (0, 0, 6)


async def test_a_raised_quota_is_in_force_at_once(neighbours: World) -> None:
    databases = await billing(neighbours, hard=10, east=10)
    await set_quota(databases, BILLING, hard=cpu(4), actor=TEST)
    raised = await set_quota(databases, BILLING, hard=cpu(12), actor=TEST)
    assert (raised.hard, raised.reclaiming) == (cpu(12), None)
    assert await split(databases) == (2, 10, 0)


async def test_more_protection_than_quota_is_refused(neighbours: World) -> None:
    databases = neighbours.databases
    absurd = set_quota(databases, BILLING, hard=cpu(4), protected=cpu(5), actor=TEST)
    assert await code_of(absurd) is RefusalCode.OVER_HARD_QUOTA
    assert await code_of(read_quota(databases, BILLING)) is RefusalCode.UNKNOWN_TENANT


async def protected(databases: Databases) -> tuple[int, int, int]:
    """What of billing's protected part is ungranted, in us-east and in us-west, in whole cores."""
    books = text("""
        SELECT coalesce(sum(protected_cpu_millis), 0) FROM global.grants
         WHERE tenant = :tenant AND region = :region
    """)
    here: list[int] = []
    for region in (EAST, WEST):
        async with databases.at_global("durable_reader").begin() as connection:
            of = {"tenant": BILLING, "region": region}
            booked = int((await connection.execute(books, of)).scalar_one()) // 1000
        left = await read_grant_left(databases, region, BILLING)
        assert left.protected.cpu_millis // 1000 == booked, "both books say the same"
        here.append(booked)
    whole = (await read_quota(databases, BILLING)).protected.cpu_millis // 1000
    return whole - sum(here), here[0], here[1]


async def test_what_is_protected_survives_transfers(two_regions: World) -> None:
    """It goes along as far as too little is left for it, and comes back with the next grant."""
    databases = two_regions.databases
    await set_quota(databases, BILLING, hard=cpu(10), protected=cpu(6), actor=TEST)
    assert await protected(databases) == (6, 0, 0)
    for transfer, after in (
        (moving(10, None, EAST, id="t1"), (0, 6, 0)),
        (moving(3, EAST, WEST, id="t2"), (0, 6, 0)),
        (moving(6, EAST, WEST, id="t3"), (0, 1, 5)),
        (moving(9, WEST, None, id="t4"), (5, 1, 0)),
        (moving(2, None, EAST, id="t5"), (3, 3, 0)),
        (moving(7, None, WEST, id="t6"), (0, 3, 3)),
    ):
        for _ in range(2):
            await transfer_grant(databases, transfer)
            assert await protected(databases) == after, transfer.id
    await assert_promises_hold(databases)


@pytest.mark.parametrize("step", STEPS)
async def test_what_is_protected_survives_a_transfer_that_crashed(
    two_regions: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    databases = two_regions.databases
    await set_quota(databases, BILLING, hard=cpu(10), protected=cpu(6), actor=TEST)
    await transfer_grant(databases, moving(10, None, EAST, id="t1"))
    with crash_after(step, monkeypatch), pytest.raises(Crash):
        await transfer_grant(databases, moving(9, EAST, WEST, id="t2"))
    await resume_transfers(databases, BILLING)
    await transfer_grant(databases, moving(9, EAST, WEST, id="t2"))
    assert await protected(databases) == (0, 1, 5)
    await assert_promises_hold(databases)


# ── topping up ──────────────────────────────────────────────────────────────────────────────────


async def top_up_west(
    databases: Databases, cores: int, request: str = "r1", *donors: RegionId
) -> int:
    arrived = await top_up(
        databases, BILLING, WEST, cpu(cores),
        donors=donors or (EAST, WEST), request=request, actor=TEST,
    )  # fmt: skip
    assert arrived == cpu(arrived.cpu_millis // 1000)
    return arrived.cpu_millis // 1000


async def test_topping_up_takes_what_is_ungranted_before_it_asks_donors(
    two_regions: World,
) -> None:
    databases = await billing(two_regions, hard=10, east=4)
    assert await top_up_west(databases, 5, "r1") == 5
    assert await split(databases) == (1, 4, 5)
    assert await top_up_west(databases, 3, "r2") == 3
    assert await split(databases) == (0, 2, 8)
    await assert_promises_hold(databases)


async def test_topping_up_brings_what_there_is_and_spares_what_is_in_use(
    neighbours: World,
) -> None:
    databases = await billing(neighbours, hard=8, east=6)
    await use(neighbours, EAST, 4)
    assert await top_up_west(databases, 7) == 4
    assert await split(databases) == (0, 4, 4)
    assert (await read_grant_left(databases, EAST, BILLING)).rest == ZERO
    await assert_promises_hold(databases)


async def test_a_request_that_is_sent_again_moves_nothing_twice(two_regions: World) -> None:
    databases = await billing(two_regions, hard=10, east=8)
    assert await top_up_west(databases, 5) == 5
    assert await top_up_west(databases, 5) == 5
    assert await split(databases) == (0, 5, 5)


async def test_a_request_sent_again_after_the_quota_was_raised_moves_nothing_twice(
    neighbours: World,
) -> None:
    databases = await billing(neighbours, hard=8, east=8)
    assert await top_up_west(databases, 5) == 5  # all of it from the donor
    await set_quota(databases, BILLING, hard=cpu(20), actor=TEST)
    assert await top_up_west(databases, 5) == 5
    assert await split(databases) == (12, 3, 5)


async def test_a_request_that_got_too_little_gets_the_rest_when_it_is_sent_again(
    neighbours: World,
) -> None:
    databases = await billing(neighbours, hard=4, east=1)
    await use(neighbours, EAST, 1)
    assert await top_up_west(databases, 5) == 3
    await stop_using(neighbours, EAST, 1)
    assert await top_up_west(databases, 5) == 4
    assert await split(databases) == (0, 0, 4)


async def test_a_request_that_crashed_is_finished_when_it_is_sent_again(
    two_regions: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = await billing(two_regions, hard=30, east=28)
    west = 0
    for step in STEPS:
        with crash_after(step, monkeypatch), pytest.raises(Crash):
            await top_up_west(databases, 5, step)
        assert await top_up_west(databases, 5, step) == 5
        west += 5
        assert await split(databases) == (0, 30 - west, west)
    await assert_promises_hold(databases)


async def test_a_source_that_was_emptied_in_between_gives_nothing_and_the_next_is_tried(
    neighbours: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = await billing(neighbours, hard=10, east=5)
    available = rebalancing._available  # pyright: ignore[reportPrivateUsage]

    async def then_overtaken(
        databases: Databases, tenant: TenantId, source: RegionId | None
    ) -> Resources:
        found = await available(databases, tenant, source)
        if source is None:
            await transfer_grant(databases, moving(5, None, EAST, id="faster"))
        return found

    monkeypatch.setattr(rebalancing, "_available", then_overtaken)
    assert await top_up_west(databases, 5) == 5
    assert await split(databases) == (0, 5, 5)
    await assert_promises_hold(databases)


async def test_an_unknown_tenant_is_not_topped_up(neighbours: World) -> None:
    stranger = top_up(
        neighbours.databases, TenantId("stranger"), WEST, cpu(1),
        donors=[EAST], request="r1", actor=TEST,
    )  # fmt: skip
    assert await code_of(stranger) is RefusalCode.UNKNOWN_TENANT


async def test_regions_that_ask_at_once_never_get_more_than_the_hard_quota(
    two_regions: World, urls: tuple[str, dict[str, str]]
) -> None:
    databases = await billing(two_regions, hard=12, east=2, west=2)

    async def ask(own: Databases, region: RegionId, donor: RegionId) -> int:
        arrived = ZERO
        for turn in range(4):
            arrived += await top_up(
                own, BILLING, region, cpu(2),
                donors=[donor], request=f"{region}/{turn}", actor=TEST,
            )  # fmt: skip
            assert (await read_quota(own, BILLING)).granted.fits_in(cpu(12))
        return arrived.cpu_millis // 1000

    async with Databases(*urls) as first, Databases(*urls) as second:
        asked = await asyncio.gather(ask(first, EAST, WEST), ask(second, WEST, EAST))
    assert sum(asked) >= 8, "all that was ungranted arrived somewhere"
    assert sum(await split(databases)) == 12
    await assert_promises_hold(databases)


async def test_two_who_send_the_same_request_at_once_move_it_once(
    two_regions: World, urls: tuple[str, dict[str, str]]
) -> None:
    databases = await billing(two_regions, hard=10, east=7)
    async with Databases(*urls) as first, Databases(*urls) as second:
        same = moving(4, EAST, WEST)
        await asyncio.gather(transfer_grant(first, same), transfer_grant(second, same))
    assert await split(databases) == (3, 3, 4)
    await assert_promises_hold(databases)


async def test_a_refused_transfer_does_not_happen_later_by_itself(neighbours: World) -> None:
    databases = await billing(neighbours, hard=10, east=5)
    refused = transfer_grant(databases, moving(9, EAST, WEST, id="too-much"))
    assert await code_of(refused) is RefusalCode.GRANT_IN_USE
    await transfer_grant(databases, moving(5, None, EAST, id="more"))
    await resume_transfers(databases, BILLING)
    assert await split(databases) == (0, 10, 0)


async def test_a_transfer_that_was_cut_off_is_finished_by_resuming(
    neighbours: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = await billing(neighbours, hard=10, east=5)

    async def dies(*_: object) -> None:
        raise ConnectionAbortedError

    with monkeypatch.context() as patched:
        patched.setattr(transfers, "_move_books", dies)
        with pytest.raises(ConnectionAbortedError):
            await transfer_grant(databases, moving(2, EAST, WEST, id="cut"))
    await resume_transfers(databases, BILLING)
    assert await split(databases) == (5, 3, 2)
    await assert_promises_hold(databases)


async def test_transfers_that_cross_do_not_deadlock(neighbours: World) -> None:
    databases = await billing(neighbours, hard=20, east=10, west=10)
    before = await deadlocks(databases)
    pairs = ((EAST, WEST), (WEST, EAST), (EAST, None), (None, WEST))
    for turn in range(4):
        crossing = [
            transfer_grant(databases, moving(1, *ends, id=f"{turn}-{number}"))
            for number, ends in enumerate(pairs)
        ]
        await asyncio.gather(*crossing, return_exceptions=True)
    assert await deadlocks(databases) == before
    await assert_promises_hold(databases)


async def deadlocks(databases: Databases) -> int:
    async with databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return (await connection.execute(query)).scalar_one()


# ── loading the manifest again ──────────────────────────────────────────────────────────────────


async def test_a_manifest_that_is_loaded_again_takes_back_only_what_is_not_in_use(
    two_regions: World,
) -> None:
    """And what is protected follows the grants as they are, whatever was taken back."""
    databases = await billing(two_regions, hard=10, east=8, west=2)
    await transfer_grant(databases, moving(6, EAST, WEST))
    await use(two_regions, WEST, 5)
    pool = {"name": "more", "count": 1, "capacity": {"cpu": 1, "memory": "1Gi"}}
    fleet = Fleet.model_validate(
        {
            "regions": [
                {"id": one, "zones": [f"{one}-a"], "pools": [{**pool, "zone": f"{one}-a"}]}
                for one in (EAST, WEST)
            ],
            "tenants": [
                {
                    "id": BILLING,
                    "hard": {"cpu": 10, "memory": "10Gi"},
                    "protected": {"cpu": 8, "memory": "8Gi"},
                    "grants": {
                        EAST: {"cpu": 8, "memory": "8Gi"},
                        WEST: {"cpu": 2, "memory": "2Gi"},
                    },
                }
            ],
        }
    )
    lines: list[str] = []
    await apply_fleet(databases, fleet, actor=TEST, request="again", report=lines.append)
    assert await split(databases) == (0, 5, 5)
    assert await protected(databases) == (0, 5, 3)
    assert [line for line in lines if "the grant of" in line] == [
        "Left as it is: the grant of billing in us-east is 5 cpu, 5Gi, not 8 cpu, 8Gi as the "
        "manifest says, because of what is in use",
        "Left as it is: the grant of billing in us-west is 5 cpu, 5Gi, not 2 cpu, 2Gi as the "
        "manifest says, because of what is in use",
    ]
    await assert_promises_hold(databases)


@pytest.mark.parametrize(
    ("protected", "granted", "expected"),
    [
        (6, {EAST: 8, WEST: 2}, {EAST: 4, WEST: 2}),
        (6, {EAST: 1, WEST: 9}, {EAST: 1, WEST: 5}),
        (6, {EAST: 2, WEST: 1}, {EAST: 2, WEST: 1}),
        (6, {EAST: 0, WEST: 0, NOWHERE: 10}, {EAST: 0, WEST: 0, NOWHERE: 6}),
        (0, {EAST: 8, WEST: 2}, {EAST: 0, WEST: 0}),
    ],
)
def test_what_is_protected_is_divided_as_the_manifest_says_as_far_as_it_can_be(
    protected: int, granted: dict[RegionId, int], expected: dict[RegionId, int]
) -> None:
    manifest = TenantSpec(
        id=BILLING, hard=cpu(12), protected=cpu(protected), grants={EAST: cpu(8), WEST: cpu(4)}
    )
    shares = divide_protected(manifest, {region: cpu(has) for region, has in granted.items()})
    assert shares == {region: cpu(has) for region, has in expected.items()}

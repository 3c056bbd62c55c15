"""Grants of a region that cannot be reached lapse with its lease, and count nowhere twice."""

import pytest

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.quota.grants import read_grant_left
from durable.authority.quota.lapses import lapse_grants, lapsed_regions, settle_lapsed
from durable.authority.quota.quotas import read_quota
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.region_leases import renew
from durable.authority.slots.ownership import SlotRegistry
from durable.controllers.quota import QuotaController
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.plan.grants import GrantStanding, report_grants
from durable.stack.postgres.server import EmbeddedPostgres
from tests.agent.waiting import eventually
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST, World, seconds
from tests.frozen import frozen


async def test_what_a_lost_region_was_granted_is_granted_to_others_and_lowered_when_it_is_back(
    apart: World, other_postgres: EmbeddedPostgres
) -> None:
    databases, controller = apart.databases, QuotaController(apart.databases)
    registry = SlotRegistry(databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0], WEST, transfer="t0")
    await apart.at(WEST).running(0, node="w1")
    await renew(databases, WEST, "w", lease_seconds=1)
    both = (await read_quota(databases, RISK)).granted

    async def granted() -> Resources:
        return (await read_quota(databases, RISK)).granted

    async def standings() -> list[GrantStanding]:
        reports, _ = await report_grants(databases)
        return [one.standing for one in reports]

    async def moved() -> bool:
        try:
            await registry.transfer([0], WEST, EAST, transfer="t1", actor=TEST)
        except AuthorityUnreachableError:
            return False
        return True

    with frozen(other_postgres):
        await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="it hangs")
        await controller.once(0)
        assert await granted() == both, "its slot may still run there"
        assert await standings() == [GrantStanding.FITS, GrantStanding.UNREACHABLE]
        await eventually("its slot has moved", moved)
        await controller.once(1)
        half = await granted()
        assert half + half == both
        await controller.once(2)
        assert await granted() == half, "once"
        again = GrantTransfer(id="again", tenant=RISK, amount=half, to_region=EAST, actor=TEST)
        await transfer_grant(databases, again)
        await apart.running(0, node="e1")

    # It is back with its old rows, and gives nothing that it does not have any more.
    await eventually("its database answers", lambda: not databases.is_away(WEST))
    await renew(databases, WEST, "w", lease_seconds=60)
    assert await standings() == [GrantStanding.FITS, GrantStanding.LAPSED]
    twice = GrantTransfer(id="twice", tenant=RISK, amount=half, from_region=WEST, actor=TEST)
    for step in (settle_lapsed(databases, WEST), transfer_grant(databases, twice)):
        with pytest.raises(RefusedError) as no:
            await step
        assert no.value.refusal.code is RefusalCode.GRANT_IN_USE
    await controller.once(3)
    assert await lapsed_regions(databases) == {WEST}
    await release_fenced(databases, WEST, epoch=2, most=100, now=seconds(600))
    await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="it is back")
    assert await lapsed_regions(databases) == frozenset()
    assert (await read_grant_left(databases, WEST, RISK)).rest.is_zero
    assert await granted() == both
    await assert_promises_hold(databases)


async def test_a_region_is_not_opened_with_grant_that_lapsed_after_it_was_settled(
    apart: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = apart.databases
    await renew(databases, WEST, "w", lease_seconds=1)
    await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="it hangs")

    async def is_movable() -> bool:
        return (await read_fact(databases, WEST)).is_movable

    await eventually("its lease has lapsed", is_movable)

    async def settle_too_early(_: Databases, region: RegionId) -> None:
        await settle_lapsed(databases, region)
        await lapse_grants(databases, region, TEST)

    with monkeypatch.context() as patched:
        patched.setattr("durable.authority.recovery.fence.settle_lapsed", settle_too_early)
        with pytest.raises(RefusedError, match="open the region again") as no:
            await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="it is back")
    assert no.value.refusal.code is RefusalCode.GRANT_IN_USE
    assert (await read_fact(databases, WEST)).is_fenced
    await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="it is back")
    assert await lapsed_regions(databases) == frozenset()

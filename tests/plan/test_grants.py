"""Whoever looks at the grants sees which region starves, and which has unused what it waits for."""

import pytest

from durable.model.fleet.capacity import Grant, Quota
from durable.model.ids import RegionId, TenantId
from durable.model.resources import ZERO, Resources
from durable.plan.grants import GrantStanding, judge_grants

EAST, SOUTH, WEST = RegionId("east"), RegionId("south"), RegionId("west")
RISK = TenantId("risk")
FITS, STARVES, HOARDS = GrantStanding.FITS, GrantStanding.STARVES, GrantStanding.HOARDS
UNREACHABLE, LAPSED = GrantStanding.UNREACHABLE, GrantStanding.LAPSED


def cores(number: int) -> Resources:
    return Resources.of(1_000 * number, 0)


def grant(region: RegionId, granted: int, used: int) -> Grant:
    return Grant(
        region=region, tenant=RISK, granted=cores(granted), used=cores(used), protected=ZERO,
        free=cores(granted - used),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("used", "needs", "away", "lapsed", "expected"),
    [
        ((2, 2), {}, {}, frozenset[RegionId](), [FITS, FITS]),
        ((4, 2), {EAST: 3}, {}, frozenset[RegionId](), [STARVES, HOARDS]),
        # Nobody has any of it unused: it is only used up.
        ((4, 4), {EAST: 3}, {}, frozenset[RegionId](), [STARVES, FITS]),
        ((4, 4), {EAST: 3}, {SOUTH: 2}, frozenset[RegionId](), [STARVES, UNREACHABLE, FITS]),
        # What has lapsed is nobody's to give.
        ((4, 2), {EAST: 3}, {SOUTH: 0}, frozenset({WEST}), [STARVES, LAPSED]),
    ],
)
def test_each_grant_says_how_it_stands(
    used: tuple[int, int],
    needs: dict[RegionId, int],
    away: dict[RegionId, int],
    lapsed: frozenset[RegionId],
    expected: list[GrantStanding],
) -> None:
    quota = Quota(tenant=RISK, hard=cores(10), target=cores(10), protected=ZERO, granted=cores(8))
    reports = judge_grants(
        quota,
        [grant(EAST, 4, used[0]), grant(WEST, 4, used[1])],
        {region: cores(number) for region, number in needs.items()},
        {region: cores(number) for region, number in away.items()},
        lapsed,
    )
    assert [one.standing for one in reports] == expected

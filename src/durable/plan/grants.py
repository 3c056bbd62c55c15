"""How every region stands with the grants of every tenant: who starves, and who has it unused."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.quota.lapses import lapsed_regions
from durable.authority.quota.quotas import read_booked
from durable.authority.quota.rebalancing import read_needs
from durable.authority.reads.census import take_census
from durable.model.fleet.capacity import Grant, Quota
from durable.model.ids import RegionId, TenantId
from durable.model.resources import ZERO, Resources
from durable.validation.value import Value


class GrantStanding(StrEnum):
    """Whether a region's grant is where it is needed."""

    FITS = "fits"
    # Slots wait there for more of it.
    STARVES = "starves"
    # It has some unused for which slots wait elsewhere.
    HOARDS = "hoards"
    # It cannot be asked for what it does not use.
    UNREACHABLE = "unreachable"
    # The books withdrew it while the region was unreachable.
    LAPSED = "lapsed"


class GrantReport(Value):
    """One tenant's grant in one region; what is not known of an unreachable region is None."""

    tenant: TenantId
    region: RegionId
    granted: Resources
    used: Resources | None
    # How much more slots wait for there.
    needs: Resources
    standing: GrantStanding
    note: str


async def report_grants(databases: Databases) -> tuple[list[GrantReport], UnreachableRegions]:
    """Every grant, with what its region's queue waits for."""
    census = await take_census(databases)
    unreachable = await read_booked(databases, list(census.unreachable))
    lapsed = await lapsed_regions(databases)
    regions = [one.region.region for one in census.regions]
    needs = await ask_regions(regions, lambda one: read_needs(databases, one))
    reports: list[GrantReport] = []
    for tenant in census.tenants:
        name = tenant.quota.tenant
        wanted = {one: needs.by_region.get(one, {}).get(name, ZERO) for one in regions}
        booked = {one: granted[name] for one, granted in unreachable.items() if name in granted}
        reports += judge_grants(tenant.quota, tenant.grants, wanted, booked, lapsed)
    return reports, {**census.unreachable, **needs.unreachable}


def judge_grants(
    quota: Quota,
    grants: Sequence[Grant],
    needs: Mapping[RegionId, Resources],
    unreachable: Mapping[RegionId, Resources],
    lapsed: frozenset[RegionId],
) -> list[GrantReport]:
    """The grants of one tenant; `unreachable` regions were granted that much. Pure."""
    starving = [region for region, need in sorted(needs.items()) if not need.is_zero]
    unused = {one.region: one.free for one in grants if one.region not in lapsed}
    ungranted = quota.target.excess_over(quota.granted)

    def judge(grant: Grant) -> GrantReport:
        region, need = grant.region, needs.get(grant.region, ZERO)
        elsewhere = sum((rest for one, rest in unused.items() if one != region), start=ZERO)
        others = [one for one in starving if one != region]
        standing, note = GrantStanding.FITS, ""
        if region in lapsed:
            standing = GrantStanding.LAPSED
            note = "withdrawn while the region was unreachable; it is lowered before it opens"
        elif not need.is_zero:
            standing = GrantStanding.STARVES
            note = f"{elsewhere} unused elsewhere, {ungranted} ungranted"
        elif others and not unused[region].is_zero:
            standing = GrantStanding.HOARDS
            note = f"{unused[region]} unused, while slots wait for it in {', '.join(others)}"
        return GrantReport(
            tenant=quota.tenant,
            region=region,
            granted=grant.granted,
            used=grant.used,
            needs=need,
            standing=standing,
            note=note,
        )

    cut_off = [
        GrantReport(
            tenant=quota.tenant,
            region=region,
            granted=amount,
            used=None,
            needs=ZERO,
            standing=GrantStanding.UNREACHABLE,
            note="it lapses once the region is fenced, its lease is over and its slots have moved",
        )
        for region, amount in unreachable.items()
        if not amount.is_zero
    ]
    reports = [judge(one) for one in grants] + cut_off
    return sorted(reports, key=lambda one: one.region)

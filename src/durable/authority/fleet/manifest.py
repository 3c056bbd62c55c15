"""Applies a declared fleet to the authority, step by step; every step is idempotent."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.nodes import MAX_NODES_PER_CALL, declare_nodes
from durable.authority.fleet.policies import use_shipped_policy
from durable.authority.fleet.regions import add_region, list_regions
from durable.authority.operators.authorization import check_right
from durable.authority.operators.refusals import audits_refusals
from durable.authority.overrides.copies import copy_overrides
from durable.authority.quota.budgets import read_budget, set_budget
from durable.authority.quota.grants import read_grant_left, read_overdrafts
from durable.authority.quota.quotas import amount_of, read_quota, set_quota
from durable.authority.quota.rebalancing import resume_transfers
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.census import take_census
from durable.model.fleet.manifest import Fleet, NodeSpec, Region, TenantSpec
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.operators.rights import EVERYTHING, Verb
from durable.model.resources import DIMENSIONS, ZERO, Resources

_GRANTED = text("SELECT * FROM global.grants WHERE tenant = :tenant ORDER BY region")


@audits_refusals
async def apply_fleet(
    databases: Databases,
    fleet: Fleet,
    *,
    actor: ActorId,
    request: str,
    report: Callable[[str], None],
) -> UnreachableRegions:
    """Adds what is missing and moves what differs; what the manifest does not name stays.

    Every part is idempotent, so a load that was cut off is finished by loading again. So is one
    that some regions did not answer: those, and grants to them, are left out.
    """
    await check_right(databases, actor, Verb.FLEET, EVERYTHING)
    declared = {region.id: region for region in fleet.regions}
    applied = await ask_regions(
        declared, lambda region: _apply_region(databases, declared[region], actor)
    )
    for region in applied.by_region:
        nodes = sum(pool.count for pool in declared[region].pools)
        report(f"Region {region}: {nodes} nodes")
    for tenant in fleet.tenants:
        report(f"Tenant {tenant.id}: {tenant.hard}")
        for line in await _apply_tenant(databases, tenant, actor, request, applied.unreachable):
            report(line)
    for line in await _left_alone(databases, fleet):
        report(line)
    return applied.unreachable


async def _apply_region(databases: Databases, region: Region, actor: ActorId) -> None:
    await _declare_region(databases, region, actor)
    await use_shipped_policy(databases, [region.id], actor)


async def _declare_region(databases: Databases, region: Region, actor: ActorId) -> None:
    await add_region(databases, region.id, actor, region.zones)
    await copy_overrides(databases, region.id)
    nodes: Sequence[NodeSpec] = tuple(region.nodes())
    for first in range(0, len(nodes), MAX_NODES_PER_CALL):
        part = nodes[first : first + MAX_NODES_PER_CALL]
        await declare_nodes(databases, region.id, part, actor=actor)
    headroom = region.recovery_headroom
    if headroom is None:
        return
    now = await _read_clock(databases, region.id)
    kept = await read_budget(databases, region.id, headroom.id)
    # Loading again does not postpone its expiry, and never changes a budget that an incident draws
    # on: a person decides that when the time has come.
    if kept is None or (
        kept.incident is None and (kept.amount != headroom.resources or kept.expires_at <= now)
    ):
        await set_budget(
            databases,
            region.id,
            headroom.id,
            headroom.resources,
            expires_at=now + headroom.expires_in,
            actor=actor,
        )


async def _left_alone(databases: Databases, fleet: Fleet) -> list[str]:
    """What exists but is not in the manifest: it may be in use, so it is reported, not removed."""
    census = await take_census(databases)
    declared = {region.id: sum(pool.count for pool in region.pools) for region in fleet.regions}
    lines: list[str] = []
    for region in census.regions:
        extra = sum(pool.nodes for pool in region.pools) - declared.get(region.region.region, 0)
        if extra > 0:
            name = region.region.region
            lines.append(
                f"Left as they are: {extra} nodes of {name} that the manifest does not name"
            )
    named = {tenant.id for tenant in fleet.tenants}
    strangers = [c.quota.tenant for c in census.tenants if c.quota.tenant not in named]
    if strangers:
        lines.append(
            f"Left as they are: tenants that the manifest does not name: {', '.join(strangers)}"
        )
    return lines


@regional_transaction("durable_reader", "read the clock of {region}")
async def _read_clock(connection: AsyncConnection, region: RegionId) -> datetime:
    return await read_clock(connection)


async def _apply_tenant(
    databases: Databases,
    tenant: TenantSpec,
    actor: ActorId,
    request: str,
    missing: UnreachableRegions,
) -> list[str]:
    """Brings unused grants to what the manifest says, and reports those that are in use.

    The quota controller moves grants to where they are needed, and what is in use stays there.
    """
    id = tenant.id
    await set_quota(databases, id, hard=tenant.hard, protected=tenant.protected, actor=actor)
    await resume_transfers(databases, id)
    grants = {region: one for region, one in tenant.grants.items() if region not in missing}
    # What a region has too much of comes back first, so that it can be granted elsewhere.
    for region, wanted in grants.items():
        excess = (await _granted(databases, id, region)).excess_over(wanted)
        back = excess.lower_of((await read_grant_left(databases, region, id)).rest)
        await _transfer(databases, id, back, region, None, actor, f"{request}/back")
    lines: list[str] = []
    for region, wanted in grants.items():
        quota = await read_quota(databases, id)
        lacking = wanted.excess_over(await _granted(databases, id, region))
        # What runs on an emergency quota that is over comes first, wherever it runs.
        kept = quota.granted + await _overdrawn(databases, id, missing)
        out = lacking.lower_of(quota.target.excess_over(kept))
        await _transfer(databases, id, out, None, region, actor, f"{request}/out")
        granted = await _granted(databases, id, region)
        if granted != wanted:
            lines.append(
                f"Left as it is: the grant of {id} in {region} is {granted}, not {wanted} as the "
                "manifest says, because of what is in use"
            )
    await _protect(databases, tenant, actor, request, missing)
    reclaiming = (await read_quota(databases, id)).reclaiming
    return lines if reclaiming is None else [*lines, f"Not done yet: {reclaiming}"]


async def _overdrawn(
    databases: Databases, tenant: TenantId, missing: UnreachableRegions
) -> Resources:
    regions = [one for one in await list_regions(databases) if one not in missing]
    overdrafts = [await read_overdrafts(databases, region) for region in regions]
    return sum((each.get(tenant, ZERO) for each in overdrafts), start=ZERO)


async def _protect(
    databases: Databases,
    tenant: TenantSpec,
    actor: ActorId,
    request: str,
    missing: UnreachableRegions,
) -> None:
    """Divides what is protected over the grants as they are now, as the manifest says."""
    booked = {
        region: one
        for region, one in (await _read_booked(databases, tenant.id)).items()
        if region not in missing
    }
    granted = {region: grant for region, (grant, _) in booked.items()}
    shares = divide_protected(tenant, granted)
    for region, (_, protected) in booked.items():
        back = protected.excess_over(shares[region])
        await _transfer(
            databases, tenant.id, ZERO, region, None, actor, f"{request}/unprotect", back
        )
    for region, (_, protected) in booked.items():
        out = shares[region].excess_over(protected)
        await _transfer(databases, tenant.id, ZERO, None, region, actor, f"{request}/protect", out)


def divide_protected(
    tenant: TenantSpec, granted: Mapping[RegionId, Resources]
) -> dict[RegionId, Resources]:
    """How much of each grant is protected: in proportion to what the manifest grants, as far as the
    region has it, and the rest wherever it has room, so that none of it is lost."""
    shares = {
        region: _share(tenant, tenant.grants.get(region, ZERO)).lower_of(grant)
        for region, grant in granted.items()
    }
    for region, grant in sorted(granted.items()):
        rest = tenant.protected.excess_over(sum(shares.values(), start=ZERO))
        shares[region] = shares[region] + rest.lower_of(grant - shares[region])
    return shares


def _share(tenant: TenantSpec, grant: Resources) -> Resources:
    """A region's part of what is protected, in proportion to its grant."""
    whole = tenant.granted
    return Resources(
        **{
            name: getattr(tenant.protected, name) * getattr(grant, name) // getattr(whole, name)
            if getattr(whole, name)
            else 0
            for name in DIMENSIONS
        }
    )


async def _granted(databases: Databases, tenant: TenantId, region: RegionId) -> Resources:
    granted, _ = (await _read_booked(databases, tenant)).get(region, (ZERO, ZERO))
    return granted


@global_transaction("durable_reader", "read the grants of {tenant}")
async def _read_booked(
    connection: AsyncConnection, tenant: TenantId
) -> dict[RegionId, tuple[Resources, Resources]]:
    """By the books: what each region was granted, and how much of it is protected."""
    rows = (await connection.execute(_GRANTED, {"tenant": tenant})).mappings()
    return {
        RegionId(row["region"]): (amount_of(row, "granted_"), amount_of(row, "protected_"))
        for row in rows
    }


async def _transfer(
    databases: Databases,
    tenant: TenantId,
    amount: Resources,
    from_region: RegionId | None,
    to_region: RegionId | None,
    actor: ActorId,
    request: str,
    protected: Resources = ZERO,
) -> None:
    if amount.is_zero and protected.is_zero:
        return
    await transfer_grant(
        databases,
        GrantTransfer(
            id=f"{request}/{tenant}/{from_region or to_region}",
            tenant=tenant,
            amount=amount,
            protected=protected,
            from_region=from_region,
            to_region=to_region,
            actor=actor,
        ),
    )

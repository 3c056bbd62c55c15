"""Applies a declared fleet to the authority, step by step; every step is idempotent."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.nodes import MAX_NODES_PER_CALL, declare_nodes
from durable.authority.fleet.policies import use_shipped_policy
from durable.authority.fleet.regions import add_region
from durable.authority.operators.authorization import check_right
from durable.authority.operators.refusals import audits_refusals
from durable.authority.overrides.copies import copy_overrides
from durable.authority.quota.budgets import read_budget, set_budget
from durable.authority.quota.grants import protect_grant, read_unused_grant
from durable.authority.quota.quotas import amount_of, read_quota, set_quota
from durable.authority.quota.rebalancing import resume_transfers
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.census import take_census
from durable.model.fleet.manifest import Fleet, NodeSpec, Region, TenantSpec
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.operators.rights import EVERYTHING, Verb
from durable.model.resources import DIMENSIONS, ZERO, Resources

_GRANTED = text("""
    SELECT granted_cpu_millis, granted_memory_mib, granted_gpus
      FROM global.grants WHERE tenant = :tenant AND region = :region
""")


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
        back = excess.lower_of(await read_unused_grant(databases, region, id))
        await _transfer(databases, id, back, region, None, actor, f"{request}/back")
    lines: list[str] = []
    for region, wanted in grants.items():
        quota = await read_quota(databases, id)
        lacking = wanted.excess_over(await _granted(databases, id, region))
        out = lacking.lower_of(quota.target.excess_over(quota.granted))
        await _transfer(databases, id, out, None, region, actor, f"{request}/out")
        granted = await _granted(databases, id, region)
        await protect_grant(databases, region, id, _share(tenant, wanted).lower_of(granted))
        if granted != wanted:
            lines.append(
                f"Left as it is: the grant of {id} in {region} is {granted}, not {wanted} as the "
                "manifest says, because of what is in use"
            )
    reclaiming = (await read_quota(databases, id)).reclaiming
    return lines if reclaiming is None else [*lines, f"Not done yet: {reclaiming}"]


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


@global_transaction("durable_reader", "read the grants of {tenant}")
async def _granted(connection: AsyncConnection, tenant: TenantId, region: RegionId) -> Resources:
    found = await connection.execute(_GRANTED, {"tenant": tenant, "region": region})
    row = found.mappings().one_or_none()
    return ZERO if row is None else amount_of(row, "granted_")


async def _transfer(
    databases: Databases,
    tenant: TenantId,
    amount: Resources,
    from_region: RegionId | None,
    to_region: RegionId | None,
    actor: ActorId,
    request: str,
) -> None:
    if amount.is_zero:
        return
    await transfer_grant(
        databases,
        GrantTransfer(
            id=f"{request}/{tenant}/{from_region or to_region}",
            tenant=tenant,
            amount=amount,
            from_region=from_region,
            to_region=to_region,
            actor=actor,
        ),
    )

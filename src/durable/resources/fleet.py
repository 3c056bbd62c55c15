"""Nodes, regions, tenants, grants and recovery budgets, as lists show them."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import AwareDatetime

from durable.authority.cache.region_read import RegionRead, read_whole
from durable.authority.db.clock import read_time
from durable.authority.db.everywhere import ask_regions
from durable.authority.reads.census import RegionCensus, take_census
from durable.authority.recovery.region_facts import read_facts
from durable.model.fleet.capacity import Grant, Quota, RecoveryBudget
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import NodeId, PoolId, RegionId, ZoneId
from durable.model.recovery.detection import LossKind
from durable.model.resources import Resources
from durable.model.states import RegionState
from durable.plan.grants import GrantReport, report_grants
from durable.resources.resource import Filters, Rows, Sources
from durable.scheduling.snapshot.region import NodeFacts
from durable.validation.value import Value


class NodeRow(Value):
    node: NodeId
    region: RegionId
    zone: ZoneId
    pool: PoolId
    capacity: Resources
    used: Resources
    state: str
    live: bool
    cordoned: str | None
    cordoned_by: str | None
    dedicated_to: str | None
    labels: Mapping[str, str]
    taints: tuple[str, ...]


async def read_nodes(sources: Sources, filters: Filters) -> Rows[NodeRow]:
    answers = await ask_regions(
        await sources.select_regions(filters.region),
        lambda region: read_whole(sources.databases, region),
    )
    rows = [_node_row(read, node) for read in answers.by_region.values() for node in read.nodes]
    return Rows(rows, answers.unreachable)


def _node_row(read: RegionRead, node: NodeFacts) -> NodeRow:
    expires = node.lease_expires_at
    return NodeRow(
        node=NodeId(node.node),
        region=read.region,
        zone=ZoneId(node.zone),
        pool=PoolId(node.pool),
        capacity=Resources.of(*node.capacity),
        used=Resources.of(*node.used),
        state=node.state,
        live=node.lease_epoch == read.epoch and expires is not None and expires > read.read_at,
        cordoned=node.cordon_reason,
        cordoned_by=node.cordoned_by,
        dedicated_to=node.dedicated_to,
        labels=dict(node.labels),
        taints=tuple(f"{t['key']}={t['value']}:{t['effect']}" for t in node.taints),
    )


class RegionRow(Value):
    """A region as the global side takes it, which it may not know itself yet.

    Of one whose database does not answer, what only that knows is None.
    """

    region: RegionId
    state: RegionState
    epoch: int
    version: int | None
    nodes: int | None
    live: int | None
    capacity: Resources | None
    used: Resources | None
    # What it is taken for from outside.
    seen: str
    # Since when it is not open or not healthy, and why.
    since: AwareDatetime | None
    why: str
    # Until when, by whom and why nothing that is seen of it is taken for its loss.
    maintenance: str


async def read_region_rows(sources: Sources, filters: Filters) -> Rows[RegionRow]:
    census, facts = await take_census(sources.databases), await read_facts(sources.databases)
    known = {one.region.region: one for one in census.regions}
    away = facts.keys() - known.keys()
    rows = [_region_row(one, facts.get(region)) for region, one in known.items()]
    rows += [_region_row(None, facts[region]) for region in away]
    return Rows(sorted(rows, key=lambda one: one.region), census.unreachable)


def _region_row(one: RegionCensus | None, fact: RegionFact | None) -> RegionRow:
    status = one.region if one is not None else fact
    assert status is not None, "one of the two knows it"
    state = status.state if fact is None else fact.state
    seen = None if fact is None else fact.seen
    since, why = None, ""
    if fact is not None and state is not RegionState.OPEN:
        since, why = fact.since, fact.reason
    elif seen is not None and seen.kind is not LossKind.HEALTHY:
        since, why = seen.since, seen.sentence
    return RegionRow(
        region=status.region,
        state=state,
        epoch=status.epoch,
        version=None if one is None else one.region.version,
        nodes=None if one is None else sum(pool.nodes for pool in one.pools),
        live=None if one is None else sum(pool.live for pool in one.pools),
        capacity=None if one is None else one.capacity,
        used=None if one is None else one.used,
        seen="" if seen is None else seen.kind,
        since=since,
        why=why,
        maintenance="" if fact is None else str(fact.current_maintenance or ""),
    )


class TenantRow(Quota):
    """A tenant's quota, and what its regions use of it."""

    used: Resources
    grants: tuple[Grant, ...]


async def read_tenants(sources: Sources, filters: Filters) -> Rows[TenantRow]:
    census = await take_census(sources.databases)
    rows = [
        TenantRow(**dict(tenant.quota), used=tenant.used, grants=tenant.grants)
        for tenant in census.tenants
    ]
    return Rows(rows, census.unreachable)


async def read_grants(sources: Sources, filters: Filters) -> Rows[GrantReport]:
    reports, unreachable = await report_grants(sources.databases)
    rows = [
        one
        for one in reports
        if filters.tenant in (None, one.tenant) and filters.region in (None, one.region)
    ]
    return Rows(rows, unreachable)


class BudgetRow(RecoveryBudget):
    """A recovery budget, and whether it is kept, open, exhausted or expired."""

    state: str


async def read_budgets(sources: Sources, filters: Filters) -> Rows[BudgetRow]:
    census, now = await take_census(sources.databases), await read_time(sources.databases)
    budgets = [budget for one in census.regions for budget in one.budgets]
    rows = [budget_row(one, now) for one in budgets if filters.region in (None, one.region)]
    return Rows(rows, census.unreachable)


def budget_row(budget: RecoveryBudget, now: datetime) -> BudgetRow:
    state = "kept" if budget.incident is None else "open"
    if budget.incident is not None and not any(budget.amount.excess_over(budget.used).amounts):
        state = "exhausted"
    if budget.expires_at <= now:
        state = "expired"
    return BudgetRow(**dict(budget), state=state)

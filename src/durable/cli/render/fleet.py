"""Rows about nodes, tenants and regions; programs get amounts as whole numbers with their units."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from durable.authority.cache.region_read import RegionRead
from durable.authority.reads.census import RegionCensus, TenantCensus
from durable.cli.render.tables import Row
from durable.model.fleet.capacity import Grant, RecoveryBudget
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import BudgetId, IncidentId, NodeId, PoolId, RegionId, TenantId, ZoneId
from durable.model.recovery.detection import LossKind
from durable.model.resources import Resources
from durable.model.states import RegionState
from durable.plan.grants import GrantReport, GrantStanding
from durable.scheduling.snapshot.region import NodeFacts


class NodeRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset({"labels", "taints"})

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


class TenantRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset({"grants"})

    tenant: TenantId
    hard: Resources
    target: Resources
    protected: Resources
    granted: Resources
    used: Resources
    grants: tuple[Grant, ...]


class GrantRow(Row):
    tenant: TenantId
    region: RegionId
    granted: Resources
    used: Resources | None
    needs: Resources
    standing: GrantStanding
    note: str


class BudgetRow(Row):
    region: RegionId
    budget: BudgetId
    amount: Resources
    drawn: Resources
    state: str
    incident: IncidentId | None
    expires_at: datetime


class RegionRow(Row):
    region: RegionId
    state: str
    epoch: int
    version: int
    nodes: int
    live: int
    capacity: Resources
    used: Resources
    # What it is taken for from outside.
    seen: str
    # Since when it is not open or not healthy, and why.
    since: datetime | None
    why: str


def node_row(read: RegionRead, node: NodeFacts) -> NodeRow:
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


def grant_row(one: GrantReport) -> GrantRow:
    return GrantRow(**dict(one))


def budget_row(budget: RecoveryBudget, now: datetime) -> BudgetRow:
    state = "kept" if budget.incident is None else "open"
    if budget.incident is not None and not any(budget.amount.excess_over(budget.used).amounts):
        state = "exhausted"
    if budget.expires_at <= now:
        state = "expired"
    return BudgetRow(
        region=budget.region,
        budget=budget.budget,
        amount=budget.amount,
        drawn=budget.used,
        state=state,
        incident=budget.incident,
        expires_at=budget.expires_at,
    )


def tenant_row(one: TenantCensus) -> TenantRow:
    return TenantRow(
        tenant=one.quota.tenant,
        hard=one.quota.hard,
        target=one.quota.target,
        protected=one.quota.protected,
        granted=one.quota.granted,
        used=one.used,
        grants=one.grants,
    )


def region_row(one: RegionCensus, fact: RegionFact | None) -> RegionRow:
    """The global side knows what a region is taken for; the region itself may not know it yet."""
    state = one.region.state if fact is None else fact.state
    seen = None if fact is None else fact.seen
    since, why = None, ""
    if fact is not None and state is not RegionState.OPEN:
        since, why = fact.since, fact.reason
    elif seen is not None and seen.kind is not LossKind.HEALTHY:
        since, why = seen.since, seen.sentence
    return RegionRow(
        region=one.region.region,
        state=state.value,
        epoch=one.region.epoch,
        version=one.region.version,
        nodes=sum(pool.nodes for pool in one.pools),
        live=sum(pool.live for pool in one.pools),
        capacity=one.capacity,
        used=one.used,
        seen="" if seen is None else seen.kind,
        since=since,
        why=why,
    )

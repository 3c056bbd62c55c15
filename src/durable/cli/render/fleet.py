"""Rows about nodes, tenants and regions; programs get amounts as whole numbers with their units."""

from collections.abc import Mapping
from typing import ClassVar

from durable.authority.cache.region_read import RegionRead
from durable.authority.reads.census import RegionCensus, TenantCensus
from durable.cli.render.tables import Row
from durable.model.capacity import Grant
from durable.model.ids import NodeId, PoolId, RegionId, TenantId, ZoneId
from durable.model.resources import Resources
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


class RegionRow(Row):
    region: RegionId
    state: str
    epoch: int
    version: int
    nodes: int
    live: int
    capacity: Resources
    used: Resources


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


def region_row(one: RegionCensus) -> RegionRow:
    return RegionRow(
        region=one.region.region,
        state=one.region.state.value,
        epoch=one.region.epoch,
        version=one.region.version,
        nodes=sum(pool.nodes for pool in one.pools),
        live=sum(pool.live for pool in one.pools),
        capacity=one.capacity,
        used=one.used,
    )

"""Where work can run: regions with zones, pools of nodes and capacity kept for recovery."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from durable.model.ids import BudgetId, DeviceId, NodeId, PoolId, RegionId, TenantId, ZoneId
from durable.model.labels import Labels, Taint
from durable.model.resources import ZERO, Capacity, Resources
from durable.validation.durations import Duration
from durable.validation.problems import Finding, refuse, repeated
from durable.validation.text import quote
from durable.validation.value import Value

MAX_NODES = 60_000
MAX_GPUS_PER_NODE = 64


class NodeSpec(Value):
    """One node of a pool, as it is before its agent ever reported."""

    id: NodeId
    region: RegionId
    zone: ZoneId
    pool: PoolId
    capacity: Capacity
    devices: tuple[DeviceId, ...]
    labels: Labels
    taints: tuple[Taint, ...]
    dedicated_to: TenantId | None


class PoolSpec(Value):
    """Nodes of one shape in one zone."""

    name: PoolId
    zone: ZoneId
    count: Annotated[int, Field(ge=0, le=MAX_NODES)]
    capacity: Capacity
    labels: Labels = Field(default={})
    taints: Annotated[tuple[Taint, ...], Field(max_length=16)] = ()
    dedicated_to: TenantId | None = None

    def node_name(self, region: RegionId, number: int) -> str:
        return f"{region}-{self.name}-{number:04}"

    def nodes(self, region: RegionId) -> Iterator[NodeSpec]:
        """The nodes, named by number, so that a pool that grows renames none of them."""
        devices = tuple(DeviceId(f"gpu-{number}") for number in range(self.capacity.gpus))
        for number in range(self.count):
            yield NodeSpec(
                id=NodeId(self.node_name(region, number)),
                region=region,
                zone=self.zone,
                pool=self.name,
                capacity=self.capacity,
                devices=devices,
                labels=self.labels,
                taints=self.taints,
                dedicated_to=self.dedicated_to,
            )


class RecoveryHeadroom(Value):
    """Capacity of a region that ordinary work may not use, for as long as it lasts."""

    id: BudgetId
    resources: Resources
    expires_in: Duration


class Region(Value):
    id: RegionId
    zones: Annotated[tuple[ZoneId, ...], Field(min_length=1, max_length=64)]
    pools: Annotated[tuple[PoolSpec, ...], Field(max_length=1_000)] = ()
    recovery_headroom: RecoveryHeadroom | None = None

    @property
    def capacity(self) -> Resources:
        return sum((pool.capacity * pool.count for pool in self.pools), start=ZERO)

    def nodes(self) -> Iterator[NodeSpec]:
        for pool in self.pools:
            yield from pool.nodes(self.id)

    @model_validator(mode="after")
    def _make_sense_by_itself(self) -> Self:
        names = ((("pools", index, "name"), pool.name) for index, pool in enumerate(self.pools))
        refuse(type(self).__name__, [*repeated(names), *self._odd_pools(), *self._odd_headroom()])
        return self

    def _odd_pools(self) -> Iterator[Finding]:
        for index, pool in enumerate(self.pools):
            here = ("pools", index)
            if pool.zone not in self.zones:
                known = ", ".join(self.zones)
                clause = f"got {quote(pool.zone)}; allowed: a zone of {self.id}: {known}"
                yield Finding((*here, "zone"), pool.zone, clause)
            if pool.capacity.gpus > MAX_GPUS_PER_NODE:
                clause = f"got {pool.capacity.gpus} gpus a node; allowed: up to {MAX_GPUS_PER_NODE}"
                yield Finding((*here, "capacity"), pool.capacity, clause)
            longest = self.longest_name(pool)
            if len(longest) > NodeId.max_length:
                clause = f"its nodes would be called {quote(longest)}"
                allowed = f"node names of up to {NodeId.max_length} characters"
                yield Finding((*here, "name"), pool.name, f"{clause}; allowed: {allowed}")

    def longest_name(self, pool: PoolSpec) -> str:
        return pool.node_name(self.id, max(pool.count - 1, 0))

    def _odd_headroom(self) -> Iterator[Finding]:
        if self.recovery_headroom is None:
            return
        kept = self.recovery_headroom.resources
        if not kept.fits_in(self.capacity):
            clause = f"got {kept}, which is {kept.show_excess(self.capacity)} too much"
            allowed = f"headroom within the region's capacity of {self.capacity}"
            location = ("recovery_headroom", "resources")
            yield Finding(location, kept, f"{clause}; allowed: {allowed}")

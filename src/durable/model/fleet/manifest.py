"""The fleet as its manifest declares it: regions with zones and pools, tenants with quotas."""

from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from itertools import chain, islice
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from durable.model.fleet.labels import Labels, Taint
from durable.model.ids import BudgetId, DeviceId, NodeId, PoolId, RegionId, TenantId, ZoneId
from durable.model.resources import NOTHING, ZERO, Capacity, Resources, plus, times
from durable.validation.problems import Finding, Location, refuse, repeated
from durable.validation.quantities import Duration
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

    @field_validator("id")
    @classmethod
    def _leave_overrides_their_names(cls, id: BudgetId) -> BudgetId:
        if "/" in id:
            raise ValueError(f"got '{id}'; allowed: a name without override/")
        return id


class Region(Value):
    id: RegionId
    zones: Annotated[tuple[ZoneId, ...], Field(min_length=1, max_length=64)]
    pools: Annotated[tuple[PoolSpec, ...], Field(max_length=1_000)] = ()
    recovery_headroom: RecoveryHeadroom | None = None

    @property
    def capacity(self) -> Resources:
        each = (times(pool.capacity.amounts, pool.count) for pool in self.pools)
        return Resources.clipped(reduce(plus, each, NOTHING))

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


_NAMES_SHOWN = 20


class TenantSpec(Value):
    """A tenant's hard quota, the part of it that may not be preempted, and its split by region."""

    id: TenantId
    hard: Resources
    protected: Resources = ZERO
    grants: Mapping[RegionId, Resources] = Field(default={}, max_length=64)

    @property
    def granted(self) -> Resources:
        return sum(self.grants.values(), start=ZERO)

    @model_validator(mode="after")
    def _promise_no_more_than_the_hard_quota(self) -> Self:
        refuse(type(self).__name__, self._excess())
        return self

    def _excess(self) -> Iterator[Finding]:
        if not self.protected.fits_in(self.hard):
            clause = (
                f"got {self.protected}, which is {self.protected.show_excess(self.hard)} too much"
            )
            allowed = f"protected capacity within the hard quota of {self.hard}"
            yield Finding(("protected",), self.protected, f"{clause}; allowed: {allowed}")
        if not self.granted.fits_in(self.hard):
            excess = self.granted.show_excess(self.hard)
            clause = f"got {self.granted} in all, which is {excess} too much"
            allowed = f"grants that add up to the hard quota of {self.hard} at most"
            yield Finding(("grants",), self.grants, f"{clause}; allowed: {allowed}")


class Fleet(Value):
    """Everything that there is to schedule on, and everyone that may."""

    regions: Annotated[tuple[Region, ...], Field(min_length=1, max_length=64)]
    tenants: Annotated[tuple[TenantSpec, ...], Field(max_length=10_000)] = ()

    def nodes(self) -> Iterator[NodeSpec]:
        for region in self.regions:
            yield from region.nodes()

    @model_validator(mode="after")
    def _make_sense_as_a_whole(self) -> Self:
        findings = chain(
            repeated((("regions", at, "id"), region.id) for at, region in enumerate(self.regions)),
            repeated((("tenants", at, "id"), tenant.id) for at, tenant in enumerate(self.tenants)),
            repeated(self._zones()),
            repeated(self._headrooms()),
            self._nodes_of_one_name(),
            self._unknown_tenants(),
            self._unknown_regions(),
            self._too_many_nodes(),
        )
        refuse(type(self).__name__, findings)
        return self

    def _zones(self) -> Iterator[tuple[Location, str]]:
        for at, region in enumerate(self.regions):
            for index, zone in enumerate(region.zones):
                yield ("regions", at, "zones", index), zone

    def _headrooms(self) -> Iterator[tuple[Location, str]]:
        for at, region in enumerate(self.regions):
            if region.recovery_headroom is not None:
                yield ("regions", at, "recovery_headroom", "id"), region.recovery_headroom.id

    def _pools(self) -> Iterator[tuple[Location, Region, PoolSpec]]:
        for at, region in enumerate(self.regions):
            for index, pool in enumerate(region.pools):
                yield ("regions", at, "pools", index), region, pool

    def _nodes_of_one_name(self) -> Iterator[Finding]:
        # Region `eu`, pool `west-gpu` would name its nodes like region `eu-west`, pool `gpu`.
        owner: dict[str, Region] = {}
        for location, region, pool in self._pools():
            prefix = f"{region.id}-{pool.name}"
            other = owner.setdefault(prefix, region)
            if other is not region:
                clause = f"its nodes would be called {prefix}-0000 as those of region {other.id}"
                allowed = "node names that no other region has"
                yield Finding((*location, "name"), pool.name, f"{clause}; allowed: {allowed}")

    def _unknown_tenants(self) -> Iterator[Finding]:
        known = dict.fromkeys(tenant.id for tenant in self.tenants)
        for location, _, pool in self._pools():
            if pool.dedicated_to is not None and pool.dedicated_to not in known:
                place = (*location, "dedicated_to")
                yield _stranger(place, pool.dedicated_to, "a tenant of this fleet", known)

    def _unknown_regions(self) -> Iterator[Finding]:
        known = dict.fromkeys(region.id for region in self.regions)
        for at, tenant in enumerate(self.tenants):
            for region in tenant.grants:
                if region not in known:
                    place = ("tenants", at, "grants", region)
                    yield _stranger(place, region, "a region of this fleet", known)

    def _too_many_nodes(self) -> Iterator[Finding]:
        total = sum(pool.count for _, _, pool in self._pools())
        if total > MAX_NODES:
            clause = f"got {total} nodes in all; allowed: up to {MAX_NODES}"
            yield Finding(("regions",), total, clause)


def _stranger(location: Location, name: str, kind: str, known: Collection[str]) -> Finding:
    listed = ", ".join(islice(known, _NAMES_SHOWN)) + (", ..." if len(known) > _NAMES_SHOWN else "")
    return Finding(location, name, f"got {quote(name)}; allowed: {kind}: {listed or 'none'}")

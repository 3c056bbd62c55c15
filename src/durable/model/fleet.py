"""The fleet as its manifest declares it: what must hold across its regions and tenants."""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, islice
from typing import Annotated, Self

from pydantic import Field, model_validator

from durable.model.ids import RegionId, TenantId
from durable.model.regions import MAX_NODES, NodeSpec, PoolSpec, Region
from durable.model.resources import ZERO, Resources
from durable.validation.locations import Location
from durable.validation.problems import Finding, refuse, repeated
from durable.validation.text import quote
from durable.validation.value import Value

_NAMES_SHOWN = 20


class TenantSpec(Value):
    """A tenant's hard quota, the part of it that nobody may preempt, and its split by region."""

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

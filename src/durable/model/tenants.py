"""Who shares the fleet: each tenant's hard quota and how the regions divide it."""

from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import Field, model_validator

from durable.model.ids import RegionId, TenantId
from durable.model.resources import ZERO, Resources
from durable.validation.findings import Finding, refuse
from durable.validation.value import Value


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

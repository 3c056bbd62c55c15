"""What would become of critical work if a region were lost now."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.placement.pending import Pending
from durable.validation.value import Value

Name = tuple[TenantId, WorkloadName]


class Recoverable(Value):
    """Whether a critical workload would come back in time, whichever region were lost."""

    is_met: bool
    sentence: str


class WorkloadReadiness(Value):
    """One critical workload after the simulated loss of one region."""

    tenant: TenantId
    workload: WorkloadName
    priority: int
    # Replicas in the lost region, and those that the other regions have already.
    lost: Annotated[int, Field(ge=0)]
    kept: Annotated[int, Field(ge=0)]
    # How many of the lost ones must serve again, and how many would find a node, and where.
    needed: Annotated[int, Field(ge=0)]
    recovers: Mapping[RegionId, int] = Field(default={})
    # From the loss until enough of them serve: detection, the fence, the move, the start.
    estimated_seconds: float
    objective_seconds: float
    # Why not all find a node, or where none may be looked for.
    pending: Pending | None = None
    refused: str = ""

    @property
    def recovered(self) -> int:
        return sum(self.recovers.values())

    @property
    def is_met(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> str:
        """What keeps the objective from being met; empty if nothing does."""
        if self.recovered < self.needed:
            why = self.refused or (str(self.pending) if self.pending is not None else "")
            return f"only {self.recovered} of {self.needed} replicas would find a node. {why}"
        if self.estimated_seconds > self.objective_seconds:
            return (
                f"it would take about {self.estimated_seconds:.0f} s; allowed are "
                f"{self.objective_seconds:.0f} s."
            )
        return ""


class LossOutlook(Value):
    """The loss of one region, simulated on what the other regions have now."""

    region: RegionId
    at: AwareDatetime
    workloads: tuple[WorkloadReadiness, ...] = ()
    # Workloads with replicas there that are not critical: they have no objective.
    others: Annotated[int, Field(ge=0)] = 0
    # Regions that could take nothing, and why.
    unusable: Mapping[RegionId, str] = Field(default={})

    @property
    def is_met(self) -> bool:
        return all(one.is_met for one in self.workloads)


def recoverable_of(outlooks: Iterable[LossOutlook]) -> dict[Name, Recoverable]:
    """Of each critical workload: what the worst loss would mean to it."""
    worst: dict[Name, tuple[RegionId, WorkloadReadiness]] = {}
    for outlook in outlooks:
        for one in outlook.workloads:
            name = (one.tenant, one.workload)
            if name not in worst or _badness(one) > _badness(worst[name][1]):
                worst[name] = (outlook.region, one)
    return {
        name: Recoverable(is_met=one.is_met, sentence=_sentence(region, one))
        for name, (region, one) in worst.items()
    }


def _badness(one: WorkloadReadiness) -> tuple[bool, int, float]:
    return (not one.is_met, one.needed - one.recovered, one.estimated_seconds)


def _sentence(region: RegionId, one: WorkloadReadiness) -> str:
    """Without the exact time, which changes all the time."""
    if not one.is_met:
        return f"if {region} were lost now: {one.missing}"
    return (
        f"if {region} were lost now, {one.recovered} of {one.lost} replicas would serve again "
        f"elsewhere within {one.objective_seconds:.0f} s"
    )

"""What is asked of a decision: slots of one workload in one region, and where others of it are."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import Generation, NodeId, RegionId, Slot, TenantId, WorkloadName, ZoneId
from durable.model.intents import Draw
from durable.model.workload import WorkloadSpec
from durable.validation.value import Value


class Standing(Value):
    """A slot of the same workload that has its place already; spread counts it."""

    slot: Slot
    node: NodeId


class Crash(Value):
    """A slot failed on a node not long ago, so it does not go back there."""

    slot: Slot
    node: NodeId
    # When it may go back; decisions of before this was kept do not say.
    until: AwareDatetime | None = None


class Wish(Value):
    """Everything a decision knows of the workload; recorded with it, so that it can be replayed."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    attempt: Annotated[int, Field(ge=1)]
    slots: Annotated[tuple[Slot, ...], Field(min_length=1, max_length=10_000)]
    spec: WorkloadSpec
    standing: tuple[Standing, ...] = ()
    crashes: tuple[Crash, ...] = ()
    avoid_zones: tuple[ZoneId, ...] = ()
    draw: Draw | None = None

"""A placement request: slots of one workload in one region, and where its other slots are."""

from typing import Annotated

from pydantic import Field

from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName, ZoneId
from durable.model.intents import Draw
from durable.model.slots import Crash, SlotOnNode
from durable.model.workload import WorkloadSpec
from durable.validation.value import Value


class PlacementRequest(Value):
    """Everything a decision knows of the workload; recorded with it, so that it can be replayed."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    attempt: Annotated[int, Field(ge=1)]
    slots: Annotated[tuple[Slot, ...], Field(min_length=1, max_length=10_000)]
    spec: WorkloadSpec
    # Slots of the same workload that have their node already; spread counts them.
    live: tuple[SlotOnNode, ...] = ()
    # Only those that still keep their slot away from their node.
    crashes: tuple[Crash, ...] = ()
    avoid_zones: tuple[ZoneId, ...] = ()
    draw: Draw | None = None

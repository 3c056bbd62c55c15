"""What a workload and its activities exchange: plain values with defaults for new fields."""

from collections.abc import Mapping
from datetime import timedelta

from pydantic import Field

from durable.activities.steps import PlacementKey
from durable.model.ids import ActorId, Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.workload import Condition, WorkloadManifest, WorkloadSpec
from durable.signals.payloads import SetShare, ShareReport
from durable.validation.value import Value

Shares = Mapping[RegionId, tuple[Slot, ...]]


class WorkloadKey(Value):
    tenant: TenantId
    workload: WorkloadName


class AdmitStep(Value):
    """A manifest to admit, or the present one with another replica count."""

    manifest: WorkloadManifest
    request: str
    actor: ActorId
    replicas: int | None = None


class Admitted(Value):
    """The workload as it is now, and the generation that this request was answered with.

    The authority's own row also has status and times, which no workflow should remember.
    """

    generation: Generation
    spec: WorkloadSpec
    share: Shares
    answered_generation: Generation
    # Whether there was such a workload before this request.
    existed: bool = False
    deleting: bool = False
    deleted: bool = False


class Recalled(Value):
    """What the authority knows of a workload, for a workflow that has no memory of it."""

    generation: Generation
    spec: WorkloadSpec
    share: Shares
    deleting: bool
    deleted: bool
    # One for each generation and region that requests or holds something.
    reports: tuple[ShareReport, ...] = ()


class Opening(Value):
    """What a region's placement is sent; one that does not run yet is started."""

    key: PlacementKey
    share: SetShare
    # Nobody has started it yet: it is started with its share and needs no message.
    is_first: bool = False


class DivideStep(Value):
    """Which slots each region owns, and which placements have to hear of it."""

    tenant: TenantId
    workload: WorkloadName
    # None when every region owns its slots already.
    share: Shares | None
    transfer: str
    openings: tuple[Opening, ...]
    task_timeout: timedelta


class Divided(Value):
    """What has to wait for an old claim to end, or why the slots could not be divided at all."""

    waits: tuple[str, ...] = ()
    unreachable: str | None = None
    # Regions whose placement has ended, and is not started again.
    ended: tuple[RegionId, ...] = ()


class ReleaseStep(Value):
    """A placement to end; one that was terminated is started again to release what it left."""

    key: PlacementKey
    share: SetShare
    reason: str
    request: str
    task_timeout: timedelta


class DeleteStep(Value):
    tenant: TenantId
    workload: WorkloadName
    request: str
    actor: ActorId
    reason: str


class FinishStep(Value):
    """The end of a workload: deleted, or a job that is done."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    deleted: bool
    conditions: tuple[Condition, ...] = ()
    replicas_by_state: Mapping[str, int] = Field(default={})

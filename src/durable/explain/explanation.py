"""What an explanation consists of: the request, the attempts, the slots, and who acts next."""

from collections.abc import Mapping

from pydantic import AwareDatetime, Field

from durable.explain.attempts import AttemptExplanation
from durable.explain.queue import QueueExplanation
from durable.explain.rollout import RolloutExplanation
from durable.explain.slots import EndedSlot
from durable.model.ids import Generation, PolicyRevision, RegionId, Slot, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.work.phases import Owner
from durable.model.work.workload import WorkloadSpec
from durable.validation.value import Value


class RegionExplanation(Value):
    """One region's share of the generation."""

    region: RegionId
    slots: tuple[Slot, ...]
    queue: QueueExplanation | None
    attempts: tuple[AttemptExplanation, ...]
    # How many earlier attempts are not among `attempts`.
    attempts_omitted: int
    observed: tuple[ObservedSlot, ...]
    # By revision: slots that go on although the policy they were placed under was rolled back.
    withdrawn: Mapping[PolicyRevision, tuple[Slot, ...]] = {}
    # Of a job: the slots that ran and no longer run.
    ended: tuple[EndedSlot, ...]
    condition: str
    owner: Owner


class Explanation(Value):
    """A workload's generation, region by region."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    current_generation: Generation
    spec: WorkloadSpec
    deleting: bool
    ended: bool
    # Of a job: until when it is to be done, and when it was recorded that it was not.
    deadline: AwareDatetime | None = None
    deadline_missed_at: AwareDatetime | None = None
    # Complete, failed or deleted, and how far it came; known of the current generation.
    end: str | None
    end_sentence: str | None
    # Of the workload, if replicas of one generation are replaced by another.
    rollout: RolloutExplanation | None = None
    # What became of a generation that is not wanted.
    outcome: str | None = None
    regions: tuple[RegionExplanation, ...]
    # Regions that did not answer, and why.
    unreachable: Mapping[RegionId, str] = Field(default={})

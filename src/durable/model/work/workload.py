"""The desired state of a workload, and how far it has come."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self, cast

from pydantic import AwareDatetime, Field, model_validator

from durable.model.fleet.labels import LabelKey, Labels, LabelValue, TaintEffect
from durable.model.ids import Generation, IncidentId, RegionId, Slot, TenantId, WorkloadName
from durable.model.placement.intents import Requirements
from durable.model.resources import Resources
from durable.model.work.job import MAX_REPLICAS, Job
from durable.model.work.rollout import Disruption, Rollout, RolloutState
from durable.model.work.running import OnReconnect, Run
from durable.validation.problems import Finding, refuse
from durable.validation.quantities import Duration
from durable.validation.value import Value

# A placement's memory, its spec and its slots, has to fit into one message of Temporal's.
MAX_SPEC_BYTES = 32_768
Weight = Annotated[int, Field(ge=0, le=1_000)]


class WorkloadKind(StrEnum):
    """A service runs until a person stops it; a job runs until it is done."""

    SERVICE = "service"
    JOB = "job"


class Toleration(Value):
    """Lets work onto nodes with this taint; without a value or an effect it matches any."""

    key: LabelKey
    value: LabelValue | None = None
    effect: TaintEffect | None = None


class TopologySpread(Value):
    """How many more replicas the fullest zone or node of a region may have than the emptiest."""

    zone_max_skew: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    node_max_skew: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    max_per_node: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None


class Deadlines(Value):
    """How long each wait may last before it is reported as late."""

    placed: Duration = timedelta(hours=1)
    started: Duration = timedelta(minutes=2)
    ready: Duration = timedelta(minutes=5)


class WorkloadSpec(Value):
    """The desired state: so many replicas of this size, wherever the requirements allow."""

    kind: WorkloadKind = WorkloadKind.SERVICE
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
    resources: Resources
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    requirements: Requirements = Requirements()
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    # Where it would rather be; unlike a requirement this excludes nothing.
    prefers: Labels = Field(default={})
    spread: TopologySpread = TopologySpread()
    # The share of each region; a region that is not named gets 1, one with 0 gets nothing.
    weights: Annotated[Mapping[RegionId, Weight], Field(max_length=64)] = Field(default={})
    # A gang starts together, in one region: all of it, or at least `minimum` of it.
    all_or_nothing: bool = False
    minimum: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    # A job's replica that fails is tried again this often; a service's, for ever.
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = 6
    job: Job | None = None
    deadlines: Deadlines = Deadlines()
    rollout: Rollout = Rollout()
    disruption: Disruption = Disruption()
    run: Run = Run()

    @property
    def is_gang(self) -> bool:
        return self.all_or_nothing or self.minimum is not None

    @property
    def gang_size(self) -> int:
        """How many replicas must be placed together for any of them to be."""
        if self.minimum is not None:
            return min(self.minimum, self.replicas)
        return self.replicas if self.all_or_nothing else 0

    @property
    def parallelism(self) -> int | None:
        """How many slots may have a node at once; None if nothing limits that."""
        return None if self.job is None else self.job.parallelism

    @property
    def most_at_once(self) -> int:
        """How many replicas can ever run at the same time."""
        return min(self.replicas, self.parallelism or self.replicas)

    @model_validator(mode="before")
    @classmethod
    def _count_completions(cls, data: Any) -> Any:
        """A job that says how many slots must complete need not say it twice."""
        if not isinstance(data, Mapping) or "replicas" in data:
            return cast(Any, data)
        fields = cast(Mapping[str, Any], data)
        job = fields.get("job")
        completions: Any = (
            cast(Mapping[str, Any], job).get("completions")
            if isinstance(job, Mapping)
            else getattr(job, "completions", None)
        )
        # One that is wrong is refused where it was written.
        is_right = isinstance(completions, int) and 1 <= completions <= MAX_REPLICAS
        return {**fields, "replicas": completions if is_right else 1} if completions else fields

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        refuse("WorkloadSpec", (*self._wrong_for_a_job(), *self._wrong_on_reconnect()))
        if self.resources.is_zero:
            raise ValueError("resources: got nothing; allowed: some cpu, memory or gpu")
        if self.minimum is not None and self.minimum > self.replicas:
            raise ValueError(
                f"minimum: got {self.minimum}; allowed: up to the {self.replicas} replicas"
            )
        if self.minimum is not None and self.all_or_nothing:
            raise ValueError("minimum: got it beside all_or_nothing; allowed: one of the two")
        size = len(self.model_dump_json().encode())
        if size > MAX_SPEC_BYTES:
            raise ValueError(f"got {size:,} bytes as JSON; allowed: up to {MAX_SPEC_BYTES:,} bytes")
        return self

    def _wrong_on_reconnect(self) -> Iterator[Finding]:
        """A stand-in has a number of its own, and a slot of a job is a piece of work."""
        chosen = self.run.on_reconnect
        if self.kind is WorkloadKind.JOB and chosen is OnReconnect.ORIGINAL:
            yield Finding(
                ("run", "on_reconnect"),
                chosen,
                "got original for a job; allowed: replacement, or omit it",
            )

    def _wrong_for_a_job(self) -> Iterator[Finding]:
        job = self.job
        if job is None:
            return
        if self.kind is not WorkloadKind.JOB:
            yield Finding(
                ("job",), job, f"got it for a {self.kind}; allowed: with kind: job, or omit it"
            )
            return
        if job.completions is not None and job.completions != self.replicas:
            yield Finding(
                ("job", "completions"),
                job.completions,
                f"got {job.completions} beside {self.replicas} replicas; allowed: the same number, "
                "or omit replicas",
            )
        if job.parallelism is not None and job.parallelism < self.gang_size:
            yield Finding(
                ("job", "parallelism"),
                job.parallelism,
                f"got {job.parallelism} for a gang of {self.gang_size}; allowed: at least "
                f"{self.gang_size}, so that the gang can start together",
            )


# What needs no restart: how many replicas there are and where, how they are placed and replaced,
# and how long waits may last. All else is what a replica runs.
_SCALE = frozenset(
    {
        "replicas", "weights", "minimum", "deadlines", "priority", "spread", "prefers",
        "max_attempts", "rollout", "disruption",
    }
)  # fmt: skip
# A job is one piece of work: another number of replicas is other work, and what is done in a region
# stays there.
_SCALE_OF_JOB = _SCALE - {"replicas", "weights", "minimum"}


def template_of(spec: WorkloadSpec) -> dict[str, Any]:
    """What all replicas of one generation have in common."""
    kept = _SCALE if spec.kind is WorkloadKind.SERVICE else _SCALE_OF_JOB
    return spec.model_dump(mode="json", exclude=set(kept))


def with_template(spec: WorkloadSpec, template: WorkloadSpec) -> WorkloadSpec:
    """The same number of replicas, placed in the same way, of what the other spec runs."""
    return template.model_copy(update={name: getattr(spec, name) for name in _SCALE})


class WorkloadManifest(Value):
    """One document of a manifest: the workload's tenant, its name and its desired state."""

    tenant: TenantId
    name: WorkloadName
    spec: WorkloadSpec


class Condition(Value):
    """One thing that is, is not, or is not known of a workload, and since when."""

    type: Annotated[str, Field(min_length=1, max_length=63)]
    status: bool | None
    reason: str
    sentence: str
    since: AwareDatetime
    observed_generation: Generation


class AdmittedWorkload(Value):
    """A workload as it was last admitted: its desired state, and how it ended once it is over."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    spec: WorkloadSpec
    # How many generations there were; the wanted one is an older one after a rollback.
    generations: Annotated[int, Field(ge=1)] = 1
    # The last generation of which every replica served at once.
    stable_generation: Generation | None = None
    # The rollout that is under way.
    rollout: RolloutState | None = None
    # Counts the divisions of its slots over regions: an older one changes nothing any more.
    revision: Annotated[int, Field(ge=0)] = 0
    # Which slots each region is to run.
    share: Mapping[RegionId, tuple[Slot, ...]] = Field(default={})
    deleting: bool = False
    deleted_at: AwareDatetime | None = None
    # When this generation was admitted, and when it was recorded that it missed its deadline.
    admitted_at: AwareDatetime | None = None
    deadline_missed_at: AwareDatetime | None = None
    # The recovery that moved it, until that has ended.
    incident: IncidentId | None = None
    # Of a job that ended by itself; applied again, it begins without them.
    conditions: tuple[Condition, ...] = ()
    replicas_by_state: Mapping[str, int] = Field(default={})

    @property
    def deleted(self) -> bool:
        """Whether it is over: a tombstone that keeps its name and generation."""
        return self.deleted_at is not None

    @property
    def deadline(self) -> datetime | None:
        """Until when a job is to be done."""
        job = self.spec.job
        if job is None or job.deadline is None or self.admitted_at is None:
            return None
        return self.admitted_at + job.deadline

    @property
    def completion(self) -> Condition | None:
        """How far a job came that ended by itself; None if a person deleted it."""
        return next((one for one in self.conditions if one.type == "Complete"), None)

    def is_finished_job(self, generation: Generation) -> bool:
        """Whether this generation is of a job that ended by itself."""
        return self.deleted and self.completion is not None and self.generation == generation

    @property
    def end(self) -> str:
        """Whether a job ended by itself, completely or not, or a person deleted it."""
        if self.completion is None:
            return "deleted"
        return "complete" if self.completion.status else "failed"

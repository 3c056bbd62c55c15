"""A drain: which nodes are emptied, how far that has come, and what keeps the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self, assert_never

from pydantic import AfterValidator, AwareDatetime, Field

from durable.model.ids import ActorId, Identifier, NodeId, RegionId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.pending import Pending
from durable.model.states import BindingState
from durable.model.time_left import TimeLeft
from durable.validation.quantities import Duration, show_duration
from durable.validation.text import counted
from durable.validation.value import Value

DEFAULT_DEADLINE = timedelta(hours=1)
MAX_DEADLINE = timedelta(days=30)
MAX_WORKLOADS_SHOWN = 50


def _within_bounds(deadline: timedelta) -> timedelta:
    if deadline > MAX_DEADLINE:
        raise ValueError(
            f"got {show_duration(deadline)}; allowed: from 1s to {show_duration(MAX_DEADLINE)}"
        )
    return deadline


# After which a drain that is not done gives up.
DrainDeadline = Annotated[Duration, AfterValidator(_within_bounds)]


class NodesKind(StrEnum):
    """How nodes are named together."""

    NODE = "node"
    ZONE = "zone"
    POOL = "pool"


class NodesTarget(Value):
    """One node of a region, or all nodes of one of its zones or pools."""

    region: RegionId
    kind: NodesKind
    name: Identifier

    @classmethod
    def of_node(cls, region: RegionId, node: NodeId) -> Self:
        return cls(region=region, kind=NodesKind.NODE, name=node)

    @property
    def short(self) -> str:
        """`node-7`, `zone us-east-a`, `pool general`: the region is named elsewhere."""
        return str(self.name) if self.kind is NodesKind.NODE else f"{self.kind} {self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.region}"


class DrainState(StrEnum):
    DRAINING = "draining"
    DRAINED = "drained"
    CANCELLED = "cancelled"
    GAVE_UP = "gave_up"


class DrainOrder(Value):
    """What a person's message asks for; its request id counts once in the region."""

    target: NodesTarget
    message: OperatorMessage
    deadline: DrainDeadline = DEFAULT_DEADLINE
    wait_for_jobs: bool = False

    @property
    def request(self) -> str:
        return self.message.request_id

    @property
    def actor(self) -> ActorId:
        return self.message.actor

    @property
    def reason(self) -> str:
        return self.message.reason


class Drain(Value):
    """A drain as its region remembers it."""

    target: NodesTarget
    request: str
    actor: ActorId
    reason: str
    wait_for_jobs: bool
    nodes: tuple[NodeId, ...]
    # Those that it cordoned itself, and lets take work again when it is cancelled.
    cordoned: tuple[NodeId, ...]
    # How many replicas were there when it began.
    replicas: Annotated[int, Field(ge=0)]
    state: DrainState
    started_at: AwareDatetime
    deadline_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    # How it ended, for people.
    outcome: str = ""


class LeftCode(StrEnum):
    """Why replicas of a workload are still on the nodes of a drain."""

    REPLACING = "replacing"
    STOPPING = "stopping"
    NO_ROOM = "no_room"
    ALLOWANCE = "allowance"
    JOB = "job"
    NODE_SILENT = "node_silent"


class WorkloadLeft(Value):
    """What is left of one workload on the nodes, and what keeps it there."""

    tenant: TenantId
    workload: WorkloadName
    replicas: Annotated[int, Field(ge=1)]
    code: LeftCode
    # What its next replica waits for.
    pending: Pending | None = None
    # How many of its replicas serve in the region, and how many stops by choice must leave.
    serving: int = 0
    must_serve: int = 0

    @property
    def needs_a_change(self) -> bool:
        """Whether waiting alone will not help."""
        return self.code is LeftCode.NO_ROOM and not (self.pending and self.pending.waiting_helps)

    @property
    def sentence(self) -> str:
        """For people, without the workload's name."""
        match self.code:
            case LeftCode.REPLACING:
                return "its replacement is on the way"
            case LeftCode.STOPPING:
                return "its nodes were asked to stop it"
            case LeftCode.NO_ROOM:
                helps = "a person must act" if self.needs_a_change else "may resolve on its own"
                return f"its replacement finds no place ({helps}): {self.pending}"
            case LeftCode.ALLOWANCE:
                return (
                    f"{self.serving} of its replicas serve in the region and {self.must_serve} "
                    "have to, so none can be stopped before more serve"
                )
            case LeftCode.JOB:
                return "it is a job, and this drain waits for jobs to end"
            case LeftCode.NODE_SILENT:
                return "its node does not report; it is placed again once the node counts as lost"
        assert_never(self.code)

    def __str__(self) -> str:
        many = counted(self.replicas, "replica")
        return f"{self.tenant}/{self.workload} ({many}): {self.sentence}"


@dataclass(frozen=True, kw_only=True)
class LeftFacts:
    """What a region knows of one workload that still has claims on the nodes."""

    tenant: TenantId
    workload: WorkloadName
    replicas: tuple[RegionalClaim, ...]
    pending: Pending | None = None
    serving: int = 0
    must_serve: int = 0
    # Replicas elsewhere in the region that are on their way to serving.
    coming_up: int = 0


class DrainProgress(Value):
    """How far a drain has come, by its region's own rows and clock."""

    left: Annotated[int, Field(ge=0)]
    workloads: Annotated[tuple[WorkloadLeft, ...], Field(max_length=MAX_WORKLOADS_SHOWN)] = ()
    # How much of its time is left.
    deadline_in: TimeLeft | None = None

    @property
    def is_overdue(self) -> bool:
        return self.deadline_in is not None and self.deadline_in.is_over

    def is_like(self, before: "DrainProgress | None") -> bool:
        """Whether nothing but the time has changed."""
        return before is not None and self == before.model_copy(
            update={"deadline_in": self.deadline_in}
        )

    @property
    def blocked(self) -> tuple[WorkloadLeft, ...]:
        """Those that something keeps; the others are on their way."""
        moving = (LeftCode.REPLACING, LeftCode.STOPPING)
        return tuple(one for one in self.workloads if one.code not in moving)

    @property
    def waits_for(self) -> str | None:
        """What it waits for, in one line."""
        shown = (*self.blocked, *self.workloads)[:1]
        if not shown:
            return None
        others = len(self.workloads) - 1
        more = f"; and {others} more" if others else ""
        return f"{shown[0]}{more}"


def measure_progress(
    facts: Iterable[LeftFacts], *, wait_for_jobs: bool, deadline_in: TimeLeft
) -> DrainProgress:
    """What is left and why, what needs a person to act first."""
    left = [_left(one, wait_for_jobs) for one in facts]
    left.sort(key=lambda one: (not one.needs_a_change, one.code in _MOVING, -one.replicas))
    return DrainProgress(
        left=sum(one.replicas for one in left),
        workloads=tuple(left[:MAX_WORKLOADS_SHOWN]),
        deadline_in=deadline_in,
    )


_MOVING = (LeftCode.REPLACING, LeftCode.STOPPING)


def _left(facts: LeftFacts, wait_for_jobs: bool) -> WorkloadLeft:
    return WorkloadLeft(
        tenant=facts.tenant,
        workload=facts.workload,
        replicas=len(facts.replicas),
        code=_code(facts, wait_for_jobs),
        pending=facts.pending,
        serving=facts.serving,
        must_serve=facts.must_serve,
    )


def _code(facts: LeftFacts, wait_for_jobs: bool) -> LeftCode:
    staying = [one for one in facts.replicas if not one.is_stopping]
    if not staying:
        return LeftCode.STOPPING
    if wait_for_jobs and all(one.is_job for one in staying):
        return LeftCode.JOB
    if facts.pending is not None:
        return LeftCode.NO_ROOM
    if all(one.state is BindingState.UNKNOWN for one in staying):
        return LeftCode.NODE_SILENT
    is_at_the_floor = facts.serving <= facts.must_serve and not facts.coming_up
    if is_at_the_floor and _all_serve(staying):
        return LeftCode.ALLOWANCE
    return LeftCode.REPLACING


def _all_serve(replicas: Sequence[RegionalClaim]) -> bool:
    return all(one.state is BindingState.SERVING for one in replicas)

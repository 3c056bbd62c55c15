"""A recovery: a region that was lost, the work that was moved out of it, and how that went."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from durable.model.ids import ActorId, BudgetId, IncidentId, RegionId, Slot, TenantId, WorkloadName
from durable.model.time_left import TimeLeft
from durable.model.work.workload import WorkloadKind
from durable.validation.value import Value

MOVES_SHOWN = 50
FINDINGS_KEPT = 50


class RecoveryPhase(StrEnum):
    """How far a recovery has come."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    MOVING = "moving"
    HOLDING = "holding"
    FAILING_BACK = "failing_back"
    SETTLING = "settling"
    FAILED_BACK = "failed_back"
    SETTLED = "settled"
    VETOED = "vetoed"
    DISMISSED = "dismissed"
    SUPERSEDED = "superseded"


ENDED = frozenset(
    {
        RecoveryPhase.FAILED_BACK,
        RecoveryPhase.SETTLED,
        RecoveryPhase.VETOED,
        RecoveryPhase.DISMISSED,
        RecoveryPhase.SUPERSEDED,
    }
)
# Before these nothing was changed in any region.
UNFENCED = frozenset(
    {
        RecoveryPhase.SUSPECTED,
        RecoveryPhase.CONFIRMED,
        RecoveryPhase.VETOED,
        RecoveryPhase.DISMISSED,
    }
)


class RecoveryOrderKind(StrEnum):
    """What a person may ask of a recovery."""

    CONFIRM = "confirm"
    VETO = "veto"
    FAILBACK = "failback"
    SETTLE = "settle"


class RecoveryKey(Value):
    """Which loss: of which region, and the epoch that fences it."""

    region: RegionId
    epoch: Annotated[int, Field(ge=2, le=2**63 - 1)]

    @property
    def incident(self) -> IncidentId:
        """Under which name it draws on recovery budgets."""
        return IncidentId(f"{self.region}-{self.epoch}"[-63:].lstrip("-"))

    @classmethod
    def of_id(cls, id: str) -> "RecoveryKey":
        """By the id of its workflow; `ValueError` if that is no recovery's."""
        kind, _, rest = id.partition("/")
        region, _, epoch = rest.rpartition("/")
        key = cls.model_validate({"region": region, "epoch": epoch}, strict=False)
        if kind != "recovery" or str(key) != id:
            raise ValueError("it is not recovery/REGION/EPOCH")
        return key

    def __str__(self) -> str:
        return f"recovery/{self.region}/{self.epoch}"


class BudgetDraw(Value):
    """A recovery budget of a healthy region: open for this recovery, or why not."""

    region: RegionId
    budget: BudgetId
    refused: str = ""


class Recovery(Value):
    """A recovery as the authority remembers it."""

    region: RegionId
    epoch: int
    phase: RecoveryPhase
    # Who asked for what it does now, and why.
    actor: ActorId
    reason: str
    evidence: Mapping[str, Any] = Field(default={})
    # The last moment at which the region was known to be well: everything is measured from it.
    lost_at: AwareDatetime
    started_at: AwareDatetime
    changed_at: AwareDatetime
    fenced_at: AwareDatetime | None = None
    # When its slots may be handed over; without its database, when its lease has lapsed.
    movable_at: AwareDatetime | None = None
    # When everything that could be moved was.
    moved_at: AwareDatetime | None = None
    # Since when the region looks well again.
    back_since: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    draws: tuple[BudgetDraw, ...] = ()
    # What was left behind at its end, in sentences; none is good.
    findings: Annotated[tuple[str, ...], Field(max_length=FINDINGS_KEPT)] = ()

    @property
    def key(self) -> RecoveryKey:
        return RecoveryKey(region=self.region, epoch=self.epoch)

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


class MoveState(Value):
    """How far a recovery has come with one workload."""

    tenant: TenantId
    workload: WorkloadName
    kind: WorkloadKind = WorkloadKind.SERVICE
    priority: Annotated[int, Field(ge=0)]
    # How many replicas it is to have in all.
    replicas: Annotated[int, Field(ge=0)]
    # When a place was last looked for.
    tried_at: AwareDatetime | None = None
    moved_at: AwareDatetime | None = None
    # Of the replicas that the region had: how many serve in others, and how many have a node there.
    serving: Annotated[int, Field(ge=0)] = 0
    placed: Annotated[int, Field(ge=0)] = 0
    # When enough of it served elsewhere for the objective, and when all that was moved did.
    recovered_at: AwareDatetime | None = None
    whole_at: AwareDatetime | None = None
    # When it was given back to the region.
    returned_at: AwareDatetime | None = None
    # Why it cannot be moved, or what its replicas wait for.
    waits: str = ""

    @property
    def name(self) -> tuple[TenantId, WorkloadName]:
        return (self.tenant, self.workload)

    def seconds_to_recover(self, lost_at: datetime) -> float | None:
        """From the loss until enough of it served; None if that was not reached yet."""
        if self.recovered_at is None:
            return None
        return max(0.0, (self.recovered_at - lost_at).total_seconds())


class MoveProgress(MoveState):
    """As it is shown: a recovery says this of many workloads each second."""

    # How many replicas the region had, and how many of them have to come back.
    slot_count: Annotated[int, Field(ge=0)] = 0
    lost_count: Annotated[int, Field(ge=0)] = 0


class WorkloadMove(MoveState):
    """What a recovery moves of one workload."""

    # Which replicas the region had.
    slots: tuple[Slot, ...]

    @property
    def lost(self) -> tuple[Slot, ...]:
        """The replicas that have to come back: no surge, and nothing that was scaled away."""
        return tuple(slot for slot in self.slots if slot < self.replicas)

    @classmethod
    def key_of(cls, move: Self) -> tuple[str, str]:
        return (str(move.tenant), str(move.workload))

    def progress(self) -> MoveProgress:
        """The same in numbers."""
        shared = {name: getattr(self, name) for name in MoveState.model_fields}
        return MoveProgress(**shared, slot_count=len(self.slots), lost_count=len(self.lost))


class RecoveryReport(Value):
    """How a recovery went: what was moved, what waits, and whether the objective was met."""

    workloads: int = 0
    replicas: int = 0
    moved: int = 0
    whole: int = 0
    critical: int = 0
    recovered: int = 0
    objective_replicas: int
    objective_seconds: float
    # From the loss to the last critical workload that recovered, and how many are late by now.
    slowest_seconds: float | None = None
    missed: int = 0

    @property
    def is_met(self) -> bool:
        return not self.missed and self.recovered == self.critical

    def __str__(self) -> str:
        slowest = "" if self.slowest_seconds is None else f", the last {self.slowest_seconds:.1f} s"
        missed = f", {self.missed} too late" if self.missed else ""
        return (
            f"{self.recovered} of {self.critical} critical workloads have served again elsewhere"
            f"{slowest} after the loss (objective: {self.objective_replicas} of the lost replicas, "
            f"or all, within {self.objective_seconds:.0f} s){missed}; {self.moved} of "
            f"{self.workloads} workloads moved, {self.whole} of them have served as a whole"
        )


class RecoveryProgress(Value):
    """A recovery, what it has moved so far, and what it waits for."""

    recovery: Recovery
    report: RecoveryReport
    # The critical ones first, and of the others those that wait.
    moves: Annotated[tuple[MoveProgress, ...], Field(max_length=MOVES_SHOWN)] = ()
    waits_for: str = ""
    # When it is worth looking again, by the authority's clock.
    look_in: TimeLeft | None = None

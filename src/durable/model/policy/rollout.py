"""How a policy revision comes into force, region by region, and how it is rolled back."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import ActorId, PolicyRevision, RegionId, TenantId, WorkloadName
from durable.model.states import PolicyState
from durable.model.time_left import TimeLeft
from durable.validation.text import PlainText, show_moment
from durable.validation.value import Value

MAX_WORKLOADS_REPORTED = 500

RegionalName = tuple[RegionId, TenantId, WorkloadName]


class PolicyPhase(StrEnum):
    """How far a revision has come."""

    # Published and compared on paper; it waits for a person to promote it.
    SHADOW = "shadow"
    # In force in one region, and watched.
    CANARY = "canary"
    # On its way through the other regions.
    WIDENING = "widening"
    EVERYWHERE = "everywhere"
    # A later one came into force everywhere.
    SUPERSEDED = "superseded"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"


ON_THE_WAY = frozenset({PolicyPhase.CANARY, PolicyPhase.WIDENING})
SETTLED = frozenset({PolicyPhase.EVERYWHERE, PolicyPhase.SUPERSEDED, PolicyPhase.ROLLED_BACK})


class PolicyOrderKind(StrEnum):
    """What a person, or a guardrail, asks for."""

    PROMOTE = "promote"
    PAUSE = "pause"
    ROLLBACK = "rollback"


class PolicyOrder(Value):
    """What is asked about one revision."""

    revision: PolicyRevision
    kind: PolicyOrderKind
    actor: ActorId
    reason: PlainText
    request: str
    # Of a promotion: the region that goes first.
    canary: RegionId | None = None
    # Of a rollback: the revision to go back to, and whether what was placed is replaced.
    to_revision: PolicyRevision | None = None
    reroll: bool = False
    # The number of the last order that the sender knows; a later one refuses this one.
    after: Annotated[int, Field(ge=0)] | None = None


class TakenOrder(Value):
    """An order that counts; of two at once the first got the lower number."""

    number: Annotated[int, Field(ge=1)]
    revision: PolicyRevision
    kind: PolicyOrderKind
    actor: ActorId
    reason: str
    at: AwareDatetime

    def __str__(self) -> str:
        done = _DONE[self.kind]
        return (
            f"{self.actor} {done} revision {self.revision} at {show_moment(self.at)} "
            f"({self.reason[:200]})"
        )


_DONE = {
    PolicyOrderKind.PROMOTE: "promoted",
    PolicyOrderKind.PAUSE: "paused",
    PolicyOrderKind.ROLLBACK: "rolled back",
}


class Bake(Value):
    """The region that is watched now: when what waited there before was noted.

    How long it is watched counts from when the revision came into force there, which may be later.
    """

    region: RegionId
    since: AwareDatetime
    pending_percent_before: Annotated[float, Field(ge=0, le=100)] = 0.0
    # A person promoted it before its time was over.
    is_cut_short: bool = False


class PolicyRollout(Value):
    """Where one revision is; the number is that of the order that it follows."""

    revision: PolicyRevision
    phase: PolicyPhase
    number: Annotated[int, Field(ge=0)] = 0
    canary: RegionId | None = None
    bake: Bake | None = None
    is_paused: bool = False
    # Of a rollback: the revision to go back to, which a canary without a choice leaves in
    # force beside it anyway, and whether what the revision has placed is replaced.
    to_revision: PolicyRevision | None = None
    reroll: bool = False
    # Who gave the last order, and why; without an order, who published it.
    actor: ActorId
    reason: str = ""
    changed_at: AwareDatetime

    @property
    def is_settled(self) -> bool:
        return self.phase in SETTLED


class RegionPolicy(Value):
    """A revision in one region, and the number of the order that it follows there."""

    state: PolicyState
    number: Annotated[int, Field(ge=0)] = 0
    # For how long it has been in that state, by the region's own clock.
    age_seconds: Annotated[float, Field(ge=0)] = 0.0


class PolicyHealth(Value):
    """What a region shows of the revision that decides there, since it does."""

    pending_percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    decisions: Annotated[int, Field(ge=0)] = 0
    reserves: Annotated[int, Field(ge=0)] = 0
    refused: Annotated[int, Field(ge=0)] = 0
    # How long 95 of 100 replicas at most waited for a node.
    place_seconds: Annotated[float, Field(ge=0)] | None = None

    @property
    def refused_percent(self) -> float:
        return 100.0 * self.refused / self.reserves if self.reserves else 0.0


class RolledBackShare(Value):
    """What became of one workload's replicas in one region when their revision was rolled back.

    What was reserved and not bound is decided again; what was bound goes on under its old decision,
    unless it is replaced.
    """

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    decided_again: Annotated[int, Field(ge=0)] = 0
    goes_on: Annotated[int, Field(ge=0)] = 0
    replaced: Annotated[int, Field(ge=0)] = 0

    @property
    def name(self) -> RegionalName:
        return (self.region, self.tenant, self.workload)

    def plus(self, other: "RolledBackShare") -> "RolledBackShare":
        """Of one workload in one region, two generations together."""
        counts = ("decided_again", "goes_on", "replaced")
        return self.model_copy(
            update={name: getattr(self, name) + getattr(other, name) for name in counts}
        )

    def __str__(self) -> str:
        parts = [
            f"{count} {words}"
            for count, words in (
                (self.decided_again, "decided again"),
                (self.goes_on, "go on"),
                (self.replaced, "replaced"),
            )
            if count
        ]
        return f"{self.tenant}/{self.workload} in {self.region}: {', '.join(parts)}"


class RolledBack(Value):
    """What became of everything that a revision had placed; of many workloads, the first."""

    shares: tuple[RolledBackShare, ...] = ()
    # Of how many there is something to say.
    count: Annotated[int, Field(ge=0)] = 0

    @property
    def more(self) -> int:
        return self.count - len(self.shares)

    @classmethod
    def again(cls, before: "RolledBack", now: Sequence[RolledBackShare]) -> "RolledBack":
        """What became of it when it was rolled back once more, to replace what goes on.

        What was decided again then has a new decision, so nothing shows it any more.
        """
        merged: dict[RegionalName, RolledBackShare] = {}
        for one in now:
            known = merged.get(one.name)
            merged[one.name] = one if known is None else known.plus(one)
        for one in before.shares:
            if one.decided_again:
                found = merged.get(one.name, one.model_copy(update={"goes_on": 0, "replaced": 0}))
                again = max(found.decided_again, one.decided_again)
                merged[one.name] = found.model_copy(update={"decided_again": again})
        shares = tuple(merged[name] for name in sorted(merged))
        return cls(shares=shares, count=len(shares) + before.more)

    @classmethod
    def of_all(cls, reports: Iterable["RolledBack"]) -> "RolledBack":
        listed = tuple(reports)
        shares = tuple(share for one in listed for share in one.shares)
        return cls(shares=shares, count=sum(one.count for one in listed))


class ShadowedWorkload(Value):
    """What another revision would have done about the recent decisions on one workload."""

    tenant: TenantId
    workload: WorkloadName
    decisions: Annotated[int, Field(ge=0)] = 0
    # Replicas that both place, and how many of them on another node.
    placed: Annotated[int, Field(ge=0)] = 0
    moved: Annotated[int, Field(ge=0)] = 0
    # Replicas that only one of the two would place.
    gained: Annotated[int, Field(ge=0)] = 0
    lost: Annotated[int, Field(ge=0)] = 0

    @property
    def is_same(self) -> bool:
        return not (self.moved or self.gained or self.lost)


class ShadowReport(Value):
    """One region's recent decisions, made again under a revision."""

    region: RegionId
    at: AwareDatetime
    decisions: Annotated[int, Field(ge=0)] = 0
    # Decisions that could not be made again as they were made, so that nothing can be compared.
    unrepeatable: Annotated[int, Field(ge=0)] = 0
    workloads: Annotated[
        tuple[ShadowedWorkload, ...], Field(max_length=MAX_WORKLOADS_REPORTED)
    ] = ()

    @property
    def changed(self) -> tuple[ShadowedWorkload, ...]:
        return tuple(one for one in self.workloads if not one.is_same)


class PolicyProgress(Value):
    """A revision as its workflow sees it after a step."""

    rollout: PolicyRollout
    regions: Mapping[RegionId, RegionPolicy] = {}
    health: PolicyHealth | None = None
    waits_for: str = ""
    # When to look again, and for how long it has followed its order, by the authority's clock.
    look_in: TimeLeft | None = None
    ordered_for_seconds: float = 0.0
    shadows: tuple[ShadowReport, ...] = ()
    report: tuple[RolledBackShare, ...] = ()
    report_count: int = 0

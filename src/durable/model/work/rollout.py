"""How a workload changes: what a rollout may take down or add, and what may be down by choice."""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Self, assert_never

from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema, model_validator

from durable.model.ids import ActorId, Generation, RegionId, Slot
from durable.validation.quantities import Duration, show_duration
from durable.validation.text import quote
from durable.validation.value import Value

MAX_COUNT = 4_000
_PERCENT = re.compile("(0|[1-9][0-9]{0,2})%")
_ALLOWED = f"a whole number from 0 to {MAX_COUNT}, or a percentage from 0% to 100%"


def _read_portion(value: object) -> object:
    is_count = type(value) is int and 0 <= value <= MAX_COUNT
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if not is_count and (match is None or int(match[1]) > 100):
        raise ValueError(f"got {quote(value)}; allowed: {_ALLOWED}")
    return value


# A number of replicas, or a percentage of them.
Portion = Annotated[
    int | str,
    BeforeValidator(_read_portion),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+%$"}]}),
]


def rounded_up(portion: int | str, replicas: int) -> int:
    return portion if isinstance(portion, int) else -(-int(portion[:-1]) * replicas // 100)


def rounded_down(portion: int | str, replicas: int) -> int:
    return portion if isinstance(portion, int) else int(portion[:-1]) * replicas // 100


def _is_none(portion: int | str) -> bool:
    return portion in (0, "0%")


class Rollout(Value):
    """How replicas of a new generation take the place of those before it."""

    max_surge: Portion = "25%"
    max_unavailable: Portion = "25%"
    # How long a replica has to serve before it counts.
    min_ready: Duration | None = None
    # Without progress for so long, the rollout is rolled back.
    progress_deadline: Duration = timedelta(minutes=10)
    # So many failures of new replicas roll it back; by default as many as the replicas, and 3.
    max_failures: Annotated[int, Field(ge=1, le=100_000)] | None = None
    # Which regions go first; those that are not named follow in the order of their names.
    regions: Annotated[tuple[RegionId, ...], Field(max_length=64)] = ()
    # How long a region has to serve before the next one begins.
    bake: Duration | None = timedelta(seconds=10)
    # It stops when so many replicas are replaced, until a person promotes it.
    pauses: Annotated[tuple[Portion, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        if _is_none(self.max_surge) and _is_none(self.max_unavailable):
            raise ValueError(
                "max_surge: got 0 beside max_unavailable 0; allowed: one of the two above 0, or "
                "no replica could ever be replaced"
            )
        if self.min_ready is not None and self.min_ready >= self.progress_deadline:
            raise ValueError(
                f"min_ready: got {show_duration(self.min_ready)}; allowed: less than "
                f"progress_deadline, which is {show_duration(self.progress_deadline)}"
            )
        if len(set(self.regions)) != len(self.regions):
            raise ValueError("regions: got a region twice; allowed: each region once")
        return self

    def failures_allowed(self, replicas: int) -> int:
        """How often new replicas may fail before the rollout is rolled back."""
        return max(3, replicas) if self.max_failures is None else self.max_failures


class Disruption(Value):
    """How many replicas may be down by choice of any kind: rollout, drain or a person."""

    # By default from the class of the workload's priority.
    max_unavailable: Portion | None = None


# By least priority: critical work, ordinary work, best effort.
_BY_CLASS: tuple[tuple[int, str], ...] = ((900, "10%"), (100, "25%"), (0, "50%"))


def disruption_allowance(disruption: Disruption, priority: int, replicas: int) -> int:
    """How many of a workload's replicas may be down by choice at once."""
    portion = disruption.max_unavailable
    if portion is None:
        portion = next(default for least, default in _BY_CLASS if priority >= least)
    return min(replicas, rounded_down(portion, replicas))


class GenerationOutcome(StrEnum):
    """What became of a generation."""

    PROGRESSING = "progressing"
    COMPLETE = "complete"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


class RolloutPause(Value):
    """A person stopped the rollout where it is; a person has to resume it."""

    actor: ActorId
    reason: str
    since: AwareDatetime

    def __str__(self) -> str:
        return f"{self.actor}: {self.reason}"


class RolloutState(Value):
    """A rollout that is under way, as the authority remembers it."""

    started_at: AwareDatetime
    # When more replicas than ever before had been replaced, and how many that was.
    progressed_at: AwareDatetime
    replaced: Annotated[int, Field(ge=0)] = 0
    pause: RolloutPause | None = None
    # How many of the spec's pause points a person has promoted it past.
    promoted: Annotated[int, Field(ge=0)] = 0
    # Since when each region that is done has served.
    served_since: dict[RegionId, AwareDatetime] = Field(default={})
    # Why it is rolled back: to the last good generation, or, without one, not at all.
    rollback: str | None = None

    def goes_back(self, generation: Generation, stable: Generation | None) -> bool:
        """Whether what is wanted now was good before; what failed first of all has no way back."""
        return self.rollback is not None and generation == stable


class GenerationRecord(Value):
    """One generation in a workload's history: what it was, who wanted it, what became of it."""

    generation: Generation
    spec: dict[str, Any]
    # Which slots each region had when another generation took its place.
    share: Mapping[RegionId, tuple[Slot, ...]] = Field(default={})
    actor: ActorId
    reason: str
    admitted_at: AwareDatetime
    outcome: GenerationOutcome
    outcome_reason: str = ""
    # When all of its replicas served at once; None if they never did.
    completed_at: AwareDatetime | None = None


class RolloutStep(StrEnum):
    """What a rollout or a replacement waits for."""

    PAUSED = "paused"
    PAUSE_POINT = "pause_point"
    BAKING = "baking"
    SURGING = "surging"
    REPLACING = "replacing"
    SETTLING = "settling"
    BLOCKED = "blocked"
    DONE = "done"


class RolloutProgress(Value):
    """How far the replicas that have to be replaced have come."""

    step: RolloutStep
    # Where replicas are being replaced now; None if everywhere, or nowhere.
    region: RegionId | None = None
    # Base slots of the wanted generation that are available, of so many.
    replaced: Annotated[int, Field(ge=0)]
    wanted: Annotated[int, Field(ge=0)]
    # Base slots that still run what has to go, that are being stopped, that are coming up.
    outdated: Annotated[int, Field(ge=0)] = 0
    leaving: Annotated[int, Field(ge=0)] = 0
    arriving: Annotated[int, Field(ge=0)] = 0
    # Base slots that are to run the wanted generation already, in a region that answers, and are
    # not available there: what the rollout itself still owes.
    awaited: Annotated[int, Field(ge=0)] = 0
    # Scaffolding: how many surge slots there are, and how many of them are available.
    surge: Annotated[int, Field(ge=0)] = 0
    surge_available: Annotated[int, Field(ge=0)] = 0
    # Surge slots that have no node, because there is no room or grant for them now.
    surge_starved: Annotated[int, Field(ge=0)] = 0
    # How many replicas are available of both, and how many have to be.
    available: Annotated[int, Field(ge=0)] = 0
    must_be_available: Annotated[int, Field(ge=0)] = 0

    @property
    def sentence(self) -> str:
        """What it waits for, for people."""
        where = "" if self.region is None else f" in {self.region}"
        done = f"{self.replaced} of {self.wanted} replicas replaced and available"
        match self.step:
            case RolloutStep.PAUSED:
                return f"Paused: {done}; resume it to go on."
            case RolloutStep.PAUSE_POINT:
                return f"At a pause point: {done}; promote it to go on."
            case RolloutStep.BAKING:
                return f"Baking{where}: {done}; the next region follows when this one has served."
            case RolloutStep.SURGING if self.surge_starved:
                goes_on = self.must_be_available < self.wanted
                return (
                    f"Surging{where}: {done}; surge replicas that find no room or quota now: "
                    f"{self.surge_starved}; "
                    + (
                        "it goes on within max_unavailable."
                        if goes_on
                        else "it waits for room, because no replica may be unavailable."
                    )
                )
            case RolloutStep.SURGING:
                return (
                    f"Surging{where}: {done}; surge replicas that have to serve before the next "
                    f"old ones are stopped: {self.surge - self.surge_available}."
                )
            case RolloutStep.REPLACING:
                return (
                    f"Replacing{where}: {done}; {self.leaving} being stopped, {self.arriving} "
                    f"coming up, {self.outdated} still to be replaced."
                )
            case RolloutStep.SETTLING:
                return f"Settling{where}: {done}; {self.arriving} coming up."
            case RolloutStep.BLOCKED:
                return (
                    f"Blocked{where}: {self.available} replicas available, of which "
                    f"{self.must_be_available} have to stay so; none of the {self.outdated} still "
                    "to be replaced can be stopped now."
                )
            case RolloutStep.DONE:
                return f"Done: {done}."
        assert_never(self.step)

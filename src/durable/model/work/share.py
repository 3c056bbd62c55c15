"""One region's share of one workload generation: what is wanted of it, and how far it has come."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Self, cast

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    field_serializer,
)

from durable.model.ids import Generation, IncidentId, NodeId, RegionId, Slot
from durable.model.placement.claims import ObservedSlot, RegionalClaim
from durable.model.placement.pending import Pending
from durable.model.states import BindingState, RequestState
from durable.model.work.workload import MAX_REPLICAS, WorkloadSpec
from durable.validation.value import Value


def show_slots(slots: Collection[int]) -> str:
    """A set of slots in few bytes, such as `0-3,7`."""
    runs: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if runs and runs[-1][1] == slot - 1:
            runs[-1] = (runs[-1][0], slot)
        else:
            runs.append((slot, slot))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _read_slots(value: object) -> object:
    if not isinstance(value, str):
        return frozenset(cast(Any, value))
    runs = (run.partition("-") for run in value.split(",") if run)
    return frozenset(slot for one, _, to in runs for slot in range(int(one), int(to or one) + 1))


# As text in messages: a report of thousands of slots has to stay small.
SlotSet = Annotated[
    frozenset[int], BeforeValidator(_read_slots), PlainSerializer(show_slots, when_used="json")
]


class DesiredShare(Value):
    """The slots that a region is to run of its workload, and what they run."""

    slots: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]
    spec: WorkloadSpec
    # Counts the shares that a workload has given out: an older one never replaces a newer one.
    revision: Annotated[int, Field(ge=1)]
    # Why everything is to be stopped for good; the placement ends when nothing of it is left.
    release_reason: str | None = None
    # Of a job: how many of these slots may have a claim at once; None if nothing limits that.
    at_once: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = None
    # Of a job with a deadline: when it was admitted, and until when it is to be done.
    admitted_at: AwareDatetime | None = None
    due_at: AwareDatetime | None = None
    # The recovery that moved the workload, and which of these slots it moved: only they may draw on
    # its budgets.
    incident: IncidentId | None = None
    moved: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)] = ()


class ShareCounts(Value):
    """How many slots of a share have come how far, as its placement last wrote it."""

    slots: Annotated[int, Field(ge=0)] = 0
    completed: Annotated[int, Field(ge=0)] = 0
    waiting: Annotated[int, Field(ge=0)] = 0
    # Of a job: slots that were given up, slots that wait until others have ended, and how often
    # slots have failed in all.
    given_up: Annotated[int, Field(ge=0)] = 0
    held_back: Annotated[int, Field(ge=0)] = 0
    failures: Annotated[int, Field(ge=0)] = 0

    def counts(self) -> dict[str, int]:
        """These fields alone, for another value that has them."""
        return {name: getattr(self, name) for name in ShareCounts.model_fields}

    @staticmethod
    def total(shares: Iterable["ShareCounts"]) -> dict[str, int]:
        """The sum of several in each field."""
        counts = [share.counts() for share in shares]
        return {name: sum(one[name] for one in counts) for name in ShareCounts.model_fields}


class EndedSlots(Value):
    """Which slots of a job have come to their end in a region."""

    completed_slots: SlotSet = frozenset()
    given_up_slots: SlotSet = frozenset()


class ShareRequest(ShareCounts, EndedSlots):
    """What its placement last wrote into the queue, without the spec: hundreds are read at once."""

    state: RequestState
    pending: Pending | None
    # When all its slots of a job had come to their end.
    ended_at: AwareDatetime | None = None

    @property
    def slots_left(self) -> int:
        """How many slots it has or waits for; of a job, those that have not come to their end."""
        return self.slots - self.completed - self.given_up - self.held_back


class ShareReport(ShareCounts, EndedSlots):
    """How far one region's share has come."""

    region: RegionId
    generation: Generation
    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    by_state: Mapping[BindingState, int]
    # How many of its claims are to be replaced.
    to_replace: Annotated[int, Field(ge=0)] = 0
    # How many claims it last knew that it may have at once.
    at_once: Annotated[int, Field(ge=0)] | None = None
    # When all its slots had come to their end, or else its placement had.
    ended_at: AwareDatetime | None = None
    request: RequestState | None = None
    pending: Pending | None = None

    @classmethod
    def of(
        cls,
        share: tuple[RegionId, Generation],
        request: ShareRequest | None,
        claims: Iterable[ObservedSlot | RegionalClaim],
        *,
        version: int,
        at: datetime,
        at_once: int | None,
        closed_at: datetime | None,
    ) -> Self:
        """By what its placement wrote, and its claims."""
        bound = [claim for claim in claims if claim.state is not None]
        region, generation = share
        ended = EndedSlots() if request is None else request
        return cls(
            **({} if request is None else request.counts()),
            completed_slots=ended.completed_slots,
            given_up_slots=ended.given_up_slots,
            region=region,
            generation=generation,
            version=version,
            at=at,
            by_state=Counter(claim.state for claim in bound if claim.state is not None),
            to_replace=sum(claim.is_marked and not claim.stop_requested for claim in bound),
            at_once=at_once,
            ended_at=closed_at if request is None else request.ended_at or closed_at,
            request=None if request is None else request.state,
            pending=None if request is None else request.pending,
        )

    @property
    def is_known(self) -> bool:
        """Whether its region has heard of it: its placement requested or holds something."""
        return self.request is not None or any(self.by_state.values())

    def covers(self, slots: Iterable[int]) -> bool:
        """Whether all these slots of a job have come to their end here, and nothing runs."""
        ended = self.completed_slots | self.given_up_slots
        return ended.issuperset(slots) and not any(self.by_state.values())

    @property
    def remaining(self) -> int:
        """How many slots of a job have not come to their end, of all that it ever had."""
        return 0 if self.has_ended else self.slots - self.completed - self.given_up

    @property
    def in_use(self) -> int:
        """How many of its slots have a claim."""
        return max(0, self.remaining - self.waiting - self.held_back)

    @property
    def has_ended(self) -> bool:
        """Whether its placement has nothing left: all was released for good."""
        return self.request is RequestState.WITHDRAWN and not any(self.by_state.values())


def completed_in(reports: Iterable[EndedSlots]) -> frozenset[int]:
    """The slots of a job that are done: one that two regions have done is one slot."""
    return frozenset[int]().union(*(report.completed_slots for report in reports))


class SlotsObserved(Value):
    """Every bound slot of a share, at one version of the region."""

    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    slots: Annotated[tuple[ObservedSlot, ...], Field(max_length=MAX_REPLICAS)]


class SlotFailures(Value):
    """How often a slot of a job has failed, when and where last, and whether it is not retried."""

    count: Annotated[int, Field(ge=1)]
    last_at: AwareDatetime
    node: NodeId
    is_fatal: bool = False


class PlacementPast(Value):
    """What earlier runs of a placement left, for one that has no memory of its own."""

    next_attempt: Annotated[int, Field(ge=1)]
    enqueued_at: AwareDatetime | None = None
    # Of a job: the slots that are done, and how often the others failed.
    completed: tuple[Slot, ...] = ()
    failures: Mapping[Slot, SlotFailures] = Field(default={})
    failures_in_all: Annotated[int, Field(ge=0)] = 0


class PlacementFacts(Value):
    """The live claims of a placement, and its share if that is news; or a page of them."""

    claims: tuple[ObservedSlot, ...]
    # With which slot the next page begins; None on the last one.
    next_slot: Slot | None = None
    # When they were read, by the clock that the claims' own times are of.
    read_at: AwareDatetime | None = None
    share: DesiredShare | None = None
    past: PlacementPast | None = None

    @field_serializer("claims")
    def _claims_in_short(self, claims: tuple[ObservedSlot, ...]) -> list[dict[str, JsonValue]]:
        return [claim.model_dump(mode="json", exclude_defaults=True) for claim in claims]

    def and_then(self, page: "PlacementFacts") -> "PlacementFacts":
        """Both pages as one; a share that is given out meanwhile is the newer one."""
        past = self.past
        if past is not None and page.past is not None:
            added = {
                "completed": (*past.completed, *page.past.completed),
                "failures": {**past.failures, **page.past.failures},
            }
            past = past.model_copy(update=added)
        return PlacementFacts(
            claims=(*self.claims, *page.claims),
            next_slot=page.next_slot,
            read_at=self.read_at,
            share=page.share or self.share,
            past=past,
        )

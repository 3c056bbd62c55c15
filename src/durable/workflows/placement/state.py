"""What a placement remembers, and what follows from it: its phase, its reason, its status."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import PlacementKey
    from durable.model.ids import RegionId, TenantId, WorkloadName
    from durable.model.placement.claims import ObservedSlot
    from durable.model.placement.pending import Pending
    from durable.model.placement.pending_reasons import CrashBackoff, PendingCode
    from durable.model.placement.request import SchedulingRequest
    from durable.model.states import RequestState
    from durable.model.work.phases import Owner, PlacementPhase, SlotPhase, placement_phase
    from durable.model.work.share import DesiredShare, PlacementFacts, PlacementPast
    from durable.model.work.workload import Deadlines, WorkloadKind, WorkloadSpec
    from durable.signals.names import placement_id
    from durable.signals.status import PlacementStatus
    from durable.validation.value import Value
    from durable.workflows.continued import continued
    from durable.workflows.inbox import MessageLog
    from durable.workflows.placement.at_once import waiting_and_held_back, why_held_back
    from durable.workflows.placement.slots import OVER, CrashMemory, Leave, PlacementSlots
    from durable.workflows.starts import read_start

UNREACHABLE = PendingCode.AUTHORITY_UNREACHABLE
EXAMPLE = '{"key": {"region": "east", "tenant": "risk", "workload": "api", "generation": 1}}'
# Of a workflow that was started with something else than a key, and fails at once.
NO_KEY = PlacementKey(
    region=RegionId("none"), tenant=TenantId("none"), workload=WorkloadName("none"), generation=1
)


@dataclass
class PlacementState:
    """All that one run of a placement remembers; `memory` is what the next run is given."""

    key: PlacementKey
    enqueued_at: datetime
    # What it is to run; unknown until the first look at the region.
    share: DesiredShare | None = None
    slots: PlacementSlots = field(default_factory=PlacementSlots)
    next_attempt: int = 1
    # That the last decision was made under.
    policy_revision: int | None = None
    tries: int = 0
    pending: Pending | None = None
    next_retry_at: datetime | None = None
    # How often in a row the authority did not answer.
    outages: int = 0
    # The region's version on which was decided last.
    decided_version: int = 0
    # Whether anything waits for a node, since `enqueued_at`.
    is_waiting: bool = True
    # Whether the region may know of a share or claims that are not remembered here.
    must_recall: bool = True
    recall_at: datetime | None = None
    # Whether this run has read what the runs before it left in the region.
    knows_past: bool = False
    # How often slots of a job have failed in all, also those that are no longer wanted here.
    failures: int = 0
    # By how much its deadline has raised its priority, and until when that is known.
    urgency: int = 0
    urgency_until: datetime | None = None
    knows_urgency: bool = False
    # The request as it was last written into the region's queue.
    written: SchedulingRequest | None = None
    messages: MessageLog = field(default_factory=MessageLog)

    @property
    def spec(self) -> WorkloadSpec:
        assert self.share is not None, "nothing is placed before the first look at the region"
        return self.share.spec

    @property
    def revision(self) -> int:
        return 0 if self.share is None else self.share.revision

    @property
    def releasing(self) -> str | None:
        """Why everything is to be stopped for good."""
        return None if self.share is None else self.share.release_reason

    @property
    def placed_by(self) -> datetime:
        deadlines = Deadlines() if self.share is None else self.share.spec.deadlines
        return self.enqueued_at + deadlines.placed

    @property
    def is_cut_off(self) -> bool:
        """Whether the authority did not answer last time."""
        return self.pending is not None and self.pending.code is UNREACHABLE

    @property
    def has_ended(self) -> bool:
        """Whether all was released for good.

        A job's part that is done stays: what another region loses may still come to it.
        """
        if self.releasing is None or self.must_recall:
            return False
        return all(slot.phase in OVER for slot in self.slots.by_number.values())

    @property
    def spec_to_place(self) -> WorkloadSpec:
        """A gang starts together; once part of it is done, the rest is placed one by one.

        Also where only the rest is: another region has done the other part, and was lost.
        """
        assert self.share is not None
        is_rest = self.spec.kind is WorkloadKind.JOB and (
            len(self.share.slots) < self.spec.gang_size
        )
        if not self.spec.is_gang or not (is_rest or self.slots.in_phase(*OVER)):
            return self.spec
        return self.spec.model_copy(update={"all_or_nothing": False, "minimum": None})

    @property
    def phase(self) -> PlacementPhase:
        phases = [slot.phase for slot in self.slots.by_number.values()]
        if why_held_back(self.share, self.slots):
            # Those that run say how far it has come; the others wait for nothing but them.
            phases = [one for one in phases if one is not SlotPhase.WAITING] or phases
        return placement_phase(phases, is_releasing=self.releasing is not None)

    @property
    def reason(self) -> Pending | None:
        """Why slots wait, if any do."""
        waiting = self.slots.in_phase(SlotPhase.WAITING)
        if not waiting:
            return None
        held_back = why_held_back(self.share, self.slots)
        if held_back is not None and not self.is_cut_off:
            return held_back
        if self.pending is not None:
            return self._with_last_failure(self.pending)
        retries = [slot.retry_at for slot in waiting if slot.retry_at]
        if not retries:
            return Pending(code=PendingCode.QUEUED)
        failure = next(slot.evidence for slot in waiting if slot.retry_at)
        crashed = CrashBackoff(slots=len(retries), failure=failure, until=min(retries))
        return Pending.because(PendingCode.CRASHED, crashed)

    def _with_last_failure(self, pending: Pending) -> Pending:
        """A wait for a node that may be tried again says what happened on those before."""
        waiting = self.slots.in_phase(SlotPhase.WAITING)
        failures = [slot.evidence for slot in waiting if slot.crash_count and slot.evidence]
        if pending.code is not PendingCode.CRASHED or not failures:
            return pending
        return Pending(code=pending.code, parameters={**pending.parameters, "failure": failures[0]})

    @property
    def owner(self) -> Owner:
        """Who acts next."""
        reason = self.reason
        if reason and not reason.waiting_helps:
            return Owner.OPERATOR
        if self.is_cut_off or not self.knows_past:
            return Owner.AUTHORITY
        if reason is not None and reason.code is not PendingCode.PARALLELISM:
            return Owner.SCHEDULER
        slots = self.slots.by_number.values()
        if not all(slot.phase in (SlotPhase.SERVING, *OVER) for slot in slots):
            return Owner.AGENT
        # A replica that was given up is not what was desired.
        return Owner.OPERATOR if self.slots.in_phase(SlotPhase.GIVEN_UP) else Owner.NONE

    def begin_wait(self, now: datetime) -> None:
        """What waits again after everything was placed has not waited since the beginning."""
        is_waiting = bool(waiting_and_held_back(self.share, self.slots)[0])
        if is_waiting and not self.is_waiting:
            self.enqueued_at = now
        self.is_waiting = is_waiting

    def request(self, now: datetime) -> SchedulingRequest:
        """The placement's row in the region's queue."""
        waiting, held_back = waiting_and_held_back(self.share, self.slots)
        return SchedulingRequest(
            **self.key.model_dump(),
            slots=tuple(sorted({*self.slots.by_number, *self.slots.completed})),
            priority=self.spec.priority + self.urgency,
            state=self._request_state(waiting, now),
            pending=self.reason,
            attempts=self.next_attempt - 1,
            enqueued_at=self.enqueued_at,
            deadline=self.placed_by,
            next_retry_at=self.next_retry_at if waiting else None,
            spec=self.spec,
            waiting=waiting,
            completed=tuple(sorted(self.slots.completed)),
            given_up=tuple(sorted(s.slot for s in self.slots.in_phase(SlotPhase.GIVEN_UP))),
            held_back=held_back,
            failures=self.count_failures(),
            at_once=None if self.share is None else self.share.at_once,
            decided_version=self.decided_version,
            ends_revision=self.revision if self.has_ended else None,
        )

    def count_failures(self) -> int:
        """Of a job, in all; it never falls, also when slots are no longer wanted."""
        if self.spec.kind is WorkloadKind.JOB:
            counted = sum(slot.crash_count for slot in self.slots.by_number.values())
            self.failures = max(self.failures, counted)
        return self.failures

    def _request_state(self, waiting: int, now: datetime) -> RequestState:
        if self.has_ended:
            return RequestState.WITHDRAWN
        if not waiting:
            return RequestState.PLACED
        return RequestState.TIMED_OUT if now >= self.placed_by else RequestState.PENDING

    def status(self) -> PlacementStatus:
        """What the query answers."""
        slots = self.slots.by_number
        return PlacementStatus(
            **self.key.model_dump(),
            phase=self.phase,
            pending=self.reason or (self.pending if self.is_cut_off else None),
            owner=self.owner,
            next_retry_at=self.next_retry_at,
            placed_by=self.placed_by,
            attempts=self.next_attempt - 1,
            policy_revision=self.policy_revision,
            slots=tuple(slots[number].view() for number in sorted(slots)),
            rejected=tuple(self.messages.rejected),
            rejected_count=self.messages.rejected_count,
            messages=self.messages.count,
        )

    # ── what happens to its memory ──────────────────────────────────────────────────────────────

    def learn(self, facts: PlacementFacts, now: datetime) -> None:
        """Makes share and slots agree with what the region knows, whatever was remembered."""
        past = facts.past
        if past is not None:
            self.next_attempt = max(self.next_attempt, past.next_attempt)
            self.enqueued_at = min(self.enqueued_at, past.enqueued_at or now)
            self.knows_past = True
        if facts.share is not None and facts.share.revision > self.revision:
            self.share = facts.share
            self.knows_urgency = False
            self.next_retry_at = None
            self._resize(now)
        if self.share is None:
            return
        if past is not None:
            self.failures = max(self.failures, past.failures_in_all)
            self.slots.remember_ends(_past_by_our_clock(past, facts, now), now, self.spec)
        self.slots.adopt(_by_our_clock(facts, now), now, self.spec)

    def _resize(self, now: datetime) -> None:
        assert self.share is not None
        why = self.share.release_reason or "the workload no longer wants this slot"
        self.slots.resize(self.share.slots, now, why)

    def memory(self) -> "PlacementMemory":
        return PlacementMemory(
            enqueued_at=self.enqueued_at,
            share=self.share,
            next_attempt=self.next_attempt,
            policy_revision=self.policy_revision,
            tries=self.tries,
            # The next run asks the authority itself whether it is away.
            pending=None if self.is_cut_off else self.pending,
            next_retry_at=None if self.is_cut_off else self.next_retry_at,
            is_waiting=self.is_waiting,
            evicted={s.slot: s.is_forced for s in self.slots.by_number.values() if s.is_evicted},
            crashes=self.slots.crash_memory(),
            messages=self.messages,
            decided_version=self.decided_version,
        )

    @classmethod
    def begin(
        cls, key: PlacementKey, memory: "PlacementMemory | None", now: datetime
    ) -> "PlacementState":
        """The state of a run that begins: all that is in the region is read before any step."""
        if memory is None:
            return cls(key=key, enqueued_at=now)
        state = cls(
            key=key,
            enqueued_at=memory.enqueued_at,
            share=memory.share,
            next_attempt=memory.next_attempt,
            policy_revision=memory.policy_revision,
            tries=memory.tries,
            pending=memory.pending,
            next_retry_at=memory.next_retry_at,
            is_waiting=memory.is_waiting,
            messages=memory.messages,
            decided_version=memory.decided_version,
        )
        if state.share is not None:
            state._resize(now)
        state.slots.remember_crashes(memory.crashes)
        for number, is_forced in memory.evicted.items():
            slot = state.slots.by_number.get(number)
            if slot is not None:
                slot.leave, slot.is_forced = Leave.AGAIN, is_forced
        return state


def _by_our_clock(facts: PlacementFacts, now: datetime) -> Sequence[ObservedSlot]:
    """The claims with times of this workflow's clock: the database's may be hours off."""
    ahead = now - (facts.read_at or now)
    return [
        claim.model_copy(
            update={
                "since": claim.since and claim.since + ahead,
                "stop_requested_at": claim.stop_requested_at and claim.stop_requested_at + ahead,
            }
        )
        for claim in facts.claims
    ]


def _past_by_our_clock(past: PlacementPast, facts: PlacementFacts, now: datetime) -> PlacementPast:
    ahead = now - (facts.read_at or now)
    failures = {
        slot: one.model_copy(update={"last_at": one.last_at + ahead})
        for slot, one in past.failures.items()
    }
    return past.model_copy(update={"failures": failures})


@dataclass
class PlacementMemory:
    """What goes along when the workflow continues as new: intent, and what no row keeps.

    Claims, what was observed of them and what a job has done are read again from the region, so
    its size is bounded by the number of slots alone (tests/workflows/test_bounded_memory.py).
    """

    enqueued_at: datetime
    share: DesiredShare | None
    next_attempt: int
    policy_revision: int | None
    tries: int
    pending: Pending | None
    next_retry_at: datetime | None
    is_waiting: bool
    # Slots that a person evicted and whose stop is not committed yet, and whether it is forced.
    evicted: dict[int, bool]
    crashes: dict[int, CrashMemory]
    messages: MessageLog
    decided_version: int = 0


@dataclass
class PlacementStart:
    """What a placement is started with; `memory` only when it continues as new."""

    key: PlacementKey
    memory: PlacementMemory | None = None


class StartPlacement(Value):
    """What a person starts a placement with; a memory that comes along is not believed."""

    key: PlacementKey

    @property
    def workflow_id(self) -> str:
        key = self.key
        return placement_id(key.tenant, key.workload, key.generation, key.region)


def start_of(raw: RawValue | None) -> PlacementStart:
    """What the run before this one left, or what a person starts it with; refused if wrong."""
    left = continued(raw)
    if left is not None:
        return workflow.payload_converter().from_payload(left.payload, PlacementStart)
    given = read_start(raw, StartPlacement, lambda it: it.workflow_id, EXAMPLE)
    return PlacementStart(given.key)

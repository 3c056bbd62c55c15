"""What a placement remembers, and what follows from it: its phase, its reason, its status."""

from dataclasses import dataclass, field
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import PlacementKey
    from durable.model.pending import Pending
    from durable.model.pending_reasons import Crashed, Held, PendingCode
    from durable.model.phases import Owner, PlacementPhase, SlotPhase, placement_phase
    from durable.model.request import PlacementHold, SchedulingRequest
    from durable.model.states import RequestState
    from durable.model.workload import WorkloadSpec
    from durable.signals.payloads import PlacementEnded, SetShare
    from durable.signals.status import PlacementStatus
    from durable.workflows.inbox import MessageLog
    from durable.workflows.placement.slots import OVER, Leave, PlacementSlots

UNREACHABLE = PendingCode.AUTHORITY_UNREACHABLE


@dataclass
class PlacementState:
    """It goes along when the workflow continues as new."""

    key: PlacementKey
    spec: WorkloadSpec
    enqueued_at: datetime
    slots: PlacementSlots = field(default_factory=PlacementSlots)
    revision: int = 0
    next_attempt: int = 1
    tries: int = 0
    pending: Pending | None = None
    next_retry_at: datetime | None = None
    hold: PlacementHold | None = None
    releasing: str | None = None
    # Whether anything waits for a node, since `enqueued_at`.
    is_waiting: bool = True
    # Whether the authority may know of claims that are not remembered here.
    must_read_claims: bool = False
    read_claims_at: datetime | None = None
    # The request as it was last written into the region's queue.
    written: SchedulingRequest | None = None
    messages: MessageLog = field(default_factory=MessageLog)

    @property
    def placed_by(self) -> datetime:
        return self.enqueued_at + self.spec.deadlines.placed

    @property
    def is_cut_off(self) -> bool:
        """Whether the authority did not answer last time."""
        return self.pending is not None and self.pending.code is UNREACHABLE

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: all was released, or the job is done."""
        slots = self.slots.by_number.values()
        if self.releasing is not None:
            return not slots and not self.must_read_claims
        return bool(slots) and all(slot.phase in OVER for slot in slots)

    @property
    def spec_to_place(self) -> WorkloadSpec:
        """A gang starts together; once part of it is done, the rest is placed one by one."""
        if not self.spec.is_gang or not self.slots.in_phase(*OVER):
            return self.spec
        return self.spec.model_copy(update={"all_or_nothing": False, "minimum": None})

    @property
    def phase(self) -> PlacementPhase:
        phases = (slot.phase for slot in self.slots.by_number.values())
        return placement_phase(phases, is_releasing=self.releasing is not None)

    @property
    def reason(self) -> Pending | None:
        """Why slots wait, if any do."""
        waiting = self.slots.in_phase(SlotPhase.WAITING)
        if not waiting:
            return None
        if self.hold is not None:
            held = Held(actor=self.hold.actor, reason=self.hold.reason)
            return Pending.because(PendingCode.HELD, held)
        if self.pending is not None:
            return self._with_last_failure(self.pending)
        retries = [slot.retry_at for slot in waiting if slot.retry_at]
        if not retries:
            return Pending(code=PendingCode.QUEUED)
        failure = next(slot.evidence for slot in waiting if slot.retry_at)
        crashed = Crashed(slots=len(retries), failure=failure, until=min(retries))
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
        if self.hold is not None or (reason and not reason.waiting_helps):
            return Owner.OPERATOR
        if self.is_cut_off:
            return Owner.AUTHORITY
        if reason is not None:
            return Owner.SCHEDULER
        slots = self.slots.by_number.values()
        if all(slot.phase in (SlotPhase.SERVING, *OVER) for slot in slots):
            return Owner.NOBODY
        return Owner.AGENT

    @property
    def _next_decision_at(self) -> datetime | None:
        """Nothing is decided while somebody holds it."""
        return None if self.hold is not None else self.next_retry_at

    def begin_wait(self, now: datetime) -> None:
        """What waits again after everything was placed has not waited since the beginning."""
        is_waiting = bool(self.slots.in_phase(SlotPhase.WAITING))
        if is_waiting and not self.is_waiting:
            self.enqueued_at = now
        self.is_waiting = is_waiting

    def request(self, now: datetime) -> SchedulingRequest:
        """The placement's row in the region's queue."""
        waiting = len(self.slots.in_phase(SlotPhase.WAITING))
        return SchedulingRequest(
            **self.key.model_dump(),
            slots=tuple(sorted(self.slots.by_number)),
            priority=self.spec.priority,
            state=self._request_state(waiting, now),
            pending=self.reason,
            hold=self.hold,
            attempts=self.next_attempt - 1,
            enqueued_at=self.enqueued_at,
            deadline=self.placed_by,
            next_retry_at=self._next_decision_at if waiting else None,
            spec=self.spec,
            waiting=waiting,
            completed=len(self.slots.in_phase(SlotPhase.COMPLETED)),
        )

    def _request_state(self, waiting: int, now: datetime) -> RequestState:
        if self.is_over:
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
            next_retry_at=self._next_decision_at,
            placed_by=self.placed_by,
            hold=self.hold,
            attempts=self.next_attempt - 1,
            slots=tuple(slots[number].view() for number in sorted(slots)),
            rejected=tuple(self.messages.rejected),
            rejected_count=self.messages.rejected_count,
            messages=self.messages.count,
        )

    def share(self) -> SetShare:
        """The share it was last given, for the next run."""
        slots = self.slots.by_number.values()
        kept = (slot.slot for slot in slots if slot.leave is not Leave.FOR_GOOD)
        return SetShare(slots=tuple(sorted(kept)), spec=self.spec, revision=max(1, self.revision))

    def ended(self) -> PlacementEnded:
        return PlacementEnded(
            region=self.key.region,
            generation=self.key.generation,
            completed=len(self.slots.in_phase(SlotPhase.COMPLETED)),
            given_up=len(self.slots.in_phase(SlotPhase.GIVEN_UP)),
        )


@dataclass
class PlacementStart:
    """What a placement is started with; `state` only when it continues as new."""

    key: PlacementKey
    share: SetShare
    state: PlacementState | None = None

"""What a placement remembers, and what follows from it: its phase, its reason, its status."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import Progress, Share
    from durable.model.ids import ActorId
    from durable.model.pending import Pending
    from durable.model.pending_reasons import Crashed, Held, PendingCode
    from durable.model.request import PlacementHold
    from durable.model.states import RequestState
    from durable.model.workload import WorkloadSpec
    from durable.signals.messages import Ended, Resize
    from durable.signals.search_attributes import PROGRESSING
    from durable.signals.status import Owner, Phase, PlacementStatus
    from durable.workflows.inbox import MessageRecord
    from durable.workflows.placement.slots import OVER, Board, Leave, SlotState

AWAY = PendingCode.AUTHORITY_UNREACHABLE


@dataclass
class PlacementState:
    """It goes along when the workflow continues as new."""

    share: Share
    spec: WorkloadSpec
    enqueued_at: datetime
    board: Board = field(default_factory=Board)
    revision: int = 0
    next_attempt: int = 1
    tries: int = 0
    pending: Pending | None = None
    next_retry_at: datetime | None = None
    held_by: str | None = None
    held_since: datetime | None = None
    releasing: str | None = None
    # Whether anything waits for a place, since `enqueued_at`.
    waits: bool = True
    look_again: bool = False
    look_again_at: datetime | None = None
    told: Progress | None = None
    messages: MessageRecord = field(default_factory=MessageRecord)

    @property
    def placed_by(self) -> datetime:
        return self.enqueued_at + self.spec.deadlines.placed

    @property
    def is_cut_off(self) -> bool:
        """Whether the authority did not answer when it was asked last."""
        return self.pending is not None and self.pending.code is AWAY

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: all was released, or the job is done."""
        slots = self.board.slots.values()
        if self.releasing is not None:
            return not slots and not self.look_again
        return bool(slots) and all(slot.phase in OVER for slot in slots)

    @property
    def spec_to_place(self) -> WorkloadSpec:
        """A gang starts together; once part of it is done, the rest is placed as it comes."""
        if not self.spec.is_gang or not self.board.in_phase(*OVER):
            return self.spec
        return self.spec.model_copy(update={"all_or_nothing": False, "minimum": None})

    @property
    def phase(self) -> str:
        """The placement in one word: how far its least advanced slot has come."""
        if self.releasing is not None:
            return "releasing"
        order = list(Phase)
        phases = [slot.phase for slot in self.board.slots.values()]
        return min(phases, key=order.index).value if phases else "empty"

    @property
    def coarse_phase(self) -> str:
        """What operators search by; every change of it costs the server a write."""
        passing = (Phase.RESERVED, Phase.BOUND, Phase.STARTING, Phase.RUNNING, Phase.READY)
        return PROGRESSING if self.phase in passing else self.phase

    @property
    def hold(self) -> PlacementHold | None:
        if self.held_by is None or self.held_since is None:
            return None
        actor, _, reason = self.held_by.partition(": ")
        return PlacementHold(actor=ActorId(actor), reason=reason, since=self.held_since)

    @property
    def reason(self) -> Pending | None:
        """Why slots wait, if any do."""
        waiting = self.board.in_phase(Phase.WAITING)
        if not waiting:
            return None
        if self.hold is not None:
            held = Held(actor=str(self.hold.actor), reason=self.hold.reason)
            return Pending.because(PendingCode.HELD, held)
        if self.pending is not None:
            return self._with_what_failed(self.pending)
        crashed = [slot for slot in waiting if slot.retry_at]
        if not crashed:
            return Pending(code=PendingCode.QUEUED)
        return Pending.because(
            PendingCode.CRASHED,
            Crashed(
                slots=len(crashed),
                failure=crashed[0].evidence,
                until=min(slot.retry_at for slot in crashed if slot.retry_at),
            ),
        )

    def _with_what_failed(self, pending: Pending) -> Pending:
        """A wait for a node that may be tried again says what happened on those before."""
        ends = [s.evidence for s in self.board.in_phase(Phase.WAITING) if s.crashes and s.evidence]
        if pending.code is not PendingCode.CRASHED or not ends:
            return pending
        return Pending(code=pending.code, parameters={**pending.parameters, "failure": ends[0]})

    @property
    def owner(self) -> Owner:
        """Who moves it next."""
        reason = self.reason
        if self.held_by is not None or (reason and not reason.waiting_helps):
            return Owner.OPERATOR
        if self.is_cut_off:
            return Owner.AUTHORITY
        if reason is not None:
            return Owner.SCHEDULER
        slots = self.board.slots.values()
        if all(slot.phase in (Phase.SERVING, *OVER) for slot in slots):
            return Owner.NOBODY
        return Owner.AGENT

    @property
    def _next_look(self) -> datetime | None:
        """Nothing is looked for while somebody holds it."""
        return None if self.held_by is not None else self.next_retry_at

    def notice_wait(self, now: datetime) -> None:
        """What waits again after all had a place has not waited since the beginning."""
        waits = bool(self.board.in_phase(Phase.WAITING))
        if waits and not self.waits:
            self.enqueued_at = now
        self.waits = waits

    def progress(self, now: datetime) -> Progress:
        """The placement's row in the region's queue."""
        waiting = len(self.board.in_phase(Phase.WAITING))
        return Progress(
            share=self.share,
            spec=self.spec,
            slots=tuple(sorted(self.board.slots)),
            waiting=waiting,
            state=self._request_state(waiting, now),
            pending=self.reason,
            hold=self.hold,
            attempts=self.next_attempt - 1,
            enqueued_at=self.enqueued_at,
            placed_by=self.placed_by,
            next_retry_at=self._next_look if waiting else None,
            completed=len(self.board.in_phase(Phase.COMPLETED)),
        )

    def progress_when_placed(self, due: Sequence[SlotState], now: datetime) -> Progress | None:
        """The row once these slots have a place; none if others would still wait."""
        if len(due) < len(self.board.in_phase(Phase.WAITING)):
            return None
        placed = {"waiting": 0, "state": RequestState.PLACED, "pending": None}
        return self.progress(now).model_copy(update={**placed, "next_retry_at": None})

    def _request_state(self, waiting: int, now: datetime) -> RequestState:
        if self.is_over:
            return RequestState.WITHDRAWN
        if not waiting:
            return RequestState.PLACED
        return RequestState.TIMED_OUT if now >= self.placed_by else RequestState.PENDING

    def status(self) -> PlacementStatus:
        """What the query answers."""
        return PlacementStatus(
            region=self.share.region,
            tenant=self.share.tenant,
            workload=self.share.workload,
            generation=self.share.generation,
            phase=self.phase,
            pending=self.reason or (self.pending if self.is_cut_off else None),
            owner=self.owner,
            next_retry_at=self._next_look,
            placed_by=self.placed_by,
            held_by=self.held_by,
            attempts=self.next_attempt - 1,
            slots=tuple(self.board.slots[number].view() for number in sorted(self.board.slots)),
            rejected=tuple(self.messages.rejected),
            rejected_in_all=self.messages.rejected_in_all,
            messages=self.messages.in_all,
        )

    def wanted(self) -> Resize:
        """The share it was last told, for the next run."""
        kept = (s.slot for s in self.board.slots.values() if s.leave is not Leave.FOR_GOOD)
        return Resize(slots=tuple(sorted(kept)), spec=self.spec, revision=max(1, self.revision))

    def ended(self) -> Ended:
        return Ended(
            region=self.share.region,
            generation=self.share.generation,
            completed=len(self.board.in_phase(Phase.COMPLETED)),
            given_up=len(self.board.in_phase(Phase.GIVEN_UP)),
        )


@dataclass
class PlacementStart:
    """What a placement is started with; `state` only when it continues."""

    share: Share
    wanted: Resize
    state: PlacementState | None = None

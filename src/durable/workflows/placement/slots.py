"""The slots of one placement: where each is, and what the next observation or step makes of it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import Claim
    from durable.model.ids import NodeId
    from durable.model.slots import Crash, ObservedSlot, SlotOnNode
    from durable.model.states import BindingState
    from durable.model.workload import WorkloadKind, WorkloadSpec
    from durable.signals.messages import Seen
    from durable.signals.status import Phase, SlotView
    from durable.workflows.timeouts import (
        CRASH_FIRST,
        CRASH_LONGEST,
        CRASHES_FORGOTTEN,
        STOP_TIMEOUT,
        UNKNOWN_TIMEOUT,
    )

CRASHES_KEPT = 3

# Phases in which the node may have a process, so that only evidence of its end frees the claim.
STARTED = frozenset(
    {Phase.STARTING, Phase.RUNNING, Phase.READY, Phase.SERVING, Phase.UNKNOWN, Phase.STOPPING}
)
ENDED = frozenset({Phase.STOPPED, Phase.FAILED})
OVER = frozenset({Phase.COMPLETED, Phase.GIVEN_UP})

_SEEN = {
    BindingState.BOUND: Phase.BOUND,
    BindingState.STARTING: Phase.STARTING,
    BindingState.RUNNING: Phase.RUNNING,
    BindingState.READY: Phase.READY,
    BindingState.SERVING: Phase.SERVING,
    BindingState.UNKNOWN: Phase.UNKNOWN,
    BindingState.FAILED: Phase.FAILED,
    BindingState.STOPPED: Phase.STOPPED,
}


class Leave(StrEnum):
    """Why a slot gives its place up: to be placed again, or for good."""

    AGAIN = "again"
    FOR_GOOD = "for good"


@dataclass
class SlotState:
    """One slot. `token` names its claim while it has one."""

    slot: int
    since: datetime
    phase: Phase = Phase.WAITING
    attempt: int = 0
    token: int | None = None
    node: str | None = None
    # The region's version at which the claim was last changed by us.
    version: int = 0
    ordinal: int = 1
    lease_expires_at: datetime | None = None
    # The authority has said that its lease ran out; a clock of ours alone cannot know.
    lapsed: bool = False
    deadline: datetime | None = None
    retry_at: datetime | None = None
    leave: Leave | None = None
    evidence: str = ""
    crashes: int = 0
    crashed_on: list[Crash] = field(default_factory=list[Crash])

    def enter(self, phase: Phase, now: datetime, evidence: str = "") -> None:
        if self.phase is not phase:
            self.phase, self.since = phase, now
        self.evidence = evidence or self.evidence

    def is_due(self, *, is_held: bool) -> bool:
        """Whether a step for it was left over, which nothing else will bring about."""
        if self.phase in ENDED or self.lapsed:
            return True
        if self.leave is not None:
            return self.phase is not Phase.STOPPING
        return self.phase in (Phase.RESERVED, Phase.BOUND) and not is_held

    @property
    def claim(self) -> Claim:
        assert self.token is not None
        assert self.node is not None
        return Claim(
            slot=self.slot,
            attempt=self.attempt,
            token=self.token,
            node=NodeId(self.node),
            ordinal=self.ordinal,
        )

    def view(self) -> SlotView:
        return SlotView(
            slot=self.slot,
            phase=self.phase,
            attempt=self.attempt,
            token=self.token,
            node=None if self.node is None else NodeId(self.node),
            since=self.since,
            deadline=self.deadline or self.lease_expires_at,
            evidence=self.evidence,
        )


@dataclass
class Board:
    """All slots of the placement, by number."""

    slots: dict[int, SlotState] = field(default_factory=dict[int, SlotState])
    # The newest word of the authority that was heard: an older one changes nothing.
    heard_version: int = 0
    heard_at: datetime | None = None

    def in_phase(self, *phases: Phase) -> list[SlotState]:
        return [slot for slot in self.slots.values() if slot.phase in phases]

    def resize(self, wanted: tuple[int, ...], now: datetime) -> bool:
        """Whether any slot has to go."""
        for number in wanted:
            slot = self.slots.setdefault(number, SlotState(number, now))
            if slot.leave is Leave.FOR_GOOD:
                slot.leave = Leave.AGAIN if slot.token is not None else None
        for number, slot in self.slots.items():
            if number not in wanted:
                slot.leave = Leave.FOR_GOOD
                slot.evidence = "the workload no longer wants this slot"
        return any(number not in wanted for number in self.slots)

    def standing(self) -> tuple[SlotOnNode, ...]:
        return tuple(
            SlotOnNode(slot=slot.slot, node=NodeId(slot.node))
            for slot in self.slots.values()
            if slot.node is not None and slot.token is not None
        )

    # ── what steps make of slots ────────────────────────────────────────────────────────────────

    def reserved(self, claim: Claim, now: datetime) -> None:
        slot = self.slots[claim.slot]
        slot.attempt, slot.token, slot.node = claim.attempt, claim.token, claim.node
        slot.lease_expires_at, slot.lapsed, slot.ordinal = claim.expires_at, False, 1
        slot.retry_at = slot.deadline = None
        slot.enter(Phase.RESERVED, now, f"reserved on {claim.node}")

    def bound(self, number: int, version: int, now: datetime) -> None:
        slot = self.slots[number]
        slot.lease_expires_at, slot.version = None, version
        slot.enter(Phase.BOUND, now, f"bound to {slot.node}")

    def started(self, number: int, version: int, now: datetime, spec: WorkloadSpec) -> None:
        slot = self.slots[number]
        slot.version = version
        slot.deadline = now + spec.deadlines.started
        slot.enter(Phase.STARTING, now, f"{slot.node} was asked to start it")

    def stopping(self, number: int, version: int, now: datetime) -> None:
        slot = self.slots[number]
        # Its node may be gone: then nobody will ever report the stop.
        slot.version, slot.deadline = version, now + STOP_TIMEOUT
        slot.enter(Phase.STOPPING, now)

    def freed(self, number: int, now: datetime, spec: WorkloadSpec) -> None:
        """Its claim has ended: it waits for another place, or is over."""
        slot = self.slots[number]
        ended = slot.phase
        slot.token = slot.node = slot.lease_expires_at = slot.deadline = None
        slot.ordinal, slot.lapsed = 1, False
        if slot.leave is Leave.FOR_GOOD:
            del self.slots[number]
            return
        asked, slot.leave = slot.leave, None
        job = spec.kind is WorkloadKind.JOB
        if job and ended is Phase.STOPPED and asked is None:
            slot.enter(Phase.COMPLETED, now)
        elif job and slot.crashes >= spec.max_attempts:
            slot.enter(Phase.GIVEN_UP, now, f"failed {slot.crashes} times: {slot.evidence}"[:500])
        else:
            slot.enter(Phase.WAITING, now)

    def crashed(self, slot: SlotState, now: datetime) -> None:
        """It failed where it is: not there again for a while, and not at once."""
        assert slot.node is not None
        slot.crashes += 1
        crash = Crash(slot=slot.slot, node=NodeId(slot.node), at=now)
        slot.crashed_on = [*slot.crashed_on[1 - CRASHES_KEPT :], crash]
        wait = min(CRASH_LONGEST, CRASH_FIRST * 2 ** min(slot.crashes - 1, 10))
        slot.retry_at = now + wait

    # ── what the authority knows ────────────────────────────────────────────────────────────────

    def see(self, seen: Seen, now: datetime, spec: WorkloadSpec) -> bool:
        """Takes over what was observed; true when something is not as it was remembered."""
        late = seen.version < self.heard_version or (
            self.heard_at is not None and seen.at < self.heard_at
        )
        if late:
            return False
        self.heard_version, self.heard_at = seen.version, seen.at
        reported = {one.slot for one in seen.slots}
        strange = any(
            slot.token is not None
            and slot.phase not in (Phase.WAITING, Phase.RESERVED)
            and slot.version < seen.version
            and number not in reported
            for number, slot in self.slots.items()
        )
        for one in seen.slots:
            slot = self.slots.get(one.slot)
            if slot is None or (slot.token != one.token and one.attempt >= slot.attempt):
                strange = True
            elif slot.token == one.token:
                self._observe(slot, one, now, spec)
        return strange

    def _observe(
        self, slot: SlotState, seen: ObservedSlot, now: datetime, spec: WorkloadSpec
    ) -> None:
        phase = None if seen.state is None else _SEEN.get(seen.state)
        if phase is None or phase is slot.phase or slot.phase in ENDED:
            return
        # What we asked for last goes before what was seen before it: a stop is only undone by an
        # end, and a start that the authority has taken is never bound again.
        if slot.phase is Phase.STOPPING and phase not in ENDED:
            return
        if phase is Phase.BOUND and slot.phase is not Phase.RESERVED:
            return
        before = slot.phase
        if before is Phase.SERVING and now - slot.since > CRASHES_FORGOTTEN:
            slot.crashes = 0
        slot.lease_expires_at = None
        slot.enter(phase, now, seen.evidence or f"{phase} on {slot.node}")
        slot.deadline = self._deadline(phase, before, slot, now, spec)
        failed = phase is Phase.FAILED or (
            phase is Phase.STOPPED and spec.kind is WorkloadKind.SERVICE
        )
        if failed and slot.leave is None and not seen.stop_requested:
            self.crashed(slot, now)
        if phase is Phase.SERVING:
            slot.retry_at = None

    def _deadline(
        self, phase: Phase, before: Phase, slot: SlotState, now: datetime, spec: WorkloadSpec
    ) -> datetime | None:
        waits: dict[Phase, timedelta] = {
            Phase.STARTING: spec.deadlines.started,
            Phase.RUNNING: spec.deadlines.ready,
            Phase.UNKNOWN: UNKNOWN_TIMEOUT,
        }
        if phase is Phase.RUNNING and (spec.kind is WorkloadKind.JOB or before is Phase.SERVING):
            return None  # a job has nothing to be ready for; what served before may do so again
        wait = waits.get(phase)
        return None if wait is None else now + wait

    def adopt(self, live: list[ObservedSlot], now: datetime, spec: WorkloadSpec) -> None:
        """Makes the slots agree with the claims that are live, whatever was remembered."""
        tokens = {claim.slot: claim.token for claim in live}
        for number, slot in list(self.slots.items()):
            if slot.token is not None and tokens.get(number) != slot.token:
                self.freed(number, now, spec)
        for claim in live:
            slot = self.slots.get(claim.slot)
            if slot is None:
                slot = SlotState(claim.slot, now, leave=Leave.FOR_GOOD)
                self.slots[claim.slot] = slot
            if slot.token != claim.token:
                self._adopt_claim(slot, claim, now, spec)
            elif claim.state is not None:
                self._observe(slot, claim, now, spec)

    def _adopt_claim(
        self, slot: SlotState, claim: ObservedSlot, now: datetime, spec: WorkloadSpec
    ) -> None:
        self.reserved(Claim.of(claim), now)
        if claim.state is None:
            return
        slot.lease_expires_at = None
        slot.phase = Phase.RESERVED
        slot.enter(_SEEN.get(claim.state, Phase.BOUND), now, claim.evidence)
        slot.deadline = self._deadline(slot.phase, Phase.BOUND, slot, now, spec)
        if claim.stop_requested and slot.phase not in ENDED:
            slot.leave = slot.leave or Leave.AGAIN
            slot.enter(Phase.STOPPING if slot.phase in STARTED else slot.phase, now)

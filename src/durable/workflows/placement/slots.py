"""The slots of one placement: where each is, and what the next step or observation makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import Claim
    from durable.model.ids import NodeId
    from durable.model.placement.claims import Crash, ObservedSlot, SlotOnNode
    from durable.model.states import BindingState
    from durable.model.work.phases import SlotPhase
    from durable.model.work.share import PlacementPast, SlotsObserved
    from durable.model.work.workload import WorkloadKind, WorkloadSpec
    from durable.signals.status import SlotView
    from durable.validation.text import shorten
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
    {
        SlotPhase.STARTING,
        SlotPhase.RUNNING,
        SlotPhase.READY,
        SlotPhase.SERVING,
        SlotPhase.UNKNOWN,
        SlotPhase.STOPPING,
    }
)
ENDED = frozenset({SlotPhase.STOPPED, SlotPhase.FAILED})
OVER = frozenset({SlotPhase.COMPLETED, SlotPhase.GIVEN_UP})

_PHASES = {
    BindingState.BOUND: SlotPhase.BOUND,
    BindingState.STARTING: SlotPhase.STARTING,
    BindingState.RUNNING: SlotPhase.RUNNING,
    BindingState.READY: SlotPhase.READY,
    BindingState.SERVING: SlotPhase.SERVING,
    BindingState.UNKNOWN: SlotPhase.UNKNOWN,
    BindingState.FAILED: SlotPhase.FAILED,
    BindingState.STOPPED: SlotPhase.STOPPED,
}


# What the next run must know of a slot that crashed: how often, until when it rests (as seconds,
# 0 if it does not), and where and when it crashed last.
CrashMemory = tuple[int, float, str, float]


class Leave(StrEnum):
    """Why a slot leaves its node: to be placed again, or for good."""

    AGAIN = "again"
    FOR_GOOD = "for good"


@dataclass
class SlotState:
    """One slot. `token` names its claim while it has one."""

    slot: int
    since: datetime
    phase: SlotPhase = SlotPhase.WAITING
    attempt: int = 0
    token: int | None = None
    node: str | None = None
    # The region's version at which the claim was last changed by us.
    version: int = 0
    ordinal: int = 1
    lease_expires_at: datetime | None = None
    # The authority has said that its lease ran out; a clock of ours alone cannot know.
    has_lapsed: bool = False
    deadline: datetime | None = None
    retry_at: datetime | None = None
    leave: Leave | None = None
    # Its node was asked to stop it: what ends after that has not ended by itself.
    was_asked_to_stop: bool = False
    # A person insists that it is stopped now, whatever the disruption allowance says.
    is_forced: bool = False
    # Why it is not stopped yet, although it must leave.
    blocked: str = ""
    evidence: str = ""
    crash_count: int = 0
    # It ended with an exit code after which it is not tried again.
    is_fatal: bool = False
    crashes: list[Crash] = field(default_factory=list[Crash])

    def enter(self, phase: SlotPhase, now: datetime, evidence: str = "") -> None:
        if self.phase is not phase:
            self.phase, self.since = phase, now
        self.evidence = evidence or self.evidence

    def is_given_up(self, spec: WorkloadSpec) -> bool:
        """Whether a replica of a job is not tried again."""
        return self.is_fatal or self.crash_count >= spec.max_attempts

    def give_up(self, now: datetime) -> None:
        often = "once" if self.crash_count == 1 else f"{self.crash_count} times"
        why = "with an exit code that is not retried" if self.is_fatal else often
        evidence = f": {self.evidence}" if self.evidence else ""
        self.enter(SlotPhase.GIVEN_UP, now, shorten(f"failed {why}{evidence}"))

    def has_step_left(self) -> bool:
        """Whether a step for it was left over, which nothing else will bring about."""
        if self.phase in ENDED or self.has_lapsed:
            return True
        if self.leave is not None:
            return self.phase is not SlotPhase.STOPPING
        return self.phase in (SlotPhase.RESERVED, SlotPhase.BOUND)

    def has_crash_of(self, claim: ObservedSlot) -> bool:
        """Whether the run before this one counted the failure of this claim."""
        if not self.crashes or claim.since is None:
            return False
        return self.crashes[-1].node == claim.node and self.crashes[-1].at >= claim.since

    @property
    def is_evicted(self) -> bool:
        """Whether it must leave, and its node was not asked yet."""
        return self.leave is Leave.AGAIN and self.phase is not SlotPhase.STOPPING

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
            evidence=shorten(f"{self.evidence}; {self.blocked}") if self.blocked else self.evidence,
        )


@dataclass
class PlacementSlots:
    """All slots of the placement, by number."""

    by_number: dict[int, SlotState] = field(default_factory=dict[int, SlotState])
    # Of a job: the slots that are done, also those that were to leave when they ended.
    completed: set[int] = field(default_factory=set[int])
    # The newest observation that was received: an older one changes nothing.
    observed_version: int = 0
    observed_at: datetime | None = None

    def in_phase(self, *phases: SlotPhase) -> list[SlotState]:
        return [slot for slot in self.by_number.values() if slot.phase in phases]

    def resize(self, wanted: tuple[int, ...], now: datetime, why: str) -> None:
        """Has slots begin that are wanted now, and leave that no longer are."""
        for number in wanted:
            slot = self.by_number.setdefault(number, SlotState(number, now))
            if number in self.completed and slot.token is None:
                slot.enter(SlotPhase.COMPLETED, now)
            if slot.leave is Leave.FOR_GOOD:
                # What was asked to stop has to be placed again; what was not simply stays.
                is_stopping = slot.phase is SlotPhase.STOPPING
                slot.leave = Leave.AGAIN if is_stopping else None
                slot.blocked = ""
        for number, slot in self.by_number.items():
            if number not in wanted and slot.phase not in OVER:
                slot.leave, slot.evidence = Leave.FOR_GOOD, why

    def live(self) -> tuple[SlotOnNode, ...]:
        """Where the slots with a claim are."""
        return tuple(
            SlotOnNode(slot=slot.slot, node=NodeId(slot.node))
            for slot in self.by_number.values()
            if slot.node is not None and slot.token is not None
        )

    # ── what steps make of slots ────────────────────────────────────────────────────────────────

    def reserved(self, claim: Claim, now: datetime) -> None:
        slot = self.by_number[claim.slot]
        slot.attempt, slot.token, slot.node = claim.attempt, claim.token, claim.node
        slot.lease_expires_at, slot.has_lapsed = claim.expires_at, False
        slot.ordinal = claim.ordinal
        slot.retry_at = slot.deadline = None
        slot.enter(SlotPhase.RESERVED, now, f"reserved on {claim.node}")

    def bound(self, claim: Claim, now: datetime) -> None:
        slot = self.by_number[claim.slot]
        slot.lease_expires_at, slot.version = None, claim.version
        slot.enter(SlotPhase.BOUND, now, f"bound to {slot.node}")

    def started(self, claim: Claim, now: datetime, spec: WorkloadSpec) -> None:
        slot = self.by_number[claim.slot]
        slot.version = claim.version
        slot.deadline = now + spec.deadlines.started
        slot.enter(SlotPhase.STARTING, now, f"{slot.node} was asked to start it")

    def stopping(self, claim: Claim, now: datetime) -> None:
        slot = self.by_number[claim.slot]
        # Its node may be gone: then the stop will never be reported.
        slot.version, slot.deadline = claim.version, now + STOP_TIMEOUT
        slot.blocked, slot.was_asked_to_stop = "", True
        slot.enter(SlotPhase.STOPPING, now)

    def freed(self, number: int, now: datetime, spec: WorkloadSpec) -> None:
        """Its claim has ended: it waits for another node, or is over."""
        slot = self.by_number[number]
        ended = slot.phase
        slot.token = slot.node = slot.lease_expires_at = slot.deadline = None
        slot.ordinal, slot.has_lapsed = 1, False
        slot.is_forced, slot.blocked = False, ""
        was_asked, slot.was_asked_to_stop = slot.was_asked_to_stop, False
        is_job = spec.kind is WorkloadKind.JOB
        is_done = is_job and ended is SlotPhase.STOPPED and not was_asked
        if is_done:
            self.completed.add(number)
        if slot.leave is Leave.FOR_GOOD:
            del self.by_number[number]
            return
        slot.leave = None
        if is_done:
            slot.enter(SlotPhase.COMPLETED, now)
        elif is_job and slot.is_given_up(spec):
            slot.give_up(now)
        else:
            slot.enter(SlotPhase.WAITING, now)

    def crashed(self, slot: SlotState, now: datetime) -> None:
        """It failed where it is: not there again for a while, and not at once."""
        assert slot.node is not None
        slot.crash_count += 1
        crash = Crash(slot=slot.slot, node=NodeId(slot.node), at=now)
        slot.crashes = [*slot.crashes[1 - CRASHES_KEPT :], crash]
        slot.retry_at = now + _backoff(slot.crash_count)

    def crash_memory(self) -> dict[int, CrashMemory]:
        """What to remember of crashes; of several crashes of a slot, the last."""
        return {
            number: (
                slot.crash_count,
                0.0 if slot.retry_at is None else slot.retry_at.timestamp(),
                str(slot.crashes[-1].node) if slot.crashes else "",
                slot.crashes[-1].at.timestamp() if slot.crashes else 0.0,
            )
            for number, slot in self.by_number.items()
            if slot.crash_count or slot.crashes
        }

    def remember_crashes(self, crashes: Mapping[int, CrashMemory]) -> None:
        for number, (count, retry_at, node, at) in crashes.items():
            slot = self.by_number.get(number)
            if slot is None:
                continue
            slot.crash_count = count
            slot.retry_at = datetime.fromtimestamp(retry_at, UTC) if retry_at else None
            if node:
                crashed_at = datetime.fromtimestamp(at, UTC)
                slot.crashes = [Crash(slot=number, node=NodeId(node), at=crashed_at)]

    # ── what the authority knows ────────────────────────────────────────────────────────────────

    def observe(self, observed: SlotsObserved, now: datetime, spec: WorkloadSpec) -> bool:
        """Merges what was observed; true when something differs from what was remembered."""
        is_late = observed.version < self.observed_version or (
            self.observed_at is not None and observed.at < self.observed_at
        )
        if is_late:
            return False
        self.observed_version, self.observed_at = observed.version, observed.at
        reported = {one.slot for one in observed.slots}
        differs = any(
            slot.token is not None
            and slot.phase not in (SlotPhase.WAITING, SlotPhase.RESERVED)
            and slot.version < observed.version
            and number not in reported
            for number, slot in self.by_number.items()
        )
        for one in observed.slots:
            slot = self.by_number.get(one.slot)
            if slot is None or (slot.token != one.token and one.attempt >= slot.attempt):
                differs = True
            elif slot.token == one.token:
                self._observe(slot, one, now, spec)
        return differs

    def _observe(
        self, slot: SlotState, observed: ObservedSlot, now: datetime, spec: WorkloadSpec
    ) -> None:
        if observed.stop_requested:
            slot.leave, slot.was_asked_to_stop = slot.leave or Leave.AGAIN, True
        phase = None if observed.state is None else _PHASES.get(observed.state)
        if phase is None or phase is slot.phase or slot.phase in ENDED:
            return
        # What we asked for last goes before what was observed before it: a stop is only undone by
        # an end, and a start that the authority has committed is never bound again.
        if slot.phase is SlotPhase.STOPPING and phase not in ENDED:
            return
        if phase is SlotPhase.BOUND and slot.phase is not SlotPhase.RESERVED:
            return
        before = slot.phase
        is_service = spec.kind is WorkloadKind.SERVICE
        if is_service and before is SlotPhase.SERVING and now - slot.since > CRASHES_FORGOTTEN:
            slot.crash_count = 0
        slot.lease_expires_at = None
        slot.enter(phase, now, observed.evidence or f"{phase} on {slot.node}")
        slot.deadline = _deadline(phase, before, now, spec)
        if _has_failed(phase, spec) and slot.leave is None and not observed.stop_requested:
            slot.is_fatal = _is_fatal(observed, spec)
            self.crashed(slot, now)
        if phase is SlotPhase.SERVING:
            slot.retry_at = None

    def remember_ends(self, past: PlacementPast, now: datetime, spec: WorkloadSpec) -> None:
        """What became of a job's replicas before this run began: done is done."""
        # What is done stays counted, also in a share that wants none of its slots any more.
        self.completed.update(past.completed)
        for number in past.completed:
            slot = self.by_number.setdefault(number, SlotState(number, now))
            if slot.token is None:
                slot.leave = None
                slot.enter(SlotPhase.COMPLETED, now)
        for number, failures in past.failures.items():
            slot = self.by_number.get(number)
            if slot is None:
                continue
            slot.crash_count = max(slot.crash_count, failures.count)
            slot.is_fatal |= failures.is_fatal
            if slot.phase is not SlotPhase.WAITING:
                continue
            if slot.is_given_up(spec):
                slot.give_up(now)
            elif not slot.crashes:
                slot.crashes = [Crash(slot=number, node=failures.node, at=failures.last_at)]
                slot.retry_at = failures.last_at + _backoff(slot.crash_count)

    def adopt(self, live: Sequence[ObservedSlot], now: datetime, spec: WorkloadSpec) -> None:
        """Makes the slots agree with the claims that are live, whatever was remembered."""
        tokens = {claim.slot: claim.token for claim in live}
        for number, slot in list(self.by_number.items()):
            if slot.token is not None and tokens.get(number) != slot.token:
                self.freed(number, now, spec)
        for claim in live:
            slot = self.by_number.get(claim.slot)
            if slot is None:
                slot = SlotState(claim.slot, now, leave=Leave.FOR_GOOD)
                self.by_number[claim.slot] = slot
            if slot.token != claim.token:
                self._adopt_claim(slot, claim, now, spec)
                continue
            slot.ordinal = max(slot.ordinal, claim.ordinal)
            if claim.state is not None:
                self._observe(slot, claim, now, spec)

    def _adopt_claim(
        self, slot: SlotState, claim: ObservedSlot, now: datetime, spec: WorkloadSpec
    ) -> None:
        retry_at = slot.retry_at
        self.reserved(Claim.of(claim), now)
        slot.retry_at = retry_at
        if claim.state is None:
            return
        since = claim.since or now
        slot.lease_expires_at = None
        slot.enter(_PHASES.get(claim.state, SlotPhase.BOUND), since, claim.evidence)
        # From when it really entered the phase: beginning again puts no deadline off.
        slot.deadline = _deadline(slot.phase, SlotPhase.BOUND, since, spec)
        if claim.stop_requested:
            # What was asked to stop has not completed, however it ended.
            slot.leave, slot.was_asked_to_stop = slot.leave or Leave.AGAIN, True
            if slot.phase in STARTED:
                slot.deadline = (claim.stop_requested_at or now) + STOP_TIMEOUT
                slot.enter(SlotPhase.STOPPING, now)
        elif _has_failed(slot.phase, spec):
            slot.is_fatal = _is_fatal(claim, spec)
            if not slot.has_crash_of(claim):
                self.crashed(slot, now)


def _backoff(crashes: int) -> timedelta:
    return min(CRASH_LONGEST, CRASH_FIRST * 2 ** min(crashes - 1, 10))


def _is_fatal(ended: ObservedSlot, spec: WorkloadSpec) -> bool:
    return spec.job is not None and ended.exit_code in spec.job.fatal_exit_codes


def _has_failed(phase: SlotPhase, spec: WorkloadSpec) -> bool:
    """A service that ends has failed, however it ended."""
    ended_itself = phase is SlotPhase.STOPPED and spec.kind is WorkloadKind.SERVICE
    return phase is SlotPhase.FAILED or ended_itself


def _deadline(
    phase: SlotPhase, before: SlotPhase, now: datetime, spec: WorkloadSpec
) -> datetime | None:
    waits: dict[SlotPhase, timedelta] = {
        SlotPhase.STARTING: spec.deadlines.started,
        SlotPhase.RUNNING: spec.deadlines.ready,
        SlotPhase.UNKNOWN: UNKNOWN_TIMEOUT,
    }
    served_before = before is SlotPhase.SERVING
    if phase is SlotPhase.RUNNING and (spec.kind is WorkloadKind.JOB or served_before):
        return None  # a job has nothing to be ready for; what served before may do so again
    wait = waits.get(phase)
    return None if wait is None else now + wait

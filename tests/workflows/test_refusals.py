"""What a placement makes of refusals: its own loop, with an authority that answers as told."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.common import RawValue

from durable.activities.steps import (
    Claim,
    ClaimsStep,
    PlacementKey,
    ReserveResult,
    StepRefusal,
    StepResult,
)
from durable.model.ids import ActorId, NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import Refusal, RefusalCode
from durable.model.states import BindingState
from durable.model.work.phases import SlotPhase
from durable.model.work.share import DesiredShare, PlacementFacts, PlacementPast, SlotsObserved
from durable.model.work.workload import WorkloadKind, WorkloadSpec
from durable.signals.names import placement_id
from durable.signals.payloads import RetryPlacement, Wake
from durable.temporal.connection import data_converter
from durable.workflows import timeouts
from durable.workflows.placement.slots import Leave, PlacementSlots, SlotState
from durable.workflows.placement.workflow import Placement
from durable.workflows.steps import UNREACHABLE
from tests.model.pending import pending

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
SPEC = WorkloadSpec.model_validate({"replicas": 1, "resources": {"cpu": 1}})
CLAIM = Claim(slot=0, attempt=1, token=5, node=NodeId("n1"), expires_at=START + LEASE)
FULL = ReserveResult(
    claims=(),
    next_attempt=2,
    pending=pending(PendingCode.CAPACITY, "There is no room."),
    retry_after_seconds=60.0,
)
GONE = UNREACHABLE

Authority = Callable[[str], Any]


def no(code: RefusalCode) -> StepResult:
    return StepResult(refused=(StepRefusal(slot=0, refusal=_said(code)),))


def not_bound(code: RefusalCode) -> StepResult:
    return StepResult(refused=(StepRefusal(slot=0, refusal=_said(code)),))


def _said(code: RefusalCode) -> Refusal:
    return Refusal(code=code, sentence="No; ask again.")


def live(state: BindingState) -> PlacementFacts:
    claim = CLAIM.model_dump(include={"slot", "attempt", "token", "node"})
    return PlacementFacts(claims=(ObservedSlot(**claim, state=state),))


class Case:
    """A placement of one slot that is reserved, and a clock that goes from rest to rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        monkeypatch.setattr(workflow, "now", lambda: self.now)
        key = PlacementKey(
            region=RegionId("east"),
            tenant=TenantId("risk"),
            workload=WorkloadName("api"),
            generation=1,
        )
        name = placement_id(key.tenant, key.workload, key.generation, key.region)
        monkeypatch.setattr(
            workflow,
            "info",
            lambda: SimpleNamespace(
                workflow_id=name, continued_run_id=None, attempt=1, cron_schedule=None
            ),
        )
        payload = data_converter.payload_converter.to_payload({"key": key})
        self.it: Any = Placement(RawValue(payload))
        share = DesiredShare(slots=(0,), spec=SPEC, revision=1)
        past = PlacementPast(next_attempt=1)
        self.it._state.learn(PlacementFacts(claims=(), share=share, past=past), self.now)
        self.it._state.must_recall = False
        self.it._slots.reserved(CLAIM, self.now)

    @property
    def slot(self) -> SlotState:
        return self.it._slots.by_number[0]

    def serves(self) -> None:
        slot = ObservedSlot(
            slot=0, token=5, attempt=1, node=NodeId("n1"), state=BindingState.SERVING
        )
        observed = SlotsObserved(version=9, at=self.now, slots=(slot,))
        self.it._slots.observe(observed, self.now, SPEC)

    async def run_for(self, seconds: int, authority: Authority) -> Counter[str]:
        """How often each step was asked for in so many seconds."""
        asked: Counter[str] = Counter()

        async def step(activity: Any, argument: object, summary: str) -> Any:
            asked[activity.__name__] += 1
            return authority(activity.__name__)

        self.it._step = step
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            await self.it._recall()
            await self.it._stop()
            await self.it._release()
            await self.it._reserve()
            await self.it._bind()
            await self.it._start()
            rest = (self.it._wake_at() or end) - self.now
            self.now += max(rest, timedelta(milliseconds=100))
        return asked


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


@pytest.mark.parametrize(
    "code", [RefusalCode.NODE_CORDONED, RefusalCode.NODE_STALE, RefusalCode.NODE_NOT_READY]
)
@pytest.mark.parametrize("verb", ["bind", "start"])
async def test_a_node_that_takes_no_work_any_more_is_left_for_another(
    case: Case, verb: str, code: RefusalCode
) -> None:
    done = StepResult(done=(CLAIM,))
    refused = StepResult(refused=no(code).refused)
    answers = {"bind": done, "release": done, "reserve": FULL, verb: refused}
    asked = await case.run_for(20, answers.__getitem__)
    assert (asked[verb], asked["release"], asked["reserve"]) == (1, 1, 1)
    assert case.slot.phase is SlotPhase.WAITING


async def test_each_slot_is_released_with_its_own_reason(case: Case) -> None:
    case.it._slots.resize((0, 1), case.now, "")
    case.it._slots.reserved(CLAIM.model_copy(update={"slot": 1, "token": 6}), case.now)
    for number, evidence in ((0, "exit 1, see /logs/0"), (1, "exit 2, see /logs/1")):
        case.it._slots.by_number[number].enter(SlotPhase.FAILED, case.now, evidence)
    sent: list[ClaimsStep] = []

    async def step(activity: Any, argument: ClaimsStep, summary: str) -> Any:
        sent.append(argument)
        return StepResult(done=argument.claims)

    case.it._step = step
    await case.it._release()
    (released,) = sent
    assert [released.why_of(claim) for claim in released.claims] == [
        "exit 1, see /logs/0",
        "exit 2, see /logs/1",
    ]


async def test_what_nobody_wants_any_more_is_not_started_when_the_authority_is_back(
    case: Case,
) -> None:
    case.slot.leave = Leave.FOR_GOOD
    asked = await case.run_for(1, {"release": GONE, "start": StepResult(done=(CLAIM,))}.get)
    assert "start" not in asked


async def test_a_reservation_that_came_too_late_waits_for_room_without_looking_all_the_time(
    case: Case,
) -> None:
    answers = {
        "bind": not_bound(RefusalCode.LEASE_EXPIRED),
        "expire": StepResult(done=(CLAIM,)),
        "reserve": FULL,
    }
    asked = await case.run_for(59, answers.get)
    assert asked == {"bind": 1, "expire": 1, "reserve": 1}
    assert case.slot.phase is SlotPhase.WAITING


async def test_a_claim_that_is_gone_is_given_up_after_one_look(case: Case) -> None:
    answers = {
        "bind": not_bound(RefusalCode.UNKNOWN_TOKEN),
        "release": no(RefusalCode.UNKNOWN_TOKEN),
        "recall": PlacementFacts(claims=()),
        "reserve": FULL,
    }
    asked = await case.run_for(59, answers.get)
    assert asked == {"bind": 1, "release": 1, "recall": 1, "reserve": 1}


async def test_what_leaves_for_good_is_not_placed_again_over_a_refusal(case: Case) -> None:
    case.slot.leave = Leave.FOR_GOOD
    await case.run_for(2, {"release": no(RefusalCode.REGION_FENCED)}.get)
    assert case.slot.leave is Leave.FOR_GOOD


# ── after a crash ───────────────────────────────────────────────────────────────────────────────


async def crashed(case: Case) -> None:
    """The slot failed and was released; it waits for the end of its backoff."""
    case.slot.enter(SlotPhase.FAILED, case.now, "exit 1")
    case.it._slots.crashed(case.slot, case.now)
    await case.run_for(0, {"release": StepResult(done=(CLAIM,))}.get)
    case.it._slots.freed(0, case.now, SPEC)
    case.slot.retry_at = case.now + timedelta(minutes=1)


@pytest.mark.parametrize("message", ["wake", "share"])
async def test_a_crash_backoff_is_not_shortened_by_a_wakeup(case: Case, message: str) -> None:
    await crashed(case)
    if message == "wake":
        case.it.on_wake(Wake(why="room"))
    else:
        share = DesiredShare(slots=(0,), spec=SPEC, revision=2)
        case.it._state.learn(PlacementFacts(claims=(), share=share), case.now)
    asked = await case.run_for(59, {"reserve": FULL}.get)
    assert "reserve" not in asked
    asked = await case.run_for(2, {"reserve": FULL}.get)
    assert asked["reserve"] == 1


async def test_a_person_may_end_a_crash_backoff(case: Case) -> None:
    await crashed(case)
    retry = RetryPlacement(actor=ActorId("ann"), reason="fixed", request_id="r")
    _, effect = case.it.on_retry_now(retry)
    case.it._retry_now(retry, case.it._undone_by_retry_now(retry, effect))
    asked = await case.run_for(1, {"reserve": FULL}.get)
    assert asked["reserve"] == 1


def adopted(case: Case, spec: WorkloadSpec = SPEC, **claim: object) -> SlotState:
    """The slot after another run has read its claim from the region."""
    fields = CLAIM.model_dump(include={"slot", "attempt", "token", "node"})
    slots = PlacementSlots()
    slots.resize((0,), case.now, "")
    slots.remember_crashes(case.it._slots.crash_memory())
    slots.adopt([ObservedSlot.model_validate({**fields, **claim})], case.now, spec)
    return slots.by_number[0]


def test_a_stop_is_waited_for_from_when_it_was_requested_in_whichever_run(case: Case) -> None:
    asked_at = START - timedelta(seconds=50)
    slot = adopted(
        case, state=BindingState.UNKNOWN, stop_requested=True, stop_requested_at=asked_at
    )
    assert slot.phase is SlotPhase.STOPPING
    assert slot.deadline == asked_at + timeouts.STOP_TIMEOUT


def test_a_failure_that_is_found_at_adoption_counts_once(case: Case) -> None:
    failed_at = START - timedelta(seconds=5)
    first = adopted(case, state=BindingState.FAILED, since=failed_at)
    assert (first.crash_count, first.retry_at) == (1, START + timeouts.CRASH_FIRST)
    case.it._slots.by_number[0] = first
    again = adopted(case, state=BindingState.FAILED, since=failed_at)
    assert (again.crash_count, again.retry_at) == (1, first.retry_at)


@pytest.mark.parametrize("leave", [Leave.AGAIN, Leave.FOR_GOOD])
@pytest.mark.parametrize("was_asked", [True, False])
def test_a_replica_of_a_job_that_ends_by_itself_is_done_also_if_it_was_to_leave(
    case: Case, leave: Leave, was_asked: bool
) -> None:
    job = SPEC.model_copy(update={"kind": WorkloadKind.JOB})
    fields = CLAIM.model_dump(include={"slot", "attempt", "token", "node"})
    slots = PlacementSlots()
    slots.resize((0,), case.now, "")
    slots.adopt(
        [ObservedSlot.model_validate({**fields, "state": BindingState.RUNNING})], case.now, job
    )
    slots.by_number[0].leave = leave
    if was_asked:
        slots.stopping(CLAIM, case.now)
    ended = {**fields, "state": BindingState.STOPPED, "stop_requested": was_asked}
    slots.adopt([ObservedSlot.model_validate(ended)], case.now, job)
    slots.freed(0, case.now, job)
    slots.resize((0,), case.now, "")
    expected = SlotPhase.WAITING if was_asked else SlotPhase.COMPLETED
    assert slots.by_number[0].phase is expected

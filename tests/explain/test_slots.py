"""A share in a few words, and who acts next on it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.explain.queue import QueueExplanation
from durable.explain.slots import EndedSlot, SlotEnd, describe_condition, ended_slot, next_owner
from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.records import LastTry
from durable.model.placement.request import SchedulingRequest
from durable.model.states import BindingState, ObservedState, RequestState
from durable.model.work.phases import Owner
from durable.model.work.workload import WorkloadSpec
from tests.model.pending import pending

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SLOTS = (0, 1, 2)


def observed(slot: int, state: BindingState = BindingState.SERVING, **other: Any) -> ObservedSlot:
    return ObservedSlot(
        slot=slot, token=slot + 1, attempt=1, node=NodeId("n1"), state=state, **other
    )


def ended(slot: int, end: SlotEnd) -> EndedSlot:
    return EndedSlot(
        slot=slot, end=end, node=NodeId("n1"), attempt=1, tries=1, evidence="exit code", at=NOON
    )


def queue(state: RequestState, waiting: int = 0, code: PendingCode | None = None) -> Any:
    request = SchedulingRequest(
        region=RegionId("north"),
        tenant=TenantId("shop"),
        workload=WorkloadName("web"),
        generation=1,
        slots=SLOTS,
        priority=100,
        state=state,
        pending=None if code is None else pending(code),
        enqueued_at=NOON,
        deadline=NOON + timedelta(hours=1),
        spec=WorkloadSpec.model_validate({"replicas": 3, "resources": {"cpu": 1}}),
        waiting=waiting,
    )
    return QueueExplanation(request=request, position=None, queue_seconds=0.0)


def test_a_condition_counts_slots_in_the_order_of_their_progress() -> None:
    slots = [observed(0), observed(1, BindingState.STARTING)]
    waiting = queue(RequestState.PENDING, 1, PendingCode.CAPACITY)
    assert describe_condition(SLOTS, slots, [], waiting) == "1 starting, 1 serving, 1 waiting of 3"


def test_a_condition_parts_completed_slots_from_those_given_up() -> None:
    ends = [ended(0, SlotEnd.COMPLETED), ended(1, SlotEnd.FAILED), ended(2, SlotEnd.FAILED)]
    over = queue(RequestState.WITHDRAWN)
    assert describe_condition(SLOTS, [], ends, over) == "1 completed, 2 given up of 3"


def test_a_failed_slot_that_is_tried_again_is_not_given_up() -> None:
    waiting = queue(RequestState.PENDING, 1, PendingCode.CRASHED)
    slots = [observed(1), observed(2)]
    assert describe_condition(SLOTS, slots, [ended(0, SlotEnd.FAILED)], waiting) == (
        "2 serving, 1 waiting of 3"
    )


def test_a_share_without_slots_has_nothing_left() -> None:
    assert describe_condition((), [], [], None) == "nothing is left"
    assert describe_condition(SLOTS, [], [], None) == "nothing placed of 3"


@pytest.mark.parametrize(
    ("waits", "owner"),
    [
        (queue(RequestState.PENDING, 1, PendingCode.CAPACITY), Owner.SCHEDULER),
        (queue(RequestState.PENDING, 1, PendingCode.HELD), Owner.SCHEDULER),
        (queue(RequestState.TIMED_OUT), Owner.OPERATOR),
        (queue(RequestState.PLACED), Owner.NONE),
        (None, Owner.NONE),
    ],
)
def test_the_request_decides_first_who_acts_next(waits: Any, owner: Owner) -> None:
    assert next_owner(SLOTS, [observed(slot) for slot in SLOTS], [], waits) is owner


@pytest.mark.parametrize(
    ("slots", "waits", "owner"),
    [
        # Nothing exists of the share, and nobody knows of a placement.
        ([], None, Owner.WORKLOAD),
        ([0], None, Owner.WORKLOAD),
        ([], queue(RequestState.WITHDRAWN), Owner.WORKLOAD),
        ([0, 1], queue(RequestState.PLACED), Owner.SCHEDULER),
        # One that nobody desires any more still serves.
        ([0, 1, 2, 3], queue(RequestState.PLACED), Owner.SCHEDULER),
    ],
)
def test_what_differs_from_what_is_desired_is_not_in_its_desired_state(
    slots: list[int], waits: Any, owner: Owner
) -> None:
    assert next_owner(SLOTS, [observed(slot) for slot in slots], [], waits) is owner


def test_the_first_slot_that_is_not_where_it_should_be_decides_next() -> None:
    slots = [observed(0), observed(1, stop_requested=True), observed(2, BindingState.FAILED)]
    assert next_owner(SLOTS, slots, [], queue(RequestState.PLACED)) is Owner.AGENT


def test_an_operator_looks_at_a_job_that_failed() -> None:
    ends = [ended(0, SlotEnd.COMPLETED), ended(1, SlotEnd.FAILED)]
    assert next_owner(SLOTS, [], ends, queue(RequestState.WITHDRAWN)) is Owner.OPERATOR
    assert next_owner([0], [], ends[:1], queue(RequestState.WITHDRAWN)) is Owner.NONE


@pytest.mark.parametrize(
    ("state", "stop_reason", "end"),
    [
        (ObservedState.STOPPED, None, SlotEnd.COMPLETED),
        (ObservedState.FAILED, None, SlotEnd.FAILED),
        (ObservedState.RUNNING, None, SlotEnd.STOPPED),
        (ObservedState.STOPPED, "ann: INC-7", SlotEnd.STOPPED),
        (None, None, SlotEnd.STOPPED),
    ],
)
def test_a_slot_ends_as_its_agent_saw_it_unless_it_was_stopped(
    state: ObservedState | None, stop_reason: str | None, end: SlotEnd
) -> None:
    last = LastTry(
        slot=0,
        attempt=1,
        node=NodeId("n1"),
        tries=1,
        state=state,
        evidence="exit code 0",
        stop_reason=stop_reason,
        at=NOON,
    )
    found = ended_slot(last)
    assert found.end is end
    assert found.evidence == (stop_reason or "exit code 0")

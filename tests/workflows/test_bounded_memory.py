"""What goes from one run to the next stays below half of what Temporal takes in one payload."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from durable.activities.steps import OpenedShare, PlacementKey
from durable.authority.reads.placements import SLOTS_PER_PAGE, in_short
from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import Crash, ObservedSlot, RegionalClaim
from durable.model.placement.pending_reasons import PendingCode
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.recoveries import WorkloadMove
from durable.model.states import BindingState, RequestState, ReservationState
from durable.model.work.phases import SlotPhase
from durable.model.work.share import (
    DesiredShare,
    PlacementFacts,
    PlacementPast,
    ShareReport,
    SlotFailures,
)
from durable.model.work.workload import MAX_REPLICAS, MAX_SPEC_BYTES, WorkloadSpec
from durable.planners.recovery.moves import most_telling
from durable.signals.status import MessageRecord
from durable.temporal.connection import data_converter
from durable.workflows.inbox import (
    PAYLOAD_CHARACTERS_KEPT,
    REJECTED_KEPT,
    UNAUDITED_KEPT,
    MessageLog,
)
from durable.workflows.placement.slots import CRASHES_KEPT, Leave
from durable.workflows.placement.state import PlacementMemory, PlacementStart, PlacementState
from durable.workflows.workload.admission import MAX_PLACEMENTS, UNREAD_KEPT
from durable.workflows.workload.state import WorkloadStart, WorkloadState
from durable.workflows.workload.workflow import WAITS_KEPT
from tests.model.pending import pending

NOW = datetime(2026, 1, 1, 12, 34, 56, 789_012, tzinfo=UTC)
HALF = 1024 * 1024
LONGEST = "n" * 63
KEY = PlacementKey(
    region=RegionId("r" * 63),
    tenant=TenantId("t" * 63),
    workload=WorkloadName("w" * 63),
    generation=10**9,
)


def largest_spec() -> WorkloadSpec:
    filler = "v" * (MAX_SPEC_BYTES - 2_000)
    return WorkloadSpec.model_validate(
        {
            "replicas": MAX_REPLICAS,
            "resources": {"cpu": 1},
            "run": {"command": [filler[:30_000]]},
        }
    )


def fullest_log() -> MessageLog:
    def record(_: int) -> MessageRecord:
        return MessageRecord(
            at=NOW,
            name="n" * 100,
            answer="a" * 500,
            payload='"' * PAYLOAD_CHARACTERS_KEPT,
        )

    return MessageLog(
        rejected=[record(n) for n in range(REJECTED_KEPT)],
        rejected_count=10**9,
        unaudited=[record(n) for n in range(UNAUDITED_KEPT)],
    )


def fullest_placement() -> PlacementState:
    state = PlacementState.begin(KEY, None, NOW)
    slots = tuple(range(MAX_REPLICAS))
    share = DesiredShare(slots=slots, spec=largest_spec(), revision=2**53, release_reason="r" * 500)
    past = PlacementPast(next_attempt=10**6)
    state.learn(PlacementFacts(claims=(), share=share, past=past), NOW)
    state.pending = pending(PendingCode.CAPACITY, "w" * 500)
    state.messages = fullest_log()
    for slot in state.slots.by_number.values():
        slot.token, slot.node, slot.leave = 10**9, LONGEST, Leave.AGAIN
        slot.enter(SlotPhase.RUNNING, NOW, "e" * 500)
        slot.crash_count, slot.retry_at = 1_000, NOW + timedelta(minutes=5)
        slot.crashes = [
            Crash(slot=slot.slot, node=NodeId(LONGEST), at=NOW) for _ in range(CRASHES_KEPT)
        ]
    return state


async def size(*values: Any) -> int:
    payloads: Sequence[Any] = await data_converter.encode(values)
    return sum(len(payload.data) for payload in payloads)


async def test_the_memory_of_the_largest_placement_fits() -> None:
    state = fullest_placement()
    encoded = await data_converter.encode([PlacementStart(KEY, state.memory())])
    assert len(encoded[0].data) < HALF
    (decoded,) = await data_converter.decode(encoded, [PlacementStart])
    memory = decoded.memory
    assert isinstance(memory, PlacementMemory)
    again = PlacementState.begin(KEY, memory, NOW)
    assert again.slots.crash_memory() == state.slots.crash_memory()
    assert again.memory().evicted == dict.fromkeys(range(MAX_REPLICAS), False)
    assert again.messages == state.messages


async def test_the_memory_of_the_largest_workload_fits() -> None:
    regions = [RegionId(f"{'r' * 60}{number}") for number in range(64)]
    report = ShareReport(
        region=regions[0],
        generation=10**9,
        version=10**12,
        at=NOW,
        by_state=dict.fromkeys(BindingState, 4_000),
        request=RequestState.PENDING,
        pending=pending(PendingCode.CAPACITY, "w" * 500),
    )
    state = WorkloadState(
        generation=10**9,
        spec=largest_spec(),
        share={regions[0]: tuple(range(MAX_REPLICAS))},
        open=[OpenedShare(generation=10**9, region=regions[n % 64]) for n in range(MAX_PLACEMENTS)],
        reports=[report] * MAX_PLACEMENTS,
        unread=[(10**9, regions[n % 64]) for n in range(UNREAD_KEPT)],
        unreachable=regions,
        waits=["w" * 500] * WAITS_KEPT,
        messages=fullest_log(),
    )
    assert await size(WorkloadStart(KEY.tenant, KEY.workload, state)) < HALF


async def test_what_a_recovery_says_each_second_is_small_however_many_slots_it_moves() -> None:
    move = WorkloadMove(
        tenant=KEY.tenant,
        workload=KEY.workload,
        priority=1_000,
        replicas=MAX_REPLICAS,
        slots=tuple(range(MAX_REPLICAS)),
        tried_at=NOW,
        waits="\N{PILE OF POO}" * 500,
    )
    shown = most_telling([move] * 1_000, RecoveryPolicy())
    assert (shown[0].slot_count, shown[0].lost_count) == (MAX_REPLICAS, MAX_REPLICAS)
    assert await size(*shown) < HALF / 4


async def test_a_page_of_what_is_recalled_fits() -> None:
    """Of the largest job, all of which is in trouble, in characters of four bytes."""
    claim = RegionalClaim(
        state=BindingState.FAILED,
        reservation=ReservationState.BOUND,
        devices=(),
        region=KEY.region,
        token=2**53,
        tenant=KEY.tenant,
        workload=KEY.workload,
        generation=KEY.generation,
        slot=MAX_REPLICAS - 1,
        attempt=10**6,
        node=NodeId(LONGEST),
        cpu_millis=1,
        memory_mib=1,
        gpus=0,
        policy_revision=1,
        reserved_at=NOW,
        expires_at=NOW,
        created_version=1,
        freed_version=None,
        started_at=NOW,
        stop_requested_at=NOW,
        observer=None,
        evidence="\N{PILE OF POO}" * 10_000,
        log_directory=None,
        since=NOW,
        exit_code=255,
        is_marked=True,
        lease_epoch=1,
        lease_expires_at=NOW,
        read_at=NOW,
        ordinal=10**6,
    )
    failures = SlotFailures(count=10**6, last_at=NOW, node=NodeId(LONGEST), is_fatal=True)
    slots = tuple(range(MAX_REPLICAS))
    past = PlacementPast(
        next_attempt=10**6,
        enqueued_at=NOW,
        completed=slots[-SLOTS_PER_PAGE:],
        failures=dict.fromkeys(slots[-SLOTS_PER_PAGE:], failures),
        failures_in_all=10**9,
    )
    share = DesiredShare(slots=slots, spec=largest_spec(), revision=2**53, release_reason="r" * 500)
    claims = in_short([claim] * SLOTS_PER_PAGE)
    assert claims[0].evidence
    facts = PlacementFacts(claims=claims, next_slot=1_000, read_at=NOW, share=share, past=past)
    assert await size(facts) < HALF
    (decoded,) = await data_converter.decode(await data_converter.encode([facts]), [PlacementFacts])
    assert decoded == facts


def test_pages_of_what_is_recalled_are_one_answer() -> None:
    def page(slot: int, revision: int, next_slot: int | None) -> PlacementFacts:
        claim = ObservedSlot(slot=slot, token=slot + 1, attempt=1, node=NodeId("n"))
        failures = SlotFailures(count=1, last_at=NOW, node=NodeId("n"))
        return PlacementFacts(
            claims=(claim,),
            next_slot=next_slot,
            read_at=NOW,
            share=DesiredShare(slots=(0, 1), spec=largest_spec(), revision=revision),
            past=PlacementPast(next_attempt=2, completed=(slot,), failures={slot: failures}),
        )

    whole = page(0, 1, 1).and_then(page(1, 2, None))
    assert [claim.slot for claim in whole.claims] == [0, 1]
    assert (whole.next_slot, whole.share and whole.share.revision) == (None, 2)
    assert whole.past is not None
    assert (whole.past.completed, sorted(whole.past.failures)) == ((0, 1), [0, 1])


def test_a_spec_is_bounded_in_bytes() -> None:
    spec = {"replicas": 1, "resources": {"cpu": 1}}
    largest_spec()
    with pytest.raises(ValidationError, match="allowed: up to 32,768 bytes"):
        WorkloadSpec.model_validate({**spec, "run": {"command": ["v" * 30_000, "v" * 3_000]}})

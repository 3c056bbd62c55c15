"""Whoever waited too long learns why, and whether it continues by itself or a person must act."""

from datetime import UTC, datetime, timedelta

from durable.cli.render.delays import describe_delay, describe_stops
from durable.cli.render.progress import WaitTarget
from durable.client import Until
from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.pending_reasons import PendingCode
from durable.model.work.phases import WorkloadPhase
from durable.model.work.workload import WorkloadSpec
from durable.signals.status import RegionProgress, WorkloadStatus
from durable.workflows.timeouts import STOP_TIMEOUT, UNKNOWN_TIMEOUT
from tests.claims import a_claim
from tests.model.pending import pending

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC = WorkloadSpec.model_validate({"replicas": 2, "resources": {"cpu": 1}})


def waiting(code: PendingCode, sentence: str = "That is why") -> RegionProgress:
    return RegionProgress(region=RegionId("north"), wanted=2, pending=pending(code, sentence))


def status(*regions: RegionProgress, name: str = "web") -> WorkloadStatus:
    return WorkloadStatus(
        tenant=TenantId("shop"),
        workload=WorkloadName(name),
        generation=1,
        observed_generation=1,
        spec=SPEC,
        phase=WorkloadPhase.WAITING,
        wanted=2,
        bound=1,
        ready=1,
        serving=1,
        completed=0,
        deleting=False,
        conditions=(),
        regions=regions,
    )


def said(*regions: RegionProgress, until: Until = "serving") -> str:
    target = WaitTarget("shop", "web", until)
    return describe_delay([target], {target: status(*regions)}, 3)


def test_what_time_mends_continues_by_itself() -> None:
    for report in (said(), said(waiting(PendingCode.CAPACITY))):
        assert "It continues by itself; see `durable explain shop/web`." in report


def test_what_needs_a_change_says_that_waiting_does_not_help() -> None:
    report = said(waiting(PendingCode.NEVER_FITS))
    assert "Waiting will not help: change the workload" in report
    assert "by itself" not in report


def test_no_reason_to_wait_keeps_a_deletion() -> None:
    assert "It continues by itself" in said(waiting(PendingCode.TAINTED), until="deleted")


def test_a_long_reason_does_not_cut_off_the_advice() -> None:
    assert said(waiting(PendingCode.TAINTED, "x" * 400)).endswith("see `durable explain shop/web`.")


def test_a_reason_is_shown_as_far_as_the_sentence_has_room() -> None:
    assert "x" * 290 in said(waiting(PendingCode.CAPACITY, "x" * 290))
    assert len(said(waiting(PendingCode.CAPACITY, "x" * 480))) <= 500


def test_the_one_that_needs_somebody_to_act_comes_first() -> None:
    fine, held = WaitTarget("shop", "fine", "serving"), WaitTarget("shop", "held", "serving")
    last = {fine: status(name="fine"), held: status(waiting(PendingCode.TAINTED), name="held")}
    assert describe_delay([fine, held], last, 3).startswith(
        "shop/held is not serving after 3 s (1 bound, 1 ready, 1 serving of 2; 1 more is late)."
    )


def stop(lease_seconds: float, *, slot: int = 0, after_seconds: float = 5) -> RegionalClaim:
    """Asked to stop at noon, with a lease of so long from then, and read a little later."""
    return a_claim(
        slot,
        region=RegionId("north"),
        node=NodeId("north-1"),
        stop_requested_at=NOON,
        lease_expires_at=NOON + timedelta(seconds=lease_seconds),
        read_at=NOON + timedelta(seconds=after_seconds),
    )


def clock(after: timedelta) -> str:
    return f"{NOON + after:%H:%M:%S}Z"


def test_a_node_that_is_alive_is_waited_for_until_its_lease_would_lapse() -> None:
    said = describe_stops([stop(10), stop(9, slot=1)])
    assert (
        "Waiting for the agent of north-1 to report the end of slot 0 (and of 1 more slot)." in said
    )
    assert f"expires at {clock(timedelta(seconds=10))}" in said
    assert f"given up by {clock(STOP_TIMEOUT)}." in said


def test_a_silent_node_is_given_up_when_the_stop_is_overdue() -> None:
    said = describe_stops([stop(3)])
    assert f"its lease expired at {clock(timedelta(seconds=3))}" in said
    assert f"given up by {clock(STOP_TIMEOUT)}" in said


def test_a_lease_that_ends_after_the_stop_was_overdue_is_waited_for() -> None:
    late = STOP_TIMEOUT + timedelta(seconds=10)
    said = describe_stops([stop(late.total_seconds(), after_seconds=65)])
    assert f"given up by {clock(late + UNKNOWN_TIMEOUT)}" in said


def test_a_moment_that_has_passed_is_not_promised() -> None:
    late = STOP_TIMEOUT.total_seconds() + 1
    said = describe_stops([stop(3, after_seconds=late)])
    assert "given up at a worker's next check, or sooner if an agent comes back" in said
    assert clock(STOP_TIMEOUT) not in said


def test_nothing_is_reported_about_what_does_not_stop() -> None:
    assert describe_stops([]) == ""

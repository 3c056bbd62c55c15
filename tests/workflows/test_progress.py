"""The conditions of a workload: each says what is missing, and who acts next."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.recovery.readiness import Recoverable
from durable.model.resources import Resources
from durable.model.states import BindingState, RequestState
from durable.model.work.rollout import RolloutPause, RolloutProgress, RolloutState, RolloutStep
from durable.model.work.share import ShareReport
from durable.model.work.workload import Condition, WorkloadSpec
from durable.signals.status import WorkloadStatus
from durable.workflows.inbox import MessageLog
from durable.workflows.workload.progress import workload_status
from durable.workflows.workload.state import HINT_KEPT, WorkloadState

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EAST, WEST = RegionId("east"), RegionId("west")


def report(region: RegionId, request: RequestState | None, serving: int = 0) -> ShareReport:
    states = {BindingState.SERVING: serving} if serving else {}
    return ShareReport(
        region=region, generation=1, version=1, at=NOW, by_state=states, request=request
    )


def status_of(*reports: ShareReport, **values: Any) -> WorkloadStatus:
    usual: dict[str, Any] = {"generation": 1, "rollout": None, "progress": None}
    return workload_status(
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        observed_generation=1,
        spec=WorkloadSpec(replicas=3, resources=Resources(cpu_millis=1)),
        share={EAST: (0, 1), WEST: (2,), RegionId("north"): ()},
        reports=reports,
        is_deleting=False,
        is_done=False,
        waits=(),
        conditions=(),
        messages=MessageLog(),
        now=NOW,
        **{**usual, **values},
    )


def condition(kind: str, *reports: ShareReport, **values: Any) -> Condition:
    status = status_of(*reports, **values)
    [found] = [one for one in status.conditions if one.type == kind]
    return found


def opened(*reports: ShareReport) -> Condition:
    return condition("Opened", *reports)


def test_a_rollout_that_a_person_paused_is_no_rollout_that_goes_on() -> None:
    pause = RolloutPause(actor=ActorId("ann"), reason="look", since=NOW)
    rollout = RolloutState(started_at=NOW, progressed_at=NOW)
    assert status_of(rollout=rollout).phase == "rolling"
    assert status_of(rollout=rollout.model_copy(update={"pause": pause})).phase == "paused"


FAILED = {
    "rollout": RolloutState(started_at=NOW, progressed_at=NOW, rollback="it crashed"),
    "progress": RolloutProgress(step=RolloutStep.REPLACING, replaced=0, wanted=3),
}


@pytest.mark.parametrize(
    ("generation", "stable", "says"),
    [
        (1, 1, "going back to generation 1, because it crashed."),
        (2, None, "generation 2 has failed, because it crashed; no other one was ever good"),
    ],
)
def test_a_failed_rollout_goes_back_only_where_something_was_good(
    generation: int, stable: int | None, says: str
) -> None:
    found = condition("Updated", generation=generation, stable=stable, **FAILED)
    assert found.status is False
    assert found.sentence.startswith(says)


def test_a_share_without_a_placement_is_a_condition_with_a_reason_and_an_owner() -> None:
    found = opened(report(EAST, RequestState.PLACED, 2))
    assert (found.status, found.reason) == (False, "NotOpened")
    assert found.sentence == (
        "1 of 2 shares have a placement; next: the workload, which starts its placements; missing "
        "in west"
    )
    # A region that answered that it knows nothing of it.
    assert opened(report(EAST, RequestState.PLACED, 2), report(WEST, None)) == found


def test_a_share_that_its_region_knows_has_a_placement() -> None:
    found = opened(report(EAST, RequestState.PLACED, 2), report(WEST, RequestState.PENDING))
    assert (found.status, found.sentence) == (True, "2 of 2 shares have a placement")


@pytest.mark.parametrize("is_met", [True, False])
def test_critical_work_says_whether_it_would_come_back(is_met: bool) -> None:
    found = Recoverable(is_met=is_met, sentence="if us-east were lost now: nothing")
    told = condition("Recoverable", recoverable=found)
    assert (told.status, told.sentence) == (is_met, found.sentence)


@pytest.mark.parametrize(
    ("share", "hinted_at", "seen"),
    [
        ((1, EAST), NOW, True),
        ((1, EAST), NOW - timedelta(seconds=5), True),
        ((1, EAST), NOW + timedelta(microseconds=1), False),
        ((1, EAST), NOW - HINT_KEPT, False),  # its clock was set back
        ((1, WEST), NOW, False),
        ((2, EAST), NOW, False),
        ((1, EAST), None, False),
    ],
)
def test_a_hint_at_what_was_read_since_is_no_reason_to_read_again(
    share: tuple[int, RegionId], hinted_at: datetime | None, seen: bool
) -> None:
    state = WorkloadState(generation=1)
    state.learn(report(EAST, RequestState.PLACED))
    assert state.has_seen(share, hinted_at) is seen

"""The objective counts the lost replicas of critical services, and nothing else."""

from datetime import UTC, datetime, timedelta

import pytest

from durable.model.recovery.detection import RecoveryPolicy
from durable.model.work.workload import WorkloadKind
from durable.planners.recovery.objective import is_critical, needed_replicas, recovered_at

LOST = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = RecoveryPolicy()
SERVICE, JOB = WorkloadKind.SERVICE, WorkloadKind.JOB


@pytest.mark.parametrize(("lost", "needed"), [(0, 0), (1, 1), (3, 3), (4, 4), (5, 4), (300, 4)])
def test_four_must_serve_again_or_all_that_were_lost(lost: int, needed: int) -> None:
    assert needed_replicas(lost, POLICY) == needed


@pytest.mark.parametrize(
    ("lost", "since", "seconds"),
    [
        # none of the lost ones, however many others serve
        ((0, 1), {2: -90, 3: -80, 4: -70, 5: -60}, None),
        ((0, 1), {0: 8, 2: -90, 3: -80, 4: -70}, None),
        # fewer than four were lost: all of them count
        ((0, 1), {0: 8, 1: 9, 2: -90}, 9.0),
        ((7,), {7: 12}, 12.0),
        # the fourth of many
        ((0, 1, 2, 3, 4, 5), {0: 12, 1: 7, 2: 30, 3: 9, 4: 31}, 30.0),
        ((0, 1, 2, 3, 4, 5), {0: 12, 1: 7, 2: 30}, None),
        # another region's clock may be behind: nothing recovers before the loss
        ((0,), {0: -1}, 0.0),
        # nothing was lost after all
        ((), {}, 0.0),
    ],
)
def test_the_moment_at_which_enough_of_what_was_lost_serves(
    lost: tuple[int, ...], since: dict[int, float], seconds: float | None
) -> None:
    serving = {slot: LOST + timedelta(seconds=one) for slot, one in since.items()}
    found = recovered_at(lost, serving, POLICY, LOST)
    assert (None if found is None else (found - LOST).total_seconds()) == seconds


@pytest.mark.parametrize(
    ("priority", "kind", "critical"),
    [(900, SERVICE, True), (1_000, SERVICE, True), (899, SERVICE, False), (900, JOB, False)],
)
def test_the_objective_is_about_critical_services(
    priority: int, kind: WorkloadKind, critical: bool
) -> None:
    assert is_critical(priority, kind, POLICY) is critical

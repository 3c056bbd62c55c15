"""When a rollout is undone by itself, and when it is looked at again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.model.rollout import Rollout, RolloutProgress, RolloutState, RolloutStep
from durable.scheduling.rollout.planner import RolloutPlan
from durable.scheduling.rollout.verdict import (
    baked_regions,
    judge,
    look_again_at,
    pause_point,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def state(**fields: Any) -> RolloutState:
    return RolloutState(started_at=START, progressed_at=START, **fields)


def plan(
    step: RolloutStep = RolloutStep.REPLACING, *, replaced: int = 0, done: tuple[str, ...] = ()
) -> RolloutPlan:
    progress = RolloutProgress(step=step, replaced=replaced, wanted=4)
    is_complete = step is RolloutStep.DONE
    return RolloutPlan({}, frozenset(), {}, {}, progress, frozenset(done), is_complete)


@pytest.mark.parametrize(
    ("after", "step", "replaced", "failures", "undone"),
    [
        (9 * MINUTE, RolloutStep.REPLACING, 0, 0, None),
        (10 * MINUTE, RolloutStep.REPLACING, 0, 0, "no progress for 10m: 0 of 4"),
        (10 * MINUTE, RolloutStep.SURGING, 0, 0, "no progress"),
        (10 * MINUTE, RolloutStep.BLOCKED, 0, 0, "no progress"),
        (10 * MINUTE, RolloutStep.REPLACING, 1, 0, None),
        (10 * MINUTE, RolloutStep.PAUSED, 0, 0, None),
        (10 * MINUTE, RolloutStep.PAUSE_POINT, 0, 0, None),
        (10 * MINUTE, RolloutStep.BAKING, 0, 0, None),
        (10 * MINUTE, RolloutStep.DONE, 4, 9, None),
        (MINUTE, RolloutStep.REPLACING, 0, 3, None),
        (MINUTE, RolloutStep.REPLACING, 0, 4, "failed 4 times"),
    ],
)
def test_a_rollout_is_undone_when_it_stalls_or_fails_too_often(
    after: timedelta, step: RolloutStep, replaced: int, failures: int, undone: str | None
) -> None:
    verdict = judge(
        state(), Rollout(), plan(step, replaced=replaced), failures=failures, now=START + after
    )
    assert (verdict.undo is None) == (undone is None)
    assert undone is None or undone in str(verdict.undo)


def test_what_is_being_undone_is_not_undone_again() -> None:
    late = START + timedelta(days=1)
    assert judge(state(undoing="it failed"), Rollout(), plan(), failures=99, now=late).undo is None


def test_progress_is_more_than_ever_before() -> None:
    first = judge(state(), Rollout(), plan(replaced=2), failures=0, now=START + MINUTE).state
    assert (first.replaced, first.progressed_at) == (2, START + MINUTE)
    lost = judge(first, Rollout(), plan(replaced=1), failures=0, now=START + 2 * MINUTE).state
    assert (lost.replaced, lost.progressed_at) == (2, START + MINUTE)


def test_a_region_bakes_from_the_moment_since_which_it_serves_without_a_break() -> None:
    rollout = Rollout(bake=MINUTE)
    done = judge(state(), rollout, plan(done=("us-east",)), failures=0, now=START).state
    assert baked_regions(done, rollout, START) == frozenset()
    assert baked_regions(done, rollout, START + MINUTE) == {"us-east"}
    broken = judge(done, rollout, plan(), failures=0, now=START).state
    assert baked_regions(broken, rollout, START + MINUTE) == frozenset()


@pytest.mark.parametrize(("promoted", "most"), [(0, 1), (1, 3), (2, None)])
def test_pause_points_are_passed_one_by_one(promoted: int, most: int | None) -> None:
    rollout = Rollout(pauses=(1, "50%"))
    assert pause_point(state(promoted=promoted), rollout, 5) == most


def test_it_is_looked_at_again_when_the_next_thing_is_due() -> None:
    soon = START + timedelta(seconds=5)
    baking = state(served_since={"us-east": START})
    assert look_again_at(state(), Rollout(), plan(), []) == START + 10 * MINUTE
    assert look_again_at(state(), Rollout(), plan(), [soon]) == soon
    assert look_again_at(
        baking, Rollout(bake=MINUTE), plan(RolloutStep.BAKING), []
    ) == START + MINUTE  # fmt: skip
    assert look_again_at(state(), Rollout(), plan(RolloutStep.PAUSED), []) is None
    assert look_again_at(state(), Rollout(), plan(RolloutStep.DONE), []) is None

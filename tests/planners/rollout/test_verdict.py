"""When a rollout is undone by itself, and when it is looked at again."""

from collections.abc import Callable, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.model.work.rollout import Rollout, RolloutProgress, RolloutState, RolloutStep
from durable.planners.rollout.observed import Goal, RolloutObservation, ShareName
from durable.planners.rollout.planner import RolloutPlan, plan_shares
from durable.planners.rollout.verdict import (
    baked_regions,
    judge,
    look_again_at,
    pause_point,
)
from tests.planners.rollout.world import EAST, NEW, OLD, WEST, World, homes, serving

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# Steps that are reached only when every replica whose turn has come is available.
_WITHOUT_DEBT = {RolloutStep.PAUSE_POINT, RolloutStep.BAKING, RolloutStep.DONE}


def state(**fields: Any) -> RolloutState:
    return RolloutState(started_at=START, progressed_at=START, **fields)


def plan(
    step: RolloutStep = RolloutStep.REPLACING, *, replaced: int = 0, done: tuple[str, ...] = ()
) -> RolloutPlan:
    awaited = 0 if step in _WITHOUT_DEBT else 4 - replaced
    progress = RolloutProgress(step=step, replaced=replaced, wanted=4, awaited=awaited)
    is_done = step is RolloutStep.DONE
    return RolloutPlan({}, frozenset(), {}, {}, progress, frozenset(done), is_done, is_done)


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
    assert (verdict.roll_back is None) == (undone is None)
    assert undone is None or undone in str(verdict.roll_back)


def mixed(slots: dict[int, str], new: Set[int]) -> World:
    """These slots run the new generation, all others the old one."""
    world = World()
    for slot, region in slots.items():
        share = ShareName(NEW if slot in new else OLD, region)
        world.shares[share] = world.shares.get(share, frozenset()) | {slot}
        world.replicas[slot] = serving(*share)
    return world


def rolls(slots: dict[int, str], **fields: Any) -> Goal:
    return Goal(NEW, slots, stable=OLD, surge=1, order=(EAST, WEST), **fields)


def lost_at_a_pause_point() -> tuple[Goal, RolloutObservation]:
    slots = homes(us_east=4)
    world = mixed(slots, {0})
    del world.replicas[3]
    starved = frozenset({ShareName(OLD, EAST)})
    return rolls(slots, most_replaced=1), replace(world.observed(), starved=starved)


def drained_at_a_pause_point() -> tuple[Goal, RolloutObservation]:
    slots = homes(us_east=4)
    world = mixed(slots, {0})
    world.replicas[0] = serving(NEW, EAST, is_marked=True)
    world.shares[ShareName(NEW, EAST)] |= {4}
    starved = frozenset({ShareName(NEW, EAST)})
    return rolls(slots, most_replaced=1), replace(world.observed(), starved=starved)


def lost_elsewhere_during_a_bake() -> tuple[Goal, RolloutObservation]:
    slots = homes(us_east=2, us_west=2)
    world = mixed(slots, {0, 1})
    del world.replicas[3]
    return rolls(slots), world.observed()


def unreachable_region() -> tuple[Goal, RolloutObservation]:
    slots = homes(us_east=2, us_west=2)
    world = mixed(homes(us_east=2), {0, 1})
    unreachable = replace(world.observed(), unreachable=frozenset({WEST}))
    return rolls(slots, baked=frozenset({EAST})), unreachable


def blocked_drain_of_the_last() -> tuple[Goal, RolloutObservation]:
    slots = homes(us_east=4)
    world = mixed(slots, {0, 1, 2, 3})
    world.replicas[2] = serving(NEW, EAST, is_marked=True)
    return rolls(slots), world.observed()


@pytest.mark.parametrize(
    "case",
    [
        lost_at_a_pause_point,
        drained_at_a_pause_point,
        lost_elsewhere_during_a_bake,
        unreachable_region,
        blocked_drain_of_the_last,
    ],
)
def test_a_rollout_is_not_undone_for_what_is_not_its_own(
    case: Callable[[], tuple[Goal, RolloutObservation]],
) -> None:
    late = START + 11 * MINUTE
    found = plan_shares(*case())
    verdict = judge(state(replaced=4), Rollout(bake=HOUR), found, failures=0, now=late)
    assert (found.progress.awaited, verdict.roll_back) == (0, None)
    assert verdict.state.progressed_at == late


def test_a_new_replica_that_stops_being_available_at_a_pause_point_is_late() -> None:
    slots = homes(us_east=4)
    world = mixed(slots, {0})
    world.replicas[0] = serving(NEW, EAST, is_serving=False, is_available=False)
    found = plan_shares(rolls(slots, most_replaced=1), world.observed())
    verdict = judge(state(replaced=1), Rollout(), found, failures=0, now=START + 11 * MINUTE)
    assert found.progress.awaited == 1
    assert verdict.roll_back is not None


def test_a_generation_is_good_once_all_of_it_is_available_whatever_is_left_of_a_drain() -> None:
    found = plan_shares(*blocked_drain_of_the_last())
    assert (found.is_replaced, found.is_complete, found.closing) == (True, False, frozenset())


def test_what_is_being_undone_is_not_undone_again() -> None:
    late = START + timedelta(days=1)
    assert (
        judge(state(rollback="it failed"), Rollout(), plan(), failures=99, now=late).roll_back
        is None
    )


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
    assert look_again_at(state(), Rollout(), plan(), [], START) == START + 10 * MINUTE
    assert look_again_at(state(), Rollout(), plan(), [soon], START) == soon
    assert look_again_at(
        baking, Rollout(bake=MINUTE), plan(RolloutStep.BAKING), [], START
    ) == START + MINUTE  # fmt: skip
    assert look_again_at(
        state(served_since={"us-east": START, "us-west": soon}), Rollout(bake=MINUTE),
        plan(RolloutStep.BAKING), [], START + MINUTE,
    ) == soon + MINUTE, "a bake that is over is not waited for"  # fmt: skip
    lost = plan_shares(*lost_elsewhere_during_a_bake())
    assert look_again_at(baking, Rollout(bake=HOUR), lost, [], START) == START + HOUR
    assert look_again_at(state(), Rollout(), plan(RolloutStep.PAUSED), [], START) is None
    assert look_again_at(state(), Rollout(), plan(RolloutStep.DONE), [], START) is None

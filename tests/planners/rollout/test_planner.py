"""The planner's steps: never below the floor, never above the surge, never round in circles."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durable.model.work.rollout import RolloutStep
from durable.planners.rollout.observed import (
    Goal,
    ObservedReplica,
    RolloutObservation,
    ShareName,
    fenceposts,
)
from durable.planners.rollout.planner import RolloutPlan, plan_shares
from tests.planners.rollout.world import EAST, NEW, OLD, WEST, World, homes, serving
from tests.scheduling.world import spec

# What Kubernetes documents and tests of a Deployment: surge up, unavailable down, never both 0.
KUBERNETES = [
    # max_surge, max_unavailable, replicas, surge, unavailable
    ("25%", "25%", 4, 1, 1),
    ("25%", "25%", 10, 3, 2),
    ("30%", "30%", 10, 3, 3),
    ("25%", "25%", 1, 1, 0),
    ("25%", "25%", 3, 1, 0),
    (1, 0, 3, 1, 0),
    (0, 1, 3, 0, 1),
    (0, "20%", 3, 0, 1),
    ("39%", "39%", 10, 4, 3),
    (0, "39%", 10, 0, 3),
    ("39%", 0, 10, 4, 0),
    ("55%", 0, 5, 3, 0),
    (5, 2, 10, 5, 2),
    ("100%", 0, 4, 4, 0),
]


@pytest.mark.parametrize(("surge", "unavailable", "replicas", "adds", "misses"), KUBERNETES)
def test_fenceposts_are_those_of_a_kubernetes_deployment(
    surge: Any, unavailable: Any, replicas: int, adds: int, misses: int
) -> None:
    rollout = {"max_surge": surge, "max_unavailable": unavailable}
    wanted = spec(replicas=replicas, rollout=rollout, disruption={"max_unavailable": "100%"})
    assert fenceposts(wanted)[:2] == (adds, misses)


@pytest.mark.parametrize(
    ("priority", "replicas", "disruption", "allowance"),
    [
        (900, 12, None, 1),
        (900, 5, None, 0),
        (100, 12, None, 3),
        (0, 12, None, 6),
        (100, 12, 2, 2),
        (100, 12, "50%", 6),
        (100, 2, 10, 2),
    ],
)
def test_the_disruption_allowance_has_a_default_by_class(
    priority: int, replicas: int, disruption: Any, allowance: int
) -> None:
    wanted = spec(replicas=replicas, priority=priority, disruption={"max_unavailable": disruption})
    assert fenceposts(wanted).allowance == allowance


def test_a_rollout_never_takes_down_more_than_the_disruption_allowance() -> None:
    wanted = spec(
        replicas=10, rollout={"max_surge": 0, "max_unavailable": 5},
        disruption={"max_unavailable": 2},
    )  # fmt: skip
    assert fenceposts(wanted)[:2] == (0, 2)
    none = wanted.model_copy(
        update={"disruption": wanted.disruption.model_copy(update={"max_unavailable": 0})}
    )
    assert fenceposts(none)[:2] == (1, 0), "one is added where none may be missing"


def goal(slots: dict[int, str], *, to: int = NEW, **fields: Any) -> Goal:
    posts: dict[str, Any] = {"surge": 1, "unavailable": 1, "allowance": 1}
    return Goal(to, slots, stable=OLD, **{**posts, **fields})


def shares(world: World, wanted: Goal) -> dict[ShareName, tuple[int, ...]]:
    return dict(world.plan(wanted).shares)


def test_a_new_workload_gets_all_of_its_slots_at_once() -> None:
    slots = homes(us_east=2, us_west=1)
    plan = plan_shares(Goal(1, slots), RolloutObservation())
    assert plan.shares == {(1, EAST): (0, 1), (1, WEST): (2,)}
    assert plan.owners == slots
    assert not plan.is_complete


def test_what_serves_as_wanted_is_left_alone() -> None:
    slots = homes(us_east=2, us_west=1)
    plan = World.settled(OLD, slots).plan(Goal(OLD, slots, surge=1, unavailable=1, allowance=1))
    assert plan.is_complete
    assert plan.shares == {(OLD, EAST): (0, 1), (OLD, WEST): (2,)}


def test_scaffolding_comes_up_and_one_slot_leaves_at_first() -> None:
    slots = homes(us_east=3)
    plan = World.settled(OLD, slots).plan(goal(slots))
    assert plan.shares == {(OLD, EAST): (1, 2), (NEW, EAST): (3,)}
    assert plan.owners == {0: EAST, 1: EAST, 2: EAST, 3: EAST}
    assert plan.progress.step is RolloutStep.REPLACING


def test_nothing_leaves_before_the_scaffolding_serves_where_nothing_may_be_missing() -> None:
    slots = homes(us_east=3)
    world = World.settled(OLD, slots)
    wanted = goal(slots, unavailable=0, allowance=0)
    assert shares(world, wanted) == {(OLD, EAST): (0, 1, 2), (NEW, EAST): (3,)}
    assert world.plan(wanted).progress.step is RolloutStep.SURGING
    world.replicas[3] = serving(NEW, EAST)
    assert shares(world, wanted) == {(OLD, EAST): (1, 2), (NEW, EAST): (3,)}


def test_a_slot_passes_over_when_its_claim_has_ended() -> None:
    slots = homes(us_east=2)
    world = World.settled(OLD, slots)
    wanted = goal(slots)
    world.plan(wanted)
    assert shares(world, wanted)[ShareName(NEW, EAST)] == (2,), "slot 0 still has its claim"
    del world.replicas[0]
    assert shares(world, wanted)[ShareName(NEW, EAST)] == (0, 2)


def test_what_does_not_serve_is_replaced_at_once() -> None:
    slots = homes(us_east=4)
    world = World.settled(OLD, slots)
    for slot in slots:
        world.replicas[slot] = ObservedReplica(ShareName(OLD, EAST))
    plan = world.plan(goal(slots, unavailable=0, allowance=0))
    assert plan.shares[ShareName(OLD, EAST)] == ()


def test_what_serves_but_does_not_count_yet_is_not_stopped_for_free() -> None:
    slots = homes(us_east=4)
    world = World.settled(OLD, slots)
    for slot in slots:
        world.replicas[slot] = serving(OLD, EAST, is_available=False)
    assert world.plan(goal(slots)).shares[ShareName(OLD, EAST)] == (0, 1, 2, 3)


def test_progress_counts_what_waits_for_its_turn_as_still_to_be_replaced() -> None:
    slots = homes(us_east=2, us_west=2)
    world = World.settled(OLD, slots)
    progress = world.plan(goal(slots, order=(WEST, EAST), surge=1)).progress
    assert (progress.region, progress.replaced, progress.arriving) == (WEST, 0, 0)
    assert progress.outdated + progress.leaving == 4


def test_the_last_region_in_turn_is_named_too() -> None:
    slots = homes(us_east=1, us_west=1)
    world = World.settled(OLD, slots)
    world.replicas[1] = serving(NEW, WEST)
    world.shares |= {ShareName(OLD, WEST): frozenset(), ShareName(NEW, WEST): frozenset({1})}
    wanted = goal(slots, order=(WEST, EAST), baked=frozenset({WEST}))
    assert world.plan(wanted).progress.region == EAST


def test_regions_take_turns_and_the_next_waits_for_the_bake() -> None:
    slots = homes(us_east=1, us_west=1)
    world = World.settled(OLD, slots)
    wanted = goal(slots, order=(WEST, EAST))
    plan = world.plan(wanted)
    assert (plan.progress.region, plan.shares[ShareName(OLD, EAST)]) == (WEST, (0,))
    world.replicas[1] = serving(NEW, WEST)
    world.shares |= {ShareName(OLD, WEST): frozenset(), ShareName(NEW, WEST): frozenset({1})}
    plan = world.plan(wanted)
    assert (plan.progress.step, plan.done_regions) == (RolloutStep.BAKING, {WEST})
    assert plan.shares[ShareName(OLD, EAST)] == (0,)
    baked = replace(wanted, baked=frozenset({WEST}))
    assert shares(world, baked)[ShareName(OLD, EAST)] == (0,), "a floor rises in the west first"
    assert shares(world, baked)[ShareName(OLD, EAST)] == ()


def test_undoing_takes_all_regions_at_once() -> None:
    slots = homes(us_east=1, us_west=1)
    world = World.settled(NEW, slots)
    wanted = goal(slots, to=OLD, at_once=True, surge=2, unavailable=0)
    plan = world.plan(wanted)
    assert {share: s for share, s in plan.shares.items() if share.generation == OLD} == {
        (OLD, EAST): (3,),
        (OLD, WEST): (2,),
    }


def test_a_pause_point_holds_the_rest_back() -> None:
    slots = homes(us_east=4)
    world = World.settled(OLD, slots)
    wanted = goal(slots, most_replaced=1)
    world.plan(wanted)
    for slot in (0, 4):
        world.replicas[slot] = serving(NEW, EAST)
    world.shares[ShareName(NEW, EAST)] = frozenset({0, 4})
    world.plan(wanted)
    del world.replicas[4]
    plan = world.plan(wanted)
    assert plan.progress.step is RolloutStep.PAUSE_POINT
    assert plan.shares == {(OLD, EAST): (1, 2, 3), (NEW, EAST): (0,)}


def test_a_paused_rollout_replaces_nothing_more() -> None:
    slots = homes(us_east=4)
    plan = World.settled(OLD, slots).plan(goal(slots, is_paused=True))
    assert plan.shares == {(OLD, EAST): (0, 1, 2, 3)}
    assert plan.progress.step is RolloutStep.PAUSED


def test_a_marked_claim_is_replaced_within_its_generation() -> None:
    slots = homes(us_east=2)
    world = World.settled(OLD, slots)
    world.replicas[1] = serving(OLD, EAST, is_marked=True)
    wanted = goal(slots, to=OLD, unavailable=0, allowance=0)
    assert shares(world, wanted) == {(OLD, EAST): (0, 1, 2)}
    world.replicas[2] = serving(OLD, EAST)
    assert shares(world, wanted) == {(OLD, EAST): (0, 2)}
    assert world.plan(wanted).replaced == {1}
    assert not world.plan(goal(slots, unavailable=0, allowance=0)).replaced, "a rollout stops it"
    del world.replicas[1]
    assert shares(world, wanted) == {(OLD, EAST): (0, 1, 2)}
    world.replicas[1] = serving(OLD, EAST)
    assert shares(world, wanted) == {(OLD, EAST): (0, 1)}


def test_a_drain_during_a_rollout_keeps_the_generation_of_a_region_whose_turn_has_not_come() -> (
    None
):
    slots = homes(us_east=1, us_west=1)
    world = World.settled(OLD, slots)
    world.replicas[1] = serving(OLD, WEST, is_marked=True)
    wanted = goal(slots, surge=2, unavailable=0, allowance=0)
    plan = world.plan(wanted)
    added = {share: s for share, s in plan.shares.items() if any(slot >= 2 for slot in s)}
    assert set(added) == {(NEW, EAST), (OLD, WEST)}


def test_a_slot_moves_to_another_region_make_before_break() -> None:
    world = World.settled(OLD, homes(us_east=2))
    wanted = goal({0: EAST, 1: WEST}, to=OLD, unavailable=0, allowance=0)
    plan = world.plan(wanted)
    assert plan.shares == {(OLD, EAST): (0, 1), (OLD, WEST): (2,)}
    assert plan.owners == {0: EAST, 1: EAST, 2: WEST}
    world.replicas[2] = serving(OLD, WEST)
    plan = world.plan(wanted)
    assert plan.floors[WEST] == 1, "the floor rises where the replica comes up, and"
    plan = world.plan(wanted)
    assert plan.floors == {EAST: 1, WEST: 1}, "only then comes down where it was"
    assert plan.shares == {(OLD, EAST): (0,), (OLD, WEST): (2,)}
    del world.replicas[1]
    assert world.plan(wanted).owners[1] == WEST


def test_scaffolding_makes_way_for_a_base_slot_that_finds_no_room() -> None:
    slots = homes(us_east=3)
    new = ShareName(NEW, EAST)
    world = World({ShareName(OLD, EAST): frozenset(), new: frozenset({0, 1, 2, 3})})
    world.replicas = {slot: serving(NEW, EAST) for slot in (0, 1, 3)}
    wanted = goal(slots)
    assert plan_shares(wanted, world.observed()).shares[new] == (0, 1, 2, 3)
    starved = replace(world.observed(), starved=frozenset({new}), floors={EAST: 2})
    assert plan_shares(wanted, starved).shares[new] == (0, 1, 2)


@pytest.mark.parametrize(
    ("unavailable", "sentence"),
    [(1, "it goes on within max_unavailable."), (0, "because no replica may be unavailable.")],
)
def test_a_surge_that_finds_no_room_is_said(unavailable: int, sentence: str) -> None:
    slots = homes(us_east=3)
    new = ShareName(NEW, EAST)
    world = World.settled(OLD, slots)
    world.shares[new] = frozenset({3})
    # Where one may be missing, one is missing already.
    world.replicas[0] = serving(OLD, EAST, is_available=unavailable == 0)
    wanted = goal(slots, unavailable=unavailable, allowance=unavailable)
    waiting = plan_shares(wanted, world.observed()).progress
    assert "surge replicas that have to serve" in waiting.sentence
    starved = replace(world.observed(), starved=frozenset({new}))
    progress = plan_shares(wanted, starved).progress
    assert (progress.step, progress.surge_starved) == (RolloutStep.SURGING, 1)
    assert "surge replicas that find no room or quota now: 1" in progress.sentence
    assert progress.sentence.endswith(sentence)


def test_a_gang_is_stopped_and_started_anew_as_a_whole() -> None:
    slots = homes(us_east=3)
    world = World.settled(OLD, slots)
    wanted = goal(slots, surge=0, recreates=True, at_once=True)
    plan = world.plan(wanted)
    assert (plan.floors, plan.shares) == ({EAST: 0}, {(OLD, EAST): ()})
    del world.replicas[0]
    assert shares(world, wanted) == {(OLD, EAST): ()}, "it waits for the others"
    world.replicas.clear()
    assert shares(world, wanted) == {(OLD, EAST): (), (NEW, EAST): (0, 1, 2)}


def test_a_region_that_does_not_answer_is_left_alone_and_counts_as_lost() -> None:
    slots = homes(us_east=2, us_west=2)
    world = World.settled(OLD, homes(us_east=2))
    observed = replace(world.observed(), unreachable=frozenset({WEST}))
    plan = plan_shares(goal(slots), observed)
    assert {share.region for share in plan.shares} == {EAST}
    assert plan.shares[ShareName(OLD, EAST)] == (0, 1), "nothing more may be down by choice"
    assert plan.owners[2] == WEST


@st.composite
def changes(draw: st.DrawFn) -> tuple[World, Goal]:
    """Some state of a workload, which need not be one that a plan would lead to, and a goal."""
    regions = draw(st.sampled_from([[EAST], [EAST, WEST], [EAST, WEST, "eu"]]))
    replicas = draw(st.integers(0, 6))
    slots = {slot: draw(st.sampled_from(regions)) for slot in range(replicas)}
    world = World()
    for slot in range(replicas + draw(st.integers(0, 3))):
        generation = draw(st.sampled_from([OLD, OLD, OLD, NEW]))
        share = ShareName(generation, draw(st.sampled_from(regions)))
        if draw(st.integers(0, 9)):
            world.shares[share] = world.shares.get(share, frozenset()) | {slot}
        if draw(st.integers(0, 9)):
            is_serving = draw(st.booleans())
            world.replicas[slot] = ObservedReplica(
                share,
                is_serving=is_serving,
                is_available=is_serving and draw(st.booleans()),
                is_stopping=not draw(st.integers(0, 5)),
                is_marked=not draw(st.integers(0, 3)),
            )
    allowance = draw(st.integers(0, max(0, replicas)))
    unavailable = draw(st.integers(0, allowance))
    surge = draw(st.integers(0 if unavailable else 1, 3))
    wanted = Goal(
        draw(st.sampled_from([OLD, NEW])),
        slots,
        surge=surge,
        unavailable=unavailable,
        allowance=allowance,
        stable=draw(st.sampled_from([None, OLD])),
        baked=frozenset(regions),
        at_once=draw(st.booleans()),
    )
    return world, wanted


def ends(world: World, wanted: Goal, chance: Any) -> None:
    """Lets things happen in any order until nothing is left to do; plans in between."""
    replicas = len(wanted.homes)
    for _ in range(400):
        plan = world.plan(wanted)
        assert sum(world.floors.values()) >= replicas - wanted.allowance
        events = world.events()
        if events:
            chance.choice(events)()
        elif plan.is_complete:
            break
        else:
            # Nothing happens by itself: then the plan has to move on.
            again = world.plan(wanted)
            moved = (again.shares, again.floors) != (plan.shares, plan.floors)
            assert moved or again.is_complete or world.events(), again
    else:
        raise AssertionError(f"it has not ended: {world}")
    there = {slot: one.share for slot, one in world.replicas.items()}
    assert there == {slot: (wanted.generation, region) for slot, region in wanted.homes.items()}
    assert not any(one.is_marked for one in world.replicas.values())


ANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ANY
@given(changes(), st.randoms(use_true_random=False))
def test_from_any_state_it_ends_in_finitely_many_steps(
    state: tuple[World, Goal], chance: Any
) -> None:
    ends(*state, chance)


class Watched(World):
    """Counts after every event."""

    fewest: int
    most: int

    def plan(self, goal: Goal) -> RolloutPlan:
        self.fewest = min(self.fewest, self.available)
        self.most = max(self.most, len(self.replicas))
        return super().plan(goal)


@ANY
@given(changes(), st.data(), st.randoms(use_true_random=False))
def test_what_served_is_never_below_the_floor_nor_above_the_surge(
    state: tuple[World, Goal], data: st.DataObject, chance: Any
) -> None:
    _, wanted = state
    regions = sorted(set(wanted.homes.values()))
    world = Watched()
    begun = World.settled(OLD, {slot: data.draw(st.sampled_from(regions)) for slot in wanted.homes})
    world.shares, world.replicas = begun.shares, begun.replicas
    for slot in data.draw(
        st.sets(st.sampled_from(sorted(wanted.homes))) if regions else st.just(set())
    ):
        world.replicas[slot] = replace(world.replicas[slot], is_marked=True)
    world.fewest = world.most = len(world.replicas)
    ends(world, wanted, chance)
    assert world.fewest >= len(wanted.homes) - wanted.unavailable
    assert world.most <= len(wanted.homes) + wanted.surge

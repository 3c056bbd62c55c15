"""Originals of a lost region are left as they are, while stand-ins serve for them elsewhere."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.model.work.stand_ins import served_slot, stand_in_for
from durable.planners.rollout.observed import Goal, ObservedReplica, ShareName
from tests.planners.rollout.world import EAST, OLD, WEST, World, homes, serving

BOTH = homes(us_east=2, us_west=2)
AWAY = homes(us_west=4)
IN_EAST, IN_WEST = ShareName(OLD, EAST), ShareName(OLD, WEST)
FIRST, SECOND = stand_in_for(0), stand_in_for(1)


def goal(slots: dict[int, str], **fields: Any) -> Goal:
    posts: dict[str, Any] = {"surge": 1, "unavailable": 1, "allowance": 1}
    return Goal(OLD, slots, stable=OLD, **{**posts, **fields})


def cut_off() -> World:
    """Nothing of east can be counted on, which is fenced."""
    world = World.settled(OLD, BOTH)
    for slot in (0, 1):
        world.replicas[slot] = ObservedReplica(IN_EAST)
    return world


@pytest.mark.parametrize(("slot", "number"), [(0, 50_000), (3_999, 53_999)])
def test_a_stand_in_has_a_number_that_no_other_slot_has(slot: int, number: int) -> None:
    assert stand_in_for(slot) == number
    assert served_slot(number) == served_slot(slot) == slot


def test_what_is_kept_stays_in_its_share_and_a_stand_in_goes_where_it_was_moved_to() -> None:
    plan = cut_off().plan(goal(AWAY, kept=frozenset({0, 1})))
    assert plan.shares == {IN_EAST: (0, 1), IN_WEST: (2, 3, FIRST, SECOND)}
    assert plan.owners == {2: WEST, 3: WEST, FIRST: WEST, SECOND: WEST}, "it owns what it owned"


def test_of_a_region_that_does_not_answer_nothing_is_known_and_nothing_taken() -> None:
    world = World.settled(OLD, {2: WEST, 3: WEST})
    plan = world.plan(goal(AWAY, kept=frozenset({0, 1})))
    assert plan.shares == {IN_WEST: (2, 3, FIRST, SECOND)}
    assert not {0, 1} & plan.owners.keys()


def test_what_is_not_kept_leaves_as_ever() -> None:
    plan = cut_off().plan(goal(AWAY, kept=frozenset({1})))
    assert plan.shares == {IN_EAST: (1,), IN_WEST: (2, 3, SECOND)}
    assert plan.owners[0] == EAST, "until its claim has ended"


def test_when_nothing_is_kept_any_more_stand_ins_serve_until_the_moved_slots_do() -> None:
    world = cut_off()
    world.plan(goal(AWAY, kept=frozenset({0, 1})))
    world.replicas |= {FIRST: serving(OLD, WEST), SECOND: serving(OLD, WEST)}
    assert world.plan(goal(AWAY)).shares == {IN_EAST: (), IN_WEST: (2, 3, FIRST, SECOND)}
    world.replicas = {slot: one for slot, one in world.replicas.items() if slot not in (0, 1)}
    assert world.plan(goal(AWAY)).shares[IN_WEST] == (0, 1, 2, 3, FIRST, SECOND)
    world.replicas |= {0: serving(OLD, WEST), 1: serving(OLD, WEST)}
    assert world.plan(goal(AWAY)).shares[IN_WEST] == (0, 1, 2, 3)


class CutOff(World):
    """Nothing happens to what is kept."""

    kept: frozenset[int] = frozenset()

    def events(self) -> list[Callable[[], None]]:
        everything = self.shares, self.replicas
        self.shares = {share: slots - self.kept for share, slots in self.shares.items()}
        self.replicas = {s: one for s, one in self.replicas.items() if s not in self.kept}
        found = super().events()
        self.shares, self.replicas = everything
        return found


def end(world: World, wanted: Goal, chance: Any, *, least: int) -> None:
    """Lets things happen in any order until nothing is left to do, never below what must serve."""
    for _ in range(400):
        plan = world.plan(wanted)
        assert world.available >= least
        events = world.events()
        if events:
            chance.choice(events)()
        elif plan.is_complete:
            return
    raise AssertionError(f"it has not ended: {world}")


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4), st.integers(0, 4), st.integers(0, 2), st.booleans(),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_whole_again_with_its_originals_and_never_below_the_floor(
    east: int, west: int, unavailable: int, is_alive: bool, chance: Any
) -> None:
    """Those that did not survive are started anew at home before their stand-ins go."""
    slots = homes(us_east=east, us_west=west)
    kept = frozenset(slot for slot, region in slots.items() if region == EAST)
    begun = World.settled(OLD, slots)
    world = CutOff(begun.shares, begun.replicas | dict.fromkeys(kept, ObservedReplica(IN_EAST)))
    world.kept = kept
    posts = {"unavailable": unavailable, "allowance": unavailable, "at_once": True}
    end(world, goal(dict.fromkeys(slots, WEST), kept=kept, **posts), chance, least=west)
    assert world.serving_in(WEST) == len(slots)
    assert world.shares[IN_EAST] == kept

    world.kept = frozenset()
    originals = {slot: serving(OLD, EAST) for slot in kept}
    world.replicas = {s: one for s, one in world.replicas.items() if s not in kept}
    world.replicas |= originals if is_alive else {}
    end(world, goal(slots, **posts), chance, least=len(slots) - unavailable)
    assert {slot: one.share.region for slot, one in world.replicas.items()} == slots
    if is_alive:
        assert all(world.replicas[slot] is one for slot, one in originals.items())

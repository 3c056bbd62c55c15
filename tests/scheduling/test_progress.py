"""Whatever the world: what can be placed is placed."""

from collections import Counter

from hypothesis import given, settings

from durable.scheduling.request import PlacementRequest
from tests.scheduling.oracle import State, fits, may_now, slots_let_through
from tests.scheduling.world import Region, places
from tests.scheduling.worlds import PLAIN, regions, requests


def holds(world: Region, asked: PlacementRequest) -> Counter[str]:
    """How many replicas each zone can take, one after the other on every node."""
    room: Counter[str] = Counter()
    for facts in world.nodes:
        if may_now(facts, asked):
            state, count = State(world, asked, {}), 0
            while fits(asked.spec.resources.amounts, state.free(facts)):
                count += 1
                state.new[facts.node] += 1
            room[facts.zone] += count
    return room


@settings(max_examples=500)
@given(regions(), requests())
def test_no_slot_waits_while_a_node_could_take_it(world: Region, asked: PlacementRequest) -> None:
    placed = places(world.decide(asked))
    if not placed and asked.spec.is_gang:
        return
    state = State(world, asked, placed)
    unplaced = set(asked.slots) - set(placed)
    if unplaced and len(placed) < slots_let_through(world, asked):
        takers = [
            (slot, facts.node)
            for slot in unplaced
            for facts in world.nodes
            if state.takes(facts, slot)
        ]
        assert takers == []


@given(regions(), requests())
def test_as_many_nodes_are_feasible_as_could_take_a_slot(
    world: Region, asked: PlacementRequest
) -> None:
    state = State(world, asked, {})
    could = [
        facts for facts in world.nodes if any(state.takes(facts, slot) for slot in asked.slots)
    ]
    assert world.decide(asked).evidence.feasible == len(could)


@given(regions(), requests(**PLAIN))
def test_a_group_without_spread_fills_what_there_is(world: Region, asked: PlacementRequest) -> None:
    could = min(holds(world, asked).total(), slots_let_through(world, asked))
    expected = could if could >= asked.spec.gang_size else 0
    assert len(places(world.decide(asked))) == expected


@given(regions(), requests(**{**PLAIN, "spread": {"zone_max_skew": 1}}))
def test_a_group_spread_over_zones_is_as_large_as_the_smallest_zone_allows(
    world: Region, asked: PlacementRequest
) -> None:
    room = holds(world, asked)
    smallest = min(room.values(), default=0)
    could = sum(min(each, smallest + 1) for each in room.values())
    could = min(could, slots_let_through(world, asked))
    expected = could if could >= asked.spec.gang_size else 0
    assert len(places(world.decide(asked))) == expected

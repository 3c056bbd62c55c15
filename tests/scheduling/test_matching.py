"""Crash bans are matched: if every slot can have a node that it may go to, every slot has one."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.request import PlacementRequest
from tests.scheduling.oracle import State, complete_assignment
from tests.scheduling.world import Region, node, places, region, request

NODES = ["n0", "n1", "n2", "n3", "n4"]


@st.composite
def crowded(draw: st.DrawFn) -> Region:
    """A few nodes with room for a few replicas each."""
    names = NODES[: draw(st.integers(3, len(NODES)))]
    zones = st.sampled_from(["a", "b", "c"])
    return region(
        *(node(name, zone=draw(zones), cpu=draw(st.integers(1, 2)), memory=2) for name in names)
    ).weighing(**draw(st.sampled_from([{"packing": 1.0}, {"spread": 1.0}])))


@st.composite
def banned(draw: st.DrawFn, spread: st.SearchStrategy[dict[str, Any]]) -> PlacementRequest:
    """Some slots, of which each may have crashed on several nodes."""
    slots = draw(st.integers(3, 5))
    pairs = st.tuples(st.integers(0, slots - 1), st.sampled_from(NODES))
    return request(
        slots,
        crashes=sorted(draw(st.sets(pairs, max_size=3 * slots))),
        spread=draw(spread),
        live=draw(st.dictionaries(st.integers(10, 12), st.sampled_from(NODES), max_size=2)),
        attempt=draw(st.integers(1, 9)),
    )


SKEW = st.none() | st.integers(1, 2)
SPREAD = st.fixed_dictionaries(
    {"zone_max_skew": SKEW, "max_per_node": st.none() | st.integers(1, 3)}
) | st.fixed_dictionaries({"node_max_skew": SKEW})


@settings(max_examples=250)
@given(crowded(), banned(SPREAD))
def test_a_complete_assignment_is_found_if_there_is_one(
    world: Region, asked: PlacementRequest
) -> None:
    placed = places(world.decide(asked))
    assert State(world, asked, placed).broken(placed) == []
    if complete_assignment(world, asked) is not None:
        assert len(placed) == len(asked.slots)


def test_a_slot_makes_way_for_one_that_may_go_nowhere_else() -> None:
    """Slot 1 may go to n2 alone, and slot 0 to n1 or n2: whoever chooses first."""
    nodes = [node(name, cpu=1) for name in ("n0", "n1", "n2")]
    crashes = [(0, "n0"), (1, "n0"), (1, "n1")]
    for attempt in range(1, 20):
        asked = request(3, crashes=crashes, attempt=attempt)
        assert places(region(*nodes).decide(asked)) == {0: "n1", 1: "n2", 2: "n0"}


def test_several_slots_make_way_one_for_another() -> None:
    """Each slot may go to two neighbours in a ring, but the last to one alone."""
    size = 8
    nodes = [node(f"n{number}", cpu=1) for number in range(size)]
    crashes = [
        (slot, f"n{number}")
        for slot in range(size)
        for number in range(size)
        if number != slot and (number != (slot + 1) % size or slot == size - 1)
    ]
    for attempt in range(1, 20):
        asked = request(size, crashes=crashes, attempt=attempt)
        assert places(region(*nodes).decide(asked)) == {n: f"n{n}" for n in range(size)}


def test_a_slot_leaves_a_zone_that_is_at_its_skew_for_one_that_may_go_to_no_other() -> None:
    """Slot 1 may go to zone a alone; if slot 0 was there first, it moves to zone b."""
    nodes = [node("n0", zone="a", cpu=1), node("n1", zone="a", cpu=1), node("n2", zone="b", cpu=1)]
    asked = request(2, crashes=[(1, "n2"), (1, "n0"), (0, "n1")], spread={"zone_max_skew": 1})
    assert places(region(*nodes).decide(asked)) == {0: "n2", 1: "n1"}


def test_who_has_no_node_at_all_waits_and_the_others_do_not() -> None:
    nodes = [node(f"n{number}", cpu=1) for number in range(3)]
    crashes = [(0, f"n{number}") for number in range(3)]
    proposal = region(*nodes).decide(request(3, crashes=crashes))
    assert sorted(places(proposal)) == [1, 2]
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.CRASHED


def test_thousands_of_slots_are_matched_in_bounded_time() -> None:
    """Every slot has crashed on the same node, and one on every node but that."""
    nodes = [node(f"n{number}", cpu=40, memory=40) for number in range(100)]
    crashes = [(slot, "n0") for slot in range(3_999)]
    crashes += [(3_999, f"n{number}") for number in range(1, 100)]
    placed = places(region(*nodes).decide(request(4_000, crashes=crashes)))
    # All but 39 of the 40 places on n0, to which one slot alone may go.
    assert len(placed) == 99 * 40 + 1

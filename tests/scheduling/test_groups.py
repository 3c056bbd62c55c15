"""Many slots at once: each choice changes what the next one sees."""

from collections import Counter

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.snapshot.region import NodeFacts
from tests.scheduling.world import node, places, region, rejected, request, said, used


def fleet(count: int, zones: str = "abc", **facts: int) -> list[NodeFacts]:
    return [
        node(f"n{number:02}", zone=zones[number % len(zones)], **facts) for number in range(count)
    ]


def by_zone(placed: dict[int, str], nodes: list[NodeFacts]) -> Counter[str]:
    zones = {facts.node: facts.zone for facts in nodes}
    return Counter(zones[where] for where in placed.values())


def test_no_node_is_given_more_than_it_has() -> None:
    proposal = region(node("n1", cpu=3), node("n2", cpu=2)).decide(request(9))
    assert Counter(places(proposal).values()) == {"n1": 3, "n2": 2}
    assert proposal.unplaced == (5, 6, 7, 8)
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.CAPACITY
    assert said(proposal).startswith(
        "No node in us-east can take 4 of 9 slots of risk/api (2 of 2 nodes: "
    )


def test_the_lowest_slots_are_placed_first() -> None:
    assert list(places(region(node(cpu=2)).decide(request([8, 3, 5])))) == [3, 5]


def test_replicas_lie_evenly_over_zones_when_nothing_else_matters() -> None:
    nodes = fleet(9)
    proposal = region(*nodes).weighing(spread=1.0).decide(request(9))
    assert by_zone(places(proposal), nodes) == {"a": 3, "b": 3, "c": 3}
    assert len(set(places(proposal).values())) == 9


def test_live_replicas_count_for_spread() -> None:
    nodes = fleet(6)
    asked = request([2, 3, 4, 5], live={0: "n00", 1: "n03"}, spread={"zone_max_skew": 1})
    placed = places(region(*nodes).weighing(packing=1.0).decide(asked))
    assert by_zone(placed, nodes) == {"b": 2, "c": 2}


def test_skew_is_kept_against_every_preference() -> None:
    nodes = [*fleet(6), node("huge", zone="a", cpu=100, memory=999)]
    asked = request(9, spread={"zone_max_skew": 1})
    placed = places(region(*nodes).weighing(packing=1.0).decide(asked))
    assert by_zone(placed, nodes) == {"a": 3, "b": 3, "c": 3}


def test_a_full_zone_holds_the_others_back() -> None:
    nodes = [node("n1", zone="a"), node("n2", zone="b", used=used(cpu=7))]
    proposal = region(*nodes).decide(request(5, spread={"zone_max_skew": 2}))
    assert by_zone(places(proposal), nodes) == {"a": 3, "b": 1}
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.SPREAD
    assert "1 zone a at its skew of 2" in said(proposal)


def test_a_zone_that_is_down_holds_nobody_back() -> None:
    nodes = [node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="c", ready=False)]
    proposal = region(*nodes).decide(request(6, spread={"zone_max_skew": 1}))
    assert by_zone(places(proposal), nodes) == {"a": 3, "b": 3}


def test_a_zone_where_the_work_may_not_go_holds_nobody_back() -> None:
    nodes = [node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="c")]
    asked = request(6, spread={"zone_max_skew": 1}, requirements={"zones": ["a", "b"]})
    assert by_zone(places(region(*nodes).decide(asked)), nodes) == {"a": 3, "b": 3}


def test_nodes_are_filled_in_turn_under_a_node_skew() -> None:
    nodes = fleet(3)
    proposal = region(*nodes).weighing(packing=1.0).decide(request(9, spread={"node_max_skew": 1}))
    assert Counter(places(proposal).values()) == {"n00": 3, "n01": 3, "n02": 3}


def test_max_per_node_counts_live_and_new() -> None:
    asked = request([1, 2, 3], live={0: "n1"}, spread={"max_per_node": 2})
    proposal = region(node("n1"), node("n2")).decide(asked)
    assert Counter(places(proposal).values()) == {"n1": 1, "n2": 2}


def test_a_crashed_slot_goes_elsewhere_and_another_takes_its_place() -> None:
    nodes = (node("n1", cpu=1), node("n2", cpu=1))
    for attempt in range(1, 6):
        asked = request([0, 1], crashes={1: "n1"}, attempt=attempt)
        assert places(region(*nodes).decide(asked)) == {0: "n1", 1: "n2"}


def test_a_slot_gets_a_second_chance_when_others_open_its_zone() -> None:
    """Slot 1 crashed in zone b, and zone a is ahead until slot 2 has gone to b."""
    nodes = (node("n1", zone="a"), node("n2", zone="b"))
    asked = request([1, 2], live={0: "n1"}, crashes={1: "n2"}, spread={"zone_max_skew": 1})
    assert places(region(*nodes).decide(asked)) == {1: "n1", 2: "n2"}


def test_a_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    world = region(node("n1", cpu=3))
    assert len(places(world.decide(request(3, all_or_nothing=True)))) == 3
    proposal = world.decide(request(4, all_or_nothing=True))
    assert proposal.assignments == ()
    assert proposal.unplaced == (0, 1, 2, 3)
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.GANG
    assert "A gang of 4 starts together or not at all, and 3 of 4 slots could" in said(proposal)
    assert proposal.evidence.grant_after == proposal.evidence.grant_before


def test_a_gang_with_a_minimum_starts_with_that_many() -> None:
    proposal = region(node("n1", cpu=3)).decide(request(5, minimum=3))
    assert list(places(proposal)) == [0, 1, 2]
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.CAPACITY


def test_a_gang_that_is_partly_live_needs_only_the_rest() -> None:
    asked = request([2, 3], replicas=4, all_or_nothing=True, live={0: "n1", 1: "n1"})
    assert len(places(region(node("n1", cpu=2)).decide(asked))) == 2
    proposal = region(node("n1", cpu=1)).decide(asked)
    assert proposal.assignments == ()
    assert "1 of 2 slots could be placed beside 2 that are live" in said(proposal)


def test_a_gang_that_requests_too_few_slots_says_so() -> None:
    proposal = region(node()).decide(request([0], replicas=4, all_or_nothing=True))
    assert proposal.unplaced == (0,)
    assert "request more slots at once" in said(proposal)


def test_best_effort_work_looks_at_a_sample() -> None:
    world = region(*fleet(50)).sampling(5)
    proposal = world.decide(request(priority=0))
    assert proposal.evidence.sampled == 5
    assert proposal.evidence.feasible == 50
    assert len(places(proposal)) == 1
    assert world.decide(request(priority=100)).evidence.sampled is None


def test_a_sample_that_runs_out_is_no_reason_to_wait() -> None:
    world = region(*fleet(50, cpu=1)).sampling(5)
    assert len(set(places(world.decide(request(50, priority=0))).values())) == 50


def test_the_account_is_of_what_the_first_slot_met() -> None:
    proposal = region(node("n1", cpu=1), node("n2", cordoned=True)).decide(request(2))
    assert rejected(proposal) == {"cordoned": 1}
    assert "1 cordoned, 1 insufficient cpu" in said(proposal)

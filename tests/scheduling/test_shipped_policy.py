"""The policy that is shipped does what its comments say."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from durable.model.resources import plus
from durable.scheduling.decide import decide
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.region import NodeFacts
from tests.scheduling.world import POLICY, Region, node, places, region, request, taint, used


def placed_one_by_one(nodes: list[NodeFacts], workloads: int, **asked: Any) -> list[NodeFacts]:
    """The nodes after so many workloads of one replica, each decided on what the last one left."""
    for number in range(workloads):
        wanted = one_of(f"small-{number}", **asked)
        where = places(region(*nodes).decide(wanted))[0]
        amounts = wanted.spec.resources.amounts
        nodes = [
            replace(facts, used=plus(facts.used, amounts)) if facts.node == where else facts
            for facts in nodes
        ]
    return nodes


def one_of(name: str, **asked: Any) -> PlacementRequest:
    return request(**asked).model_copy(update={"workload": name})


# What small work asks for, and what the nodes have: also where it uses one resource alone.
SMALL: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "cpu and memory": ({}, {}),
    "cpu alone": ({"memory": 0}, {}),
    "memory alone": ({"cpu": 0, "memory": 4}, {}),
    "cpu of nodes that declare no memory": ({"memory": 0}, {"memory": 0}),
    "gpus": ({"gpus": 1, "cpu": 0, "memory": 0}, {"gpus": 8}),
    "cpu of nodes with gpus": ({}, {"gpus": 8}),
}


@pytest.mark.parametrize(("asked", "has"), SMALL.values(), ids=SMALL.keys())
def test_forty_small_workloads_on_ten_nodes_leave_room_for_a_large_one(
    asked: dict[str, int], has: dict[str, int]
) -> None:
    nodes = [node(f"n{number}", zone="abc"[number % 3], **has) for number in range(10)]
    nodes = placed_one_by_one(nodes, 40, **asked)
    large = region(*nodes).decide(request(cpu=8, memory=has.get("memory", 32)))
    assert places(large)


def test_a_resource_that_a_node_does_not_declare_says_nothing_about_it() -> None:
    """Neither how full it is nor how evenly it is used."""
    nodes = [node("cpu-alone", memory=0), node("both", memory=8)]
    asked = request(memory=0)
    scores = {str(o.node): o.scores for o in region(*nodes).decide(asked).evidence.candidates}
    assert scores["cpu-alone"]["balance"] == 1.0
    assert scores["cpu-alone"]["packing"] == 0.125 * (2 - 0.125)
    assert scores["both"]["balance"] == 1 - 0.125
    assert scores["both"]["packing"] == round(0.0625 * (2 - 0.0625), 6)


def test_eight_replicas_lie_on_four_nodes_whatever_those_declare() -> None:
    nodes = [node(f"n{number}", memory=0) for number in range(4)]
    proposal = region(*nodes).decide(request(8, memory=0))
    assert Counter(places(proposal).values()) == {"n0": 2, "n1": 2, "n2": 2, "n3": 2}


def test_replicas_lie_apart_even_where_one_node_is_nearly_full() -> None:
    nodes = [node("n0"), node("full", used=used(cpu=6, memory=24)), node("n2")]
    asked = request([1], live={0: "full"})
    assert places(region(*nodes).decide(asked))[1] != "full"


def test_a_tainted_node_gets_work_only_where_no_other_zone_has_room() -> None:
    mark = taint("shape", "memory", "prefer-no-schedule")
    nodes = [node("plain", zone="a"), node("tainted", zone="b", taints=[mark])]
    assert set(places(region(*nodes).decide(request(8))).values()) == {"plain"}
    assert set(places(region(*nodes).decide(request(9))).values()) == {"plain", "tainted"}


def test_work_without_gpus_stays_off_nodes_that_have_some() -> None:
    world = region(node("plain"), node("gpus", gpus=8))
    for attempt in range(1, 6):
        asked = request(cpu=2, memory=8, attempt=attempt)
        assert places(world.decide(asked)) == {0: "plain"}


def test_gpus_are_packed() -> None:
    nodes = [node("begun", gpus=8, used=used(gpus=4)), node("empty", gpus=8)]
    world = region(*nodes).weighing(packing=1.0)
    for attempt in range(1, 6):
        assert places(world.decide(request(gpus=1, attempt=attempt))) == {0: "begun"}


def close_to_each_other() -> Region:
    """Fifty nodes whose points all differ, by less than the band."""
    return region(*(node(f"n{n:02}", cpu=8000, used=(n * 1000, 0, 0)) for n in range(50)))


def test_requests_that_are_decided_at_once_choose_different_nodes_within_the_band() -> None:
    snapshot = close_to_each_other().snapshot()
    chosen = Counter(
        places(decide(snapshot, one_of(f"w{number}"), POLICY, policy_revision=1))[0]
        for number in range(100)
    )
    assert len(chosen) > 30
    assert max(chosen.values()) < 10


def test_nothing_outside_the_band_is_chosen() -> None:
    world = region(node("best", used=used(cpu=5, memory=20)), *close_to_each_other().nodes)
    for number in range(20):
        proposal = world.decide(one_of(f"w{number}"))
        assert places(proposal) == {0: "best"}


def test_without_a_band_the_best_is_taken() -> None:
    policy = POLICY.model_copy(update={"choice_band": 0.0})
    world = close_to_each_other().but(policy=policy)
    chosen = {places(world.decide(one_of(f"w{number}")))[0] for number in range(20)}
    assert chosen == {"n49"}


def test_what_was_chosen_is_shown_first_and_the_best_beside_it() -> None:
    world = close_to_each_other()
    for number in range(20):
        proposal = world.decide(one_of(f"w{number}"))
        first, *others = proposal.evidence.candidates
        assert str(first.node) == places(proposal)[0]
        assert [one.total for one in others] == sorted((o.total for o in others), reverse=True)
        assert "n49" in {str(one.node) for one in proposal.evidence.candidates}

"""Each preference alone: which of two nodes it likes better, and within which bounds it says so."""

from typing import Any

import numpy as np
import pytest

from durable.model.fleet.labels import LabelKey
from durable.scheduling.evidence import filter_nodes
from durable.scheduling.scores import SCORES, image_label
from durable.scheduling.snapshot.region import NodeFacts
from durable.scheduling.working_set import WorkingSet
from tests.scheduling.world import node, places, region, request, taint, used

# A score, the node that it likes better, the other one, and the request.
LIKED: list[tuple[str, str, NodeFacts, NodeFacts, dict[str, Any]]] = [
    ("spread", "the zone with fewer replicas", node("x", zone="b"), node("y", zone="a"),
     {"slots": [1], "live": {0: "y"}}),
    ("spread", "the emptier node of a zone", node("x"), node("y"),
     {"slots": [1], "live": {0: "y"}}),
    ("packing", "the fuller node", node("x", used=used(cpu=4, memory=16)), node("y"), {}),
    ("balance", "what is used in like measure", node("x", used=used(cpu=4, memory=16)),
     node("y", used=used(cpu=7)), {}),
    ("locality", "the preferred label", node("x", labels={"disk": "ssd"}), node("y"),
     {"prefers": {"disk": "ssd"}}),
    ("locality", "more of the preferred labels", node("x", labels={"disk": "ssd", "net": "fast"}),
     node("y", labels={"disk": "ssd"}), {"prefers": {"disk": "ssd", "net": "fast"}}),
    ("cost", "the cheaper node", node("x", labels={"cost": "9"}), node("y", labels={"cost": "10"}),
     {}),
    ("warm_image", "the node that has the image", node("x", labels={"image/api-1.2": "warm"}),
     node("y"), {"run": {"image": "API:1.2"}}),
    ("tolerated", "the node that asks nobody to stay away", node("x"),
     node("y", taints=[taint("shape", "gpu", "prefer-no-schedule")]), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "liked", "other", "asked"),
    [(case[0], *case[2:]) for case in LIKED],
    ids=[f"{case[0]}:{case[1]}".replace(" ", "-") for case in LIKED],
)
@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_score_alone_decides(
    name: str, liked: NodeFacts, other: NodeFacts, asked: dict[str, Any], attempt: int
) -> None:
    """Whatever the seed: a preference is never overruled by the dice."""
    world = region(liked, other).weighing(**{name: 1.0})
    proposal = world.decide(request(**{"slots": 1, **asked}, attempt=attempt))
    assert list(places(proposal).values()) == ["x"]
    best, second = proposal.evidence.candidates
    assert best.scores[name] > second.scores[name]


INDIFFERENT: list[tuple[str, NodeFacts, dict[str, Any]]] = [
    ("locality", node("y", labels={"disk": "ssd"}), {}),
    ("cost", node("y", labels={"cost": "10"}), {}),
    ("cost", node("y", labels={"cost": "free"}), {}),
    ("warm_image", node("y", labels={"image/api": "warm"}), {}),
    ("tolerated", node("y", taints=[taint("shape", "gpu", "prefer-no-schedule")]),
     {"tolerations": [{"key": "shape"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "other", "asked"), INDIFFERENT)
def test_a_score_that_sees_no_difference_makes_none(
    name: str, other: NodeFacts, asked: dict[str, Any]
) -> None:
    proposal = region(node("x"), other).weighing(**{name: 1.0}).decide(request(**asked))
    assert [candidate.scores[name] for candidate in proposal.evidence.candidates] == [1.0, 1.0]


def test_a_node_that_hides_its_cost_counts_as_the_dearest() -> None:
    nodes = (
        node("cheap", labels={"cost": "1"}),
        node("dear", labels={"cost": "3"}),
        node("middle", labels={"cost": "2"}),
        node("silent"),
    )
    proposal = region(*nodes).weighing(cost=1.0).decide(request())
    points = {str(each.node): each.scores["cost"] for each in proposal.evidence.candidates}
    assert points == {"cheap": 1.0, "middle": 0.5, "dear": 0.0, "silent": 0.0}


def test_every_score_lies_between_0_and_1() -> None:
    nodes = [
        node(
            f"n{number}",
            zone="abc"[number % 3],
            used=used(cpu=number % 8, memory=number * 5 % 32),
            labels={"cost": str(number)} if number % 2 else {"disk": "ssd"},
            taints=[taint("k", "v", "prefer-no-schedule")] if number % 5 == 0 else [],
        )
        for number in range(40)
    ]
    asked = request(
        slots=[50],
        prefers={"disk": "ssd", "net": "fast"},
        live={number: f"n{number % 7}" for number in range(50)},
        run={"image": "api"},
    )
    working = WorkingSet(region(*nodes).snapshot(), asked)
    candidates, _rejections = filter_nodes(working)
    for score in SCORES:
        points = score(working, np.flatnonzero(candidates))
        assert len(points) == 40
        assert points.min() >= 0, score.name
        assert points.max() <= 1, score.name


def test_a_score_without_weight_is_not_shown() -> None:
    world = region(node("x")).weighing(packing=1.0, cost=0.0)
    (candidate,) = world.decide(request()).evidence.candidates
    assert set(candidate.scores) == {"packing"}


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("api", "image/api"),
        ("Registry.example.com/Team/API:1.2", "image/registry.example.com/team/api-1.2"),
        ("x" * 100, "image/" + "x" * 57),
        ("-api-", "image/api"),
    ],
)
def test_an_image_has_a_label_that_a_node_may_carry(image: str, label: str) -> None:
    assert image_label(image) == label
    assert LabelKey(label) == label

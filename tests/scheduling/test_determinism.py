"""The same inputs give the same proposal: later, elsewhere, and however they came to be."""

import os
import random
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from durable.scheduling.decide import decide
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.region import Snapshot
from tests.scheduling.world import REGION, Region, node, places, region, request, taint
from tests.scheduling.worlds import regions, requests


def mixed() -> Region:
    """Many nodes that differ in everything that sets and dictionaries are made of."""
    nodes = [
        node(
            f"node-{number:03}",
            zone=f"zone-{number % 5}",
            labels={"cost": str(number % 3), "disk": "ssd" if number % 2 else "hdd"},
            taints=[taint(f"own-{number % 4}", "x")] if number % 3 == 0 else [],
            cordoned=number % 7 == 0,
        )
        for number in range(200)
    ]
    return region(*nodes)


def asked_of_mixed() -> PlacementRequest:
    return request(20, prefers={"disk": "ssd"}, spread={"zone_max_skew": 2, "max_per_node": 1})


def as_text(world: Region, asked: PlacementRequest) -> str:
    return world.decide(asked).model_dump_json()


@given(regions(), requests())
def test_the_same_request_has_the_same_proposal(world: Region, asked: PlacementRequest) -> None:
    assert as_text(world, asked) == as_text(
        world, PlacementRequest.model_validate_json(asked.model_dump_json())
    )


@given(regions(), requests(), st.randoms(use_true_random=False))
def test_a_snapshot_that_grew_answers_like_one_that_was_rebuilt(
    world: Region, asked: PlacementRequest, dice: random.Random
) -> None:
    """Nodes come in any order, under other guises, and beside others that leave again."""
    grown = Snapshot.empty(REGION)
    for facts in dice.sample(world.nodes, len(world.nodes)):
        passing = node(f"passing-{facts.node}", zone="z", labels={"gone": "soon"})
        grown.put([passing, node(facts.node, zone="y", labels={"was": "other"})])
        grown.remove([passing.node] if dice.random() < 0.5 else [])
    grown.remove([f"passing-{facts.node}" for facts in world.nodes])
    world.settle(grown, dice.sample(world.nodes, len(world.nodes)))
    proposal = decide(grown, asked, world.policy, policy_revision=1)
    assert proposal.model_dump_json() == as_text(world, asked)


def test_another_process_gives_the_same_answer() -> None:
    script = (
        "from tests.scheduling.test_determinism import as_text, asked_of_mixed, mixed;"
        "import sys; sys.stdout.write(as_text(mixed(), asked_of_mixed()))"
    )
    for seed in ("1", "4242"):
        answer = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout == as_text(mixed(), asked_of_mixed())


def test_another_attempt_chooses_anew_between_equals() -> None:
    world = region(*(node(f"n{number}") for number in range(50)))
    chosen = {places(world.decide(request(attempt=attempt)))[0] for attempt in range(1, 20)}
    assert len(chosen) > 5


def test_a_recorded_choice_is_made_again_by_every_later_version() -> None:
    """Decisions are replayed long after: a change here needs another policy revision."""
    assert list(places(mixed().decide(asked_of_mixed())).values()) == RECORDED


RECORDED = [
    "node-085", "node-151", "node-169", "node-157", "node-073",
    "node-145", "node-079", "node-187", "node-043", "node-061",
    "node-199", "node-163", "node-127", "node-025", "node-031",
    "node-139", "node-037", "node-055", "node-013", "node-121",
]  # fmt: skip

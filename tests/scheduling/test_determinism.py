"""The same inputs give the same proposal: later, elsewhere, and however they came to be."""

import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from durable.model.work.workload import WorkloadSpec
from durable.scheduling.decide import decide
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.working_set import WorkingSet
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


ANSWER = (
    "import sys; from tests.scheduling.test_determinism import two_answers;"
    "sys.stdout.write(two_answers())"
)


def two_answers() -> str:
    return as_text(mixed(), asked_of_mixed()) + as_text(equals(), request())


def equals() -> Region:
    """Many nodes between which no score sees a difference."""
    return region(*(node(f"node-{number:03}") for number in range(500)))


def answered_elsewhere(**environment: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", ANSWER],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout


def test_another_process_gives_the_same_answer() -> None:
    here = two_answers()
    for seed in ("1", "4242"):
        assert answered_elsewhere(PYTHONHASHSEED=seed) == here


def test_another_processor_gives_the_same_answer() -> None:
    """Without the wide instructions that this processor may have: equals are in the same order."""
    wide = " ".join(_wide_instructions())
    assert answered_elsewhere(NPY_DISABLE_CPU_FEATURES=wide) == two_answers()


def _wide_instructions() -> list[str]:
    """What this NumPy would use of this processor, beyond what every processor of its kind has."""
    config: Any = np.show_config(mode="dicts")
    return config["SIMD Extensions"].get("found", [])


def test_equal_candidates_are_shown_by_name_behind_the_chosen_one() -> None:
    proposal = equals().decide(request())
    chosen, *others = [str(each.node) for each in proposal.evidence.candidates]
    assert chosen == places(proposal)[0]
    assert (
        others == [name for name in sorted(f"node-{n:03}" for n in range(5)) if name != chosen][:4]
    )


def test_a_placed_replica_changes_a_node_as_if_it_had_been_there_before() -> None:
    """One node is worked out without arrays, and must not differ in the last bit."""
    dice = random.Random(7)  # noqa: S311 - it must repeat
    for _ in range(300):
        capacity = tuple(dice.choice([0, dice.randrange(1, 2**53)]) for _ in range(3))
        amounts = [dice.randrange(max(1, has // 3)) if has else 0 for has in capacity]
        if not any(amounts):
            continue
        names = ("cpu_millis", "memory_mib", "gpus")
        resources = dict(zip(names, amounts, strict=True))
        asked = request().model_copy(
            update={"spec": WorkloadSpec.model_validate({"replicas": 1, "resources": resources})}
        )
        before = WorkingSet(region(node(capacity=capacity)).snapshot(), asked)
        before.take(0)
        after = WorkingSet(region(node(capacity=capacity, used=tuple(amounts))).snapshot(), asked)
        assert before.filled.tolist() == after.filled.tolist()
        assert before.uneven.tolist() == after.uneven.tolist()


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

"""Time per decision by size of the region, what a snapshot of 50,000 nodes weighs, and collisions.

A mixed fleet, half in use. The bars: from 5,000 to 50,000 nodes a decision takes at most as many
times longer as there are more nodes, and a sample for best-effort work costs no more than looking
at everyone. Times are the shortest of many: a decision waits for nothing, so whatever is longer
than the shortest was somebody else's work on the same machine; the median is printed as well.

Collisions: a hundred workloads decide at once on the same version of an uneven fleet, and commit
one after the other; those whose node is full by then are refused, and decide again on the next
version, until all have a node. Refused commits are counted under the shipped policy and under the
same one without its band, where everybody takes the best node. The bar: a quarter.
"""

import argparse
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bench._report import progress, table, verdict
from durable.model.policy.policy import Policy
from durable.model.resources import at_most, plus
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.decide import decide
from durable.scheduling.policies import first_policy
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.region import NodeFacts, Snapshot

REGION, TENANT = "us-east", "risk"
SMALLEST, SMALL, LARGE = 1_000, 5_000, 50_000
GROUP = 50
CONCURRENT = 100
COLLISION_SIZES = (300, 1_000, 5_000)
COLLISION_BAR = 0.25
LEAST_DECISIONS = 20
NOW = 1_000_000.0

# How many slots are requested at once, and what else the spec says.
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {}),
    "group": (GROUP, {}),
    "spread group": (GROUP, {"spread": {"zone_max_skew": 1, "max_per_node": 1}}),
    "sampled single": (1, {"priority": 0}),
}


def facts(count: int) -> Iterator[NodeFacts]:
    """Three zones; of ten nodes seven general, two for memory, one with gpus and a taint."""
    for number in range(count):
        kind = ("general", "memory", "gpu")[(number % 10 > 6) + (number % 10 > 8)]
        taints = [{"key": "shape", "value": "gpu", "effect": "no-schedule"}]
        yield NodeFacts(
            node=f"node-{number:05}",
            zone=f"zone-{number % 3}",
            pool="general",
            capacity=(64_000, 262_144, 4 if kind == "gpu" else 0),
            used=(number * 7_919 % 64_000, number * 104_729 % 262_144, 0),
            labels={"shape": kind, "cost": str(number % 5)},
            taints=taints if kind == "gpu" else [],
            dedicated_to=None,
            state="ready",
            cordon_reason=None if number % 100 else "maintenance",
            lease_epoch=1,
            lease_expires_at=NOW + 30,
        )


def region(count: int) -> Snapshot:
    snapshot = Snapshot.empty(REGION)
    snapshot.now = NOW
    snapshot.room = (10**12, 10**12, 10**6)
    snapshot.grants = {TENANT: (snapshot.room, (0, 0, 0))}
    snapshot.put(facts(count))
    return snapshot


def request(case: str, attempt: int) -> PlacementRequest:
    slots, wanted = CASES[case]
    spec = WorkloadSpec.model_validate(
        {
            "replicas": slots,
            "resources": {"cpu": 2, "memory": "4Gi"},
            "prefers": {"shape": "general"},
            **wanted,
        }
    )
    return PlacementRequest.model_validate(
        {
            "region": REGION,
            "tenant": TENANT,
            "workload": "api",
            "generation": 1,
            "attempt": attempt,
            "slots": tuple(range(slots)),
            "spec": spec,
        }
    )


class Took(NamedTuple):
    """Milliseconds of one decision."""

    shortest: float
    median: float


def time_decisions(snapshot: Snapshot, case: str, seconds: float) -> Took:
    """Many decisions in a row; the first one, which fills the caches, is not counted."""
    policy, taken = first_policy(), list[float]()
    requests = [request(case, attempt) for attempt in range(1, LEAST_DECISIONS + 1)]
    decide(snapshot, requests[0], policy, policy_revision=1)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(taken) < LEAST_DECISIONS:
        start = time.perf_counter()
        proposal = decide(snapshot, requests[len(taken) % len(requests)], policy, policy_revision=1)
        taken.append((time.perf_counter() - start) * 1_000)
        assert not proposal.unplaced, proposal.pending
    return Took(min(taken), float(np.median(taken)))


def snapshot_mebibytes(count: int) -> tuple[float, float]:
    """What a snapshot holds once it is built, and the most that building it needed."""
    tracemalloc.start()
    snapshot = region(count)
    snapshot.rows_by_name()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(snapshot) == count
    return held / 2**20, peak / 2**20


def renewal_milliseconds(snapshot: Snapshot) -> float:
    leases = {snapshot.name(int(row)): (1, NOW + 60) for row in snapshot.rows_by_name()}
    start = time.perf_counter()
    snapshot.renew(leases)
    return (time.perf_counter() - start) * 1_000


def refused_commits(size: int, policy: Policy) -> int:
    """How many commits of a hundred workloads, which all decide at once, are refused in all."""
    snapshot, nodes = region(size), {each.node: each for each in facts(size)}
    waiting = [
        request("single", 1).model_copy(update={"workload": f"workload-{number}"})
        for number in range(CONCURRENT)
    ]
    refused = 0
    for _ in range(CONCURRENT):
        proposed = [(one, decide(snapshot, one, policy, policy_revision=1)) for one in waiting]
        waiting = list[PlacementRequest]()
        for one, proposal in proposed:
            node = nodes[proposal.assignments[0].node]
            used = plus(node.used, one.spec.resources.amounts)
            if at_most(used, node.capacity):
                nodes[node.node] = replace(node, used=used)
            else:
                waiting.append(one.model_copy(update={"attempt": one.attempt + 1}))
        refused += len(waiting)
        snapshot.put(nodes.values())
    assert not waiting
    return refused


def collisions() -> dict[int, tuple[int, int]]:
    """By size of the region: refused commits without the band, and with it."""
    shipped = first_policy()
    without = shipped.model_copy(update={"choice_band": 0.0})
    counted: dict[int, tuple[int, int]] = {}
    for size in COLLISION_SIZES:
        counted[size] = refused_commits(size, without), refused_commits(size, shipped)
        progress(
            f"{size:,} nodes: {counted[size][0]:,} refused without band, {counted[size][1]:,} with"
        )
    return counted


def measure(sizes: Sequence[int], seconds: float) -> dict[str, dict[int, Took]]:
    times: dict[str, dict[int, Took]] = {case: {} for case in CASES}
    for size in sizes:
        progress(f"building {size:,} nodes")
        snapshot = region(size)
        for case in CASES:
            took = times[case][size] = time_decisions(snapshot, case, seconds)
            progress(f"{size:,} nodes, {case}: {took.shortest:.2f} ms, median {took.median:.2f}")
    return times


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=LARGE, help="of the largest region")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case and size")
    return parser.parse_args()


def main() -> int:
    wanted = arguments()
    large: int = wanted.nodes
    sizes = (SMALLEST, SMALL, large)
    times = measure(sizes, wanted.seconds)
    held, peak = snapshot_mebibytes(large)
    renewal = renewal_milliseconds(region(large))
    growth = {case: each[large].shortest / each[SMALL].shortest for case, each in times.items()}
    single, group, sampled = times["single"], times["group"], times["sampled single"]
    group_ratio = {size: group[size].shortest / (GROUP * single[size].shortest) for size in sizes}
    sampled_ratio = sampled[large].shortest / single[large].shortest
    refused = collisions()
    collision_ratio = {size: with_band / without for size, (without, with_band) in refused.items()}
    holds = (
        max(growth.values()) <= large / SMALL
        and sampled_ratio <= 1
        and max(collision_ratio.values()) <= COLLISION_BAR
    )
    table(
        "Milliseconds per decision: shortest (median)",
        ("case", *(f"{size:,} nodes" for size in sizes), f"times {SMALL:,} at {large:,}"),
        [
            (case, *(f"{t.shortest:.2f} ({t.median:.2f})" for t in each.values()), growth[case])
            for case, each in times.items()
        ],
    )
    table(
        f"Refused commits of {CONCURRENT} workloads that decide at once",
        ("nodes", "everybody takes the best", "within the band", "ratio"),
        [(f"{size:,}", *refused[size], collision_ratio[size]) for size in refused],
    )
    verdict(
        "decision",
        {"single_slot_5000_nodes_ms": round(single[SMALL].shortest, 3)},
        {
            "milliseconds": {
                case: {size: [round(t, 3) for t in took] for size, took in each.items()}
                for case, each in times.items()
            },
            f"growth_{SMALL}_to_{large}": {case: round(ratio, 2) for case, ratio in growth.items()},
            "bar": large / SMALL,
            "group_to_single_slots": {size: round(each, 4) for size, each in group_ratio.items()},
            f"sampled_to_all_at_{large}": round(sampled_ratio, 3),
            "refused_commits": {size: list(each) for size, each in refused.items()},
            "refused_ratio": {size: round(each, 3) for size, each in collision_ratio.items()},
            "refused_bar": COLLISION_BAR,
            f"renewal_of_{large}_leases_ms": round(renewal, 1),
            f"snapshot_{large}_nodes_mib": {"held": round(held, 1), "peak": round(peak, 1)},
        },
        holds=holds,
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

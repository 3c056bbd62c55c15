"""Generated regions and requests: small, and each strange in a few ways only.

If everything could be wrong at once, nothing would ever be placed and nothing be tested.
"""

from typing import Any

from hypothesis import strategies as st

from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.region import NodeFacts
from tests.scheduling.world import EPOCH, NOW, Region, avoiding, node, request, taint, used

ZONES = ["a", "b", "c"]
NAMES = [f"n{number}" for number in range(8)]
MARKS = [taint("shape", "gpu"), taint("shape", "gpu", "prefer-no-schedule"), taint("own", "x")]
AMOUNTS = st.builds(used, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))

NONE: dict[str, Any] = {}
ORDINARY = st.just(NONE)

# What may be strange about a node, about a region and about a request.
NODES: dict[str, st.SearchStrategy[Any]] = {
    "used": st.builds(used, st.integers(0, 6), st.integers(0, 6), st.integers(0, 2)),
    "unhealthy_gpus": st.integers(1, 2),
    "labels": st.sampled_from([{"disk": "ssd"}, {"disk": "hdd", "cost": "3"}, {"cost": "1"}]),
    "taints": st.lists(st.sampled_from(MARKS), min_size=1, max_size=2),
    "dedicated_to": st.sampled_from(["risk", "billing"]),
    "ready": st.just(False),
    "cordoned": st.just(True),
    "lease_epoch": st.sampled_from([EPOCH - 1, EPOCH + 1, None]),
    "lease_expires_at": st.sampled_from([NOW, NOW - 1, None]),
}
REGIONS: dict[str, st.SearchStrategy[Any]] = {
    "grant": st.none() | AMOUNTS,
    "in_use": AMOUNTS,
    "room": AMOUNTS,
}
SKEW = st.none() | st.integers(1, 2)
REQUESTS: dict[str, st.SearchStrategy[Any]] = {
    "cpu": st.integers(0, 3),
    "memory": st.integers(1, 3),
    "gpus": st.just(1),
    "priority": st.just(0),
    "attempt": st.integers(1, 9),
    "overrides": st.lists(
        st.sampled_from([avoiding(zone) for zone in (*ZONES, "z")]), max_size=2, unique=True
    ),
    "spread": st.fixed_dictionaries(
        {"zone_max_skew": SKEW, "node_max_skew": SKEW, "max_per_node": SKEW}
    ),
    "live": st.dictionaries(st.integers(10, 15), st.sampled_from(NAMES), max_size=6),
    "crashes": st.dictionaries(st.integers(0, 9), st.sampled_from(NAMES), max_size=6),
    "requirements": st.one_of(
        st.fixed_dictionaries({"regions": st.sampled_from([("us-east",), ("eu-central",)])}),
        st.fixed_dictionaries({"zones": st.sampled_from([("a",), ("a", "b")])}),
        st.just({"labels": {"disk": "ssd"}}),
        st.just({"dedicated": True}),
    ),
    "tolerations": st.sampled_from([[{"key": "shape"}], [{"key": "own", "value": "x"}]]),
    "prefers": st.just({"disk": "ssd"}),
}
# How replicas of one workload get into each other's way, all at once.
COMPANY = {way: REQUESTS[way] for way in ("spread", "live", "crashes")}
# Preferences that pull away from every constraint, beside those of the first policy.
WEIGHTS = st.sampled_from([None, {"packing": 1.0}, {"cost": 1.0, "packing": 0.5}])


@st.composite
def strange(draw: st.DrawFn, ways: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """Some of the ways, with their values."""
    chosen = draw(st.lists(st.sampled_from(sorted(ways)), unique=True, max_size=4))
    return {way: draw(ways[way]) for way in chosen}


@st.composite
def nodes(draw: st.DrawFn, name: str, ways: dict[str, st.SearchStrategy[Any]]) -> NodeFacts:
    facts = draw(ORDINARY | strange(ways)) if ways else NONE
    cpu, memory, gpus = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 2))
    zone = draw(st.sampled_from(ZONES))
    made = node(name, zone=zone, cpu=cpu, memory=memory, gpus=gpus, **facts)
    cpu_millis, memory_mib, gpus = map(min, made.used, made.capacity)
    unhealthy = min(made.unhealthy_gpus, made.capacity[2] - gpus)
    return node(
        name,
        **{**facts, "used": (cpu_millis, memory_mib, gpus), "unhealthy_gpus": unhealthy},
        zone=zone,
        capacity=made.capacity,
    )


@st.composite
def regions(draw: st.DrawFn) -> Region:
    count, ways = draw(st.integers(1, len(NAMES))), draw(st.sampled_from([NONE, NODES]))
    made = Region(
        nodes=tuple(draw(nodes(name, ways)) for name in NAMES[:count]),
        **draw(ORDINARY | strange(REGIONS)),
    ).sampling(draw(st.sampled_from([2, 200])))
    weights = draw(WEIGHTS)
    return made if weights is None else made.weighing(**weights)


@st.composite
def requests(draw: st.DrawFn, **fixed: Any) -> PlacementRequest:
    """What is `fixed` is as it says, whatever else is strange."""
    slots = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True))
    values = {**draw(st.fixed_dictionaries(COMPANY) | strange(REQUESTS)), **fixed}
    replicas = len(slots) + len(values.get("live", {}))
    together: dict[str, Any] = draw(
        st.sampled_from([{}, {}, {}, {"all_or_nothing": True}, {"minimum": replicas - 1 or 1}])
    )
    return request(slots, replicas=replicas, **{**together, **values})


PLAIN: dict[str, Any] = {"spread": {}, "live": {}, "crashes": {}}

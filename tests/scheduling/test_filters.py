"""Each reason to refuse a node: what it lets through, what it does not, and in which words."""

from typing import Any

import pytest

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters import FILTERS
from durable.scheduling.snapshot.region import NodeFacts
from tests.scheduling.world import (
    NOW,
    avoiding,
    node,
    override,
    places,
    region,
    rejected,
    request,
    said,
    taint,
    used,
)

GPU_TAINT = taint("shape", "gpu")

# A node, a request that it may not take, the words, and what the request waits for.
REFUSED: list[tuple[str, NodeFacts, dict[str, Any], str, PendingCode]] = [
    ("a region outside its residency", node(), {"requirements": {"regions": ["eu-central"]}},
     "region us-east outside its residency", PendingCode.REQUIREMENTS),
    ("a zone outside its residency", node(zone="b"), {"requirements": {"zones": ["a", "c"]}},
     "zone b outside its residency", PendingCode.REQUIREMENTS),
    ("a node kept for another tenant", node(dedicated_to="billing"), {},
     "kept for billing", PendingCode.REQUIREMENTS),
    ("a node kept for another, whoever asks for his own", node(dedicated_to="billing"),
     {"requirements": {"dedicated": True}}, "kept for billing", PendingCode.REQUIREMENTS),
    ("a shared node for work that shares none", node(), {"requirements": {"dedicated": True}},
     "shared, not dedicated", PendingCode.REQUIREMENTS),
    ("a node without a required label", node(labels={"disk": "ssd"}),
     {"requirements": {"labels": {"disk": "ssd", "shape": "gpu"}}},
     "label shape=gpu missing", PendingCode.REQUIREMENTS),
    ("a required label with another value", node(labels={"disk": "hdd"}),
     {"requirements": {"labels": {"disk": "ssd"}}},
     "label disk=ssd missing", PendingCode.REQUIREMENTS),
    ("a node that has too little cpu in all", node(cpu=8), {"cpu": 9},
     "too small for 9 cpu", PendingCode.NEVER_FITS),
    ("a node that has too little memory in all", node(memory=32), {"memory": 33},
     "too small for 33Gi memory", PendingCode.NEVER_FITS),
    ("a node without gpus", node(), {"gpus": 1}, "too small for 1 gpu", PendingCode.NEVER_FITS),
    ("a taint that is not tolerated", node(taints=[GPU_TAINT]), {},
     "taint shape=gpu", PendingCode.TAINTED),
    ("a taint of which another value is tolerated", node(taints=[GPU_TAINT]),
     {"tolerations": [{"key": "shape", "value": "memory"}]},
     "taint shape=gpu", PendingCode.TAINTED),
    ("a taint of which another effect is tolerated", node(taints=[GPU_TAINT]),
     {"tolerations": [{"key": "shape", "effect": "prefer-no-schedule"}]},
     "taint shape=gpu", PendingCode.TAINTED),
    ("a zone that is avoided", node(zone="b"), {"overrides": [avoiding("b")]},
     "closed by override o-1 until 14:46:40Z", PendingCode.NODES_UNAVAILABLE),
    ("a node that is avoided", node(), {"overrides": [override(avoid_nodes=["n1"])]},
     "closed by override o-1 until 14:46:40Z", PendingCode.NODES_UNAVAILABLE),
    ("a node outside the zone it is pinned to", node(), {"overrides": [override(only_zone="b")]},
     "closed by override o-1 until 14:46:40Z", PendingCode.NODES_UNAVAILABLE),
    ("a node that is not the one it is pinned to", node(), {"overrides": [override(only_node="x")]},
     "closed by override o-1 until 14:46:40Z", PendingCode.NODES_UNAVAILABLE),
    ("a node that is not ready", node(ready=False), {}, "not ready", PendingCode.NODES_UNAVAILABLE),
    ("a cordoned node", node(cordoned=True), {}, "cordoned", PendingCode.NODES_UNAVAILABLE),
    ("a node whose lease ends now", node(lease_expires_at=NOW), {},
     "lease expired", PendingCode.NODES_UNAVAILABLE),
    ("a node that never had a lease", node(lease_epoch=None, lease_expires_at=None), {},
     "lease expired", PendingCode.NODES_UNAVAILABLE),
    ("a node with a lease of an older epoch", node(lease_epoch=2), {},
     "not back since the fence", PendingCode.NODES_UNAVAILABLE),
    ("too little free cpu", node(used=used(cpu=8)), {},
     "insufficient cpu", PendingCode.CAPACITY),
    ("too little free memory", node(used=used(memory=32)), {},
     "insufficient memory", PendingCode.CAPACITY),
    ("too few free gpus", node(gpus=4, used=used(gpus=3)), {"gpus": 2},
     "insufficient gpu", PendingCode.CAPACITY),
    ("too few healthy gpus", node(gpus=4, used=used(gpus=1), unhealthy_gpus=2), {"gpus": 2},
     "too few healthy gpus", PendingCode.CAPACITY),
    ("a node with all the replicas that it may have", node(),
     {"live": {7: "n1"}, "spread": {"max_per_node": 1}},
     "at its 1 per node", PendingCode.SPREAD),
    ("the node where the slot has crashed", node(), {"crashes": {0: "n1"}},
     "it crashed there, avoided until 13:47:40Z", PendingCode.CRASHED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "asked", "words", "code"),
    [case[1:] for case in REFUSED],
    ids=[case[0].replace(" ", "-") for case in REFUSED],
)
def test_a_node_is_refused_in_words(
    facts: NodeFacts, asked: dict[str, Any], words: str, code: PendingCode
) -> None:
    proposal = region(facts).decide(request(**asked))
    assert proposal.assignments == ()
    assert rejected(proposal) == {words: 1}
    assert proposal.pending is not None
    assert proposal.pending.code is code
    assert f"1 of 1 nodes: 1 {words}" in said(proposal)


# A node and a request that is just right for it.
ALLOWED: list[tuple[str, NodeFacts, dict[str, Any]]] = [
    ("its region and zone named", node(),
     {"requirements": {"regions": ["us-east"], "zones": ["a"]}}),
    ("its own node", node(dedicated_to="risk"), {}),
    ("its own node asked for", node(dedicated_to="risk"), {"requirements": {"dedicated": True}}),
    ("the labels required, and more", node(labels={"disk": "ssd", "cpu": "new"}),
     {"requirements": {"labels": {"disk": "ssd"}}}),
    ("exactly the whole node", node(gpus=1), {"cpu": 8, "memory": 32, "gpus": 1}),
    ("exactly what is free", node(used=used(cpu=7, memory=31)), {}),
    ("as many healthy gpus as are asked for", node(gpus=4, unhealthy_gpus=2), {"gpus": 2}),
    ("gpus that are not healthy and not asked for", node(gpus=1, unhealthy_gpus=1), {}),
    ("full of what is not asked for", node(gpus=1, used=used(gpus=1)), {}),
    ("a taint tolerated by key", node(taints=[GPU_TAINT]), {"tolerations": [{"key": "shape"}]}),
    ("a taint tolerated by all it says", node(taints=[GPU_TAINT]),
     {"tolerations": [{"key": "shape", "value": "gpu", "effect": "no-schedule"}]}),
    ("a taint that only asks", node(taints=[taint("shape", "gpu", "prefer-no-schedule")]), {}),
    ("a cordoned node, past the gate", node(cordoned=True),
     {"overrides": [override(skips=["cordon"])]}),
    ("an avoided zone, past the gate", node(zone="b"),
     {"overrides": [avoiding("b"), override("o-2", skips=["avoided"])]}),
    ("the node it is pinned to", node(), {"overrides": [override(only_node="n1", only_zone="a")]}),
    ("another node avoided", node(), {"overrides": [override(avoid_nodes=["n2"])]}),
    ("another zone avoided", node(), {"overrides": [avoiding("b")]}),
    ("room for one more replica", node(), {"live": {7: "n1"}, "spread": {"max_per_node": 2}}),
    ("a crash of another slot", node(), {"crashes": {7: "n1"}}),
    ("a crash on another node", node(), {"crashes": {0: "n2"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "asked"),
    [case[1:] for case in ALLOWED],
    ids=[case[0].replace(" ", "-") for case in ALLOWED],
)
def test_a_node_is_feasible(facts: NodeFacts, asked: dict[str, Any]) -> None:
    proposal = region(facts).decide(request(**asked))
    assert places(proposal) == {0: "n1"}
    assert proposal.pending is None
    assert proposal.evidence.rejections == ()


def test_a_fenced_region_refuses_every_node() -> None:
    proposal = region(node("n1"), node("n2"), is_open=False).decide(request())
    assert rejected(proposal) == {"region fenced": 2}
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.REGION_FENCED


def test_a_node_counts_once_under_the_first_reason() -> None:
    proposal = region(
        node("n1", cordoned=True, used=used(cpu=8)),
        node("n2", used=used(cpu=8)),
        node("n3", taints=[GPU_TAINT], cordoned=True),
        node("n4"),
    ).decide(request())
    assert rejected(proposal) == {"taint shape=gpu": 1, "cordoned": 1, "insufficient cpu": 1}
    assert proposal.evidence.feasible == 1
    assert proposal.evidence.nodes == 4


def test_a_zone_that_is_ahead_is_refused() -> None:
    nodes = (node("n1", zone="a"), node("n2", zone="b", used=used(cpu=8)))
    asked = request(slots=[1], live={0: "n1"}, spread={"zone_max_skew": 1})
    assert rejected(region(*nodes).decide(asked)) == {
        "zone a at its skew of 1": 1,
        "insufficient cpu": 1,
    }


def test_a_node_that_is_ahead_is_refused() -> None:
    nodes = (node("n1"), node("n2", used=used(cpu=8)))
    asked = request(slots=[1], live={0: "n1"}, spread={"node_max_skew": 1})
    assert rejected(region(*nodes).decide(asked)) == {
        "at its node skew of 1": 1,
        "insufficient cpu": 1,
    }


def test_many_particulars_are_summed_up() -> None:
    nodes = [node(f"n{number:02}", taints=[taint("own", f"t{number:02}")]) for number in range(20)]
    account = rejected(region(*nodes).decide(request()))
    assert account["taint of other kinds"] == 12
    assert sum(account.values()) == 20


def test_every_reason_has_a_code_in_the_one_list() -> None:
    assert [each.code for each in FILTERS] == [
        "region_fenced", "residency", "residency", "tenancy", "required_labels", "never_fits",
        "taint", "override", "not_ready", "cordoned", "stale", "insufficient_cpu",
        "insufficient_memory", "insufficient_gpu", "unhealthy_devices", "max_per_node", "crashed",
        "zone_skew", "node_skew",
    ]  # fmt: skip

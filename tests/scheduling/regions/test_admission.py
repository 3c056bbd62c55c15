"""Admission asks only what lasts: what could never run is refused, what must wait is let in."""

from typing import Any

import pytest

from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode
from durable.scheduling.regions.admission import why_never
from durable.scheduling.snapshot.region import NodeFacts, Snapshot
from tests.scheduling.world import FULL, node, spec, taint

RISK, API = TenantId("risk"), WorkloadName("api")


def ask(*nodes: NodeFacts, **requested: Any) -> Refusal | None:
    kinds = Snapshot.empty("us-east")
    kinds.put(nodes)
    return why_never(kinds, RISK, API, spec(**requested))


@pytest.mark.parametrize(
    "facts",
    [
        node(),
        node(used=FULL),
        node(cordoned=True),
        node(ready=False),
        node(lease_epoch=None, lease_expires_at=None),
    ],
)
def test_what_passes_speaks_against_nobody(facts: NodeFacts) -> None:
    assert ask(facts) is None


def test_one_node_that_could_take_it_is_enough() -> None:
    assert ask(node("n1", cpu=1), node("n2", cpu=4), cpu=4) is None


def test_a_region_without_nodes_refuses_nothing() -> None:
    assert ask(cpu=4) is None


def test_the_largest_node_that_it_may_use_is_named() -> None:
    never = ask(
        node("n1", cpu=4),
        node("n2", cpu=6),
        node("n3", cpu=9, dedicated_to="billing"),
        cpu=8,
    )
    assert never is not None
    assert never.code is RefusalCode.NEVER_FITS
    assert never.sentence == (
        "No node in us-east can take risk/api, which needs 8 cpu; the largest has 6 cpu "
        "(3 of 3 kinds of node: 2 too small for 8 cpu, 1 kept for billing); "
        "request less, or add larger nodes."
    )


@pytest.mark.parametrize(
    ("kept_out", "requested", "code"),
    [
        (node(taints=[taint("shape", "gpu")]), {}, RefusalCode.TAINTED),
        (node(dedicated_to="billing"), {}, RefusalCode.TENANCY),
        (node(), {"requirements": {"labels": {"disk": "ssd"}}}, RefusalCode.REQUIRED_LABELS),
        (node(), {"requirements": {"zones": ["b"]}}, RefusalCode.RESIDENCY),
        (node(), {"requirements": {"regions": ["us-west"]}}, RefusalCode.RESIDENCY),
        (node(), {"cpu": 9}, RefusalCode.NEVER_FITS),
    ],
)
def test_the_code_says_what_keeps_it_out(
    kept_out: NodeFacts, requested: dict[str, Any], code: RefusalCode
) -> None:
    never = ask(kept_out, **requested)
    assert never is not None
    assert never.code is code

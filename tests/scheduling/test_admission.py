"""Admission asks only what lasts: what could never run is refused, what must wait is let in."""

from typing import Any

import pytest

from durable.model.ids import TenantId, WorkloadName
from durable.model.pending import Pending, PendingCode
from durable.scheduling.admission import why_never
from durable.scheduling.snapshot.region import NodeFacts, Snapshot
from tests.scheduling.world import FULL, node, spec, taint

RISK, API = TenantId("risk"), WorkloadName("api")


def ask(*regions: tuple[str, list[NodeFacts]], **wishes: Any) -> Pending | None:
    snapshots = list[Snapshot]()
    for name, nodes in regions:
        snapshot = Snapshot.empty(name)
        snapshot.put(nodes)
        snapshots.append(snapshot)
    return why_never(snapshots, RISK, API, spec(**wishes))


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
    assert ask(("us-east", [facts])) is None


def test_one_region_where_it_could_run_is_enough() -> None:
    assert ask(("us-east", [node(cpu=1)]), ("us-west", [node(cpu=4)]), cpu=4) is None


def test_regions_without_nodes_say_nothing() -> None:
    assert ask(("us-east", []), cpu=4) is None


def test_the_largest_node_of_all_regions_is_named() -> None:
    never = ask(
        ("us-east", [node("n1", cpu=4), node("n2", cpu=2)]),
        ("us-west", [node("n1", cpu=6)]),
        ("eu-central", [node("n1", cpu=9)]),
        cpu=8,
        requirements={"regions": ["us-east", "us-west"]},
    )
    assert never is not None
    assert never.code is PendingCode.NEVER_FITS
    assert never.sentence == (
        "No node for risk/api; none it may use could ever hold 8 cpu, the largest has 6 cpu; "
        "4 of 4 nodes: 3 too small for 8 cpu, 1 region eu-central outside its residency; "
        "ask for less, or add larger nodes."
    )


def test_a_taint_everywhere_is_named() -> None:
    never = ask(("us-east", [node(taints=[taint("shape", "gpu")])]))
    assert never is not None
    assert never.code is PendingCode.TAINTED

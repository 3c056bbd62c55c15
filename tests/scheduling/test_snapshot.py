"""A snapshot is kept up to date in place, and says when something may have become possible."""

import numpy as np
import pytest

from durable.scheduling.snapshot.region import NodeFacts, Snapshot
from tests.scheduling.world import EPOCH, FULL, NOW, node, places, region, rejected, request, used


def test_nodes_are_added_replaced_and_removed() -> None:
    world = region(node("n1", used=FULL), node("n2", used=FULL))
    snapshot = world.snapshot()
    assert len(snapshot) == 2
    snapshot.put([node("n2")])
    assert len(snapshot) == 2
    snapshot.remove(["n1", "never-here"])
    assert len(snapshot) == 1
    assert snapshot.row("n1") is None


def test_a_removed_node_takes_no_work_and_its_row_is_used_again() -> None:
    snapshot = region(node("n1"), node("n2")).snapshot()
    rows = len(snapshot.columns)
    snapshot.remove(["n1"])
    snapshot.put([node("n3", cordoned=True)])
    assert len(snapshot.columns) == rows
    assert [snapshot.name(int(row)) for row in snapshot.rows_by_name()] == ["n2", "n3"]


# What was there, what replaces it, and whether those who wait should look again.
NEWS = [
    ("the same again", node(), node(), False),
    ("less free", node(), node(used=used(cpu=1)), False),
    ("more free", node(used=used(cpu=1)), node(), True),
    ("more of one and less of another", node(used=used(cpu=1)), node(used=used(memory=9)), True),
    ("larger", node(cpu=8), node(cpu=9), True),
    ("ready", node(ready=False), node(), True),
    ("not ready any more", node(), node(ready=False), False),
    ("uncordoned", node(cordoned=True), node(), True),
    ("cordoned", node(), node(cordoned=True), False),
    ("back with a lease", node(lease_expires_at=NOW - 1), node(), True),
    ("a longer lease", node(), node(lease_expires_at=NOW + 60), False),
    ("another label", node(), node(labels={"disk": "ssd"}), True),
    ("no taint any more", node(taints=[{"key": "k", "value": "v", "effect": "no-schedule"}]),
     node(), True),
    ("given to a tenant", node(), node(dedicated_to="risk"), True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [case[1:] for case in NEWS],
    ids=[case[0].replace(" ", "-") for case in NEWS],
)
def test_a_put_says_whether_waiting_work_may_have_better_luck(
    before: NodeFacts, after: NodeFacts, is_news: bool
) -> None:
    snapshot = region(before).snapshot()
    assert snapshot.put([after]) is is_news


def test_a_new_node_is_news_and_nothing_is_none() -> None:
    snapshot = Snapshot.empty("us-east")
    assert snapshot.put([]) is False
    assert snapshot.put([node("n1", used=FULL)]) is True


def test_every_node_of_a_put_is_written_whatever_the_first_one_says() -> None:
    world = region(node("n1", used=FULL), node("n2", used=FULL))
    snapshot = world.snapshot()
    snapshot.put([node("n1"), node("n2")])
    assert (snapshot.columns.used == 0).all()


def test_leases_are_renewed_and_unknown_nodes_passed_over() -> None:
    snapshot = region(node("n1"), node("n2", lease_expires_at=NOW - 5)).snapshot()
    assert snapshot.renew({"n1": (EPOCH, NOW + 60), "n9": (EPOCH, NOW + 60)}) is False
    assert snapshot.renew({"n2": (EPOCH - 1, NOW + 60)}) is False
    assert snapshot.renew({"n2": (EPOCH, NOW + 60)}) is True
    both = np.array([EPOCH, EPOCH]), np.array([NOW + 90, NOW - 90])
    assert snapshot.renew_many(["n1", "n2"], *both) is False
    fresh = {snapshot.name(row): bool(snapshot.fresh()[row]) for row in range(2)}
    assert fresh == {"n1": True, "n2": False}


def test_a_decision_leaves_the_snapshot_as_it_was() -> None:
    world = region(node("n1"), node("n2", zone="b"))
    snapshot = world.snapshot()
    free = (snapshot.columns.capacity - snapshot.columns.used).copy()
    assert len(places(world.decide(request(9)))) == 9
    assert (snapshot.columns.capacity - snapshot.columns.used == free).all()


def test_labels_that_change_for_ever_do_not_fill_the_memory() -> None:
    snapshot = region(node("n1", labels={"disk": "ssd"}), node("gone")).snapshot()
    snapshot.remove(["gone"])
    for number in range(5_000):
        snapshot.put([node("n2", labels={"build": str(number)})])
    assert len(snapshot.label_sets) < 2_000
    assert snapshot.put([node("n1", labels={"disk": "ssd"})]) is False
    assert snapshot.put([node("n2", labels={"build": "4999"})]) is False


def test_an_empty_region_waits_for_nodes() -> None:
    proposal = region().decide(request())
    assert rejected(proposal) == {}
    assert proposal.pending is not None
    assert proposal.pending.sentence == "us-east has no nodes; wait for their agents, or add nodes."

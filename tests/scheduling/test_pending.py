"""What work waits for: one reason, a sentence with numbers, and whether waiting helps at all."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.model.ids import NodeId
from durable.model.placement.claims import Crash
from durable.model.placement.pending import show_rejections
from durable.model.placement.pending_reasons import PendingCode, Rejection
from tests.scheduling.world import POLICY, Region, node, places, region, request, said, taint, used


def code(world: Region, **asked: Any) -> PendingCode:
    pending = world.decide(request(**asked)).pending
    assert pending is not None
    return pending.code


def test_a_grant_lets_as_many_slots_through_as_it_covers() -> None:
    proposal = region(node(), grant=used(cpu=5, memory=9), in_use=used(cpu=3)).decide(request(4))
    assert list(places(proposal)) == [0, 1]
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.GRANT
    assert said(proposal) == (
        "Tenant risk has 2 cpu, 9Gi of its grant left in us-east, which is enough for 2 of 4 slots "
        "of 1 cpu, 1Gi; grant that it does not use in other regions moves here by itself; if none "
        "comes, use less or raise its quota."
    )
    assert proposal.evidence.grant_before == used(cpu=2, memory=9)
    assert proposal.evidence.grant_after == used(cpu=0, memory=7)


def test_a_grant_that_shrank_below_its_use_lets_nothing_through() -> None:
    proposal = region(node(), grant=used(cpu=1, memory=1), in_use=used(cpu=3)).decide(request(1))
    assert places(proposal) == {}
    assert "has 0 cpu, 1Gi of its grant left" in said(proposal)


def test_a_tenant_without_a_grant_needs_one() -> None:
    proposal = region(node(), grant=None).decide(request())
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.NO_GRANT
    assert not proposal.pending.waiting_helps
    assert proposal.evidence.grant_before is None


def test_headroom_is_left_to_recovery() -> None:
    world = region(node(), room=used(cpu=1, memory=9))
    proposal = world.decide(request(2))
    assert list(places(proposal)) == [0]
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.HEADROOM
    assert "us-east has 1 cpu, 9Gi left beside what is kept for recovery" in said(proposal)


def test_recovery_passes_the_headroom() -> None:
    draw = {"budget": "recovery", "incident": "inc-1"}
    world = region(node(), room=(0, 0, 0))
    assert len(places(world.decide(request(2, draw=draw)))) == 2


def test_the_tighter_gate_is_named() -> None:
    world = region(node(), grant=used(cpu=3, memory=9), room=used(cpu=2, memory=9))
    assert code(world, slots=5) is PendingCode.HEADROOM
    assert code(world.but(room=used(cpu=4, memory=9)), slots=5) is PendingCode.GRANT


@pytest.mark.parametrize(
    ("world", "named"),
    [
        (region(node(), room=(0, 0, 0), is_open=False), PendingCode.REGION_FENCED),
        (region(node(), grant=(0, 0, 0), is_open=False), PendingCode.REGION_FENCED),
        (region(node(ready=False), room=(0, 0, 0)), PendingCode.NODES_UNAVAILABLE),
        (region(node(ready=False), grant=(0, 0, 0)), PendingCode.GRANT),
        (region(node(), node("n2", ready=False), room=(0, 0, 0)), PendingCode.HEADROOM),
    ],
)
def test_a_region_without_nodes_says_that_and_not_that_it_has_no_room(
    world: Region, named: PendingCode
) -> None:
    assert code(world, slots=2) is named


def test_nodes_that_run_out_before_the_grant_does_are_named() -> None:
    assert code(region(node(cpu=2), grant=used(cpu=3, memory=9)), slots=5) is PendingCode.CAPACITY


def test_what_never_fits_says_so_even_without_a_grant_to_spend() -> None:
    world = region(node(), grant=(0, 0, 0))
    assert code(world, cpu=99) is PendingCode.NEVER_FITS
    assert code(world, cpu=1) is PendingCode.GRANT


@pytest.mark.parametrize(
    ("asked", "lacking"),
    [
        ({"cpu": 17}, "17 cpu; the largest has 16 cpu"),
        ({"memory": 99}, "99Gi memory; the largest has 64Gi memory"),
        ({"gpus": 3}, "3 gpu; the largest has 2 gpu"),
        ({"cpu": 16, "gpus": 2}, "16 cpu, 1Gi, 2 gpu at once"),
    ],
)
def test_what_never_fits_is_named_with_the_largest_there_is(
    asked: dict[str, int], lacking: str
) -> None:
    world = region(
        node("n1", cpu=16, memory=64),
        node("n2", cpu=8, memory=64, gpus=2),
        node("n3", cpu=99, memory=999, gpus=9, dedicated_to="billing"),
    )
    proposal = world.decide(request(**asked))
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.NEVER_FITS
    assert f"risk/api, which needs {lacking} (3 of 3 nodes:" in said(proposal)


def test_a_toleration_is_advised_when_only_tainted_nodes_are_large_enough() -> None:
    world = region(node("n1"), node("n2", gpus=4, taints=[taint("shape", "gpu")]))
    assert code(world, gpus=1) is PendingCode.TAINTED


def test_what_waiting_can_mend_comes_before_what_it_cannot() -> None:
    lasting = [node("n1", taints=[taint("k", "v")]), node("n2", cpu=1)]
    assert code(region(*lasting), cpu=2) is PendingCode.TAINTED
    assert code(region(*lasting, node("n3", cordoned=True)), cpu=2) is PendingCode.NODES_UNAVAILABLE
    full = node("n4", used=used(cpu=8))
    assert code(region(*lasting, node("n3", cordoned=True), full), cpu=2) is PendingCode.CAPACITY


def test_a_gang_that_never_fits_says_that_instead() -> None:
    assert code(region(node()), slots=3, cpu=99, all_or_nothing=True) is PendingCode.NEVER_FITS
    assert code(region(node(), is_open=False), slots=3, all_or_nothing=True) is (
        PendingCode.REGION_FENCED
    )


def test_the_account_reads_like_this() -> None:
    lines = [
        Rejection(code="taint", nodes=1_981, words="taint dedicated=billing"),
        Rejection(code="insufficient_gpu", nodes=3_000, words="insufficient gpu"),
    ]
    assert show_rejections(lines, 5_000) == (
        "4,981 of 5,000 nodes: 3,000 insufficient gpu, 1,981 taint dedicated=billing"
    )


def test_a_sentence_stays_short_whatever_the_names() -> None:
    long = "x" * 63
    nodes = [
        node(f"n{number}", taints=[taint(long[:61] + f"{number:02}", long)]) for number in range(30)
    ]
    proposal = region(*nodes).decide(request(9, all_or_nothing=True))
    assert len(said(proposal)) <= 500
    assert "for other reasons" in said(proposal)


def test_a_slot_that_crashed_everywhere_says_until_when_each_node_is_avoided() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    ban = timedelta(seconds=POLICY.crash_pair_seconds)
    crashes = tuple(
        Crash(slot=0, node=NodeId(name), at=noon + timedelta(seconds=seconds) - ban)
        for name, seconds in (("n1", 5), ("n2", 7))
    )
    asked = request().model_copy(update={"crashes": crashes})
    assert said(region(node("n1"), node("n2")).decide(asked)) == (
        "No node in us-east can take 1 of 1 slots of risk/api (2 of 2 nodes: 1 it crashed there, "
        "avoided until 12:00:05Z, 1 it crashed there, avoided until 12:00:07Z); wait until it may "
        "go back there, or add nodes."
    )

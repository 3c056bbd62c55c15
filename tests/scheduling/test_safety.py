"""Whatever the world: a decision proposes nothing that breaks a rule, and accounts for every node.

That it proposes anything at all is tested apart, in test_progress.
"""

from hypothesis import given, settings

from durable.scheduling.request import PlacementRequest
from tests.scheduling.oracle import State, may_ever, slots_let_through
from tests.scheduling.world import Region, places
from tests.scheduling.worlds import regions, requests


@settings(max_examples=500)
@given(regions(), requests())
def test_no_rule_is_broken(world: Region, asked: PlacementRequest) -> None:
    proposal = world.decide(asked)
    placed = places(proposal)
    assert State(world, asked, placed).broken(placed) == []
    assert len(placed) <= slots_let_through(world, asked)


@given(regions(), requests())
def test_a_fenced_region_gets_nothing(world: Region, asked: PlacementRequest) -> None:
    assert world.but(is_open=False).decide(asked).assignments == ()


@given(regions(), requests())
def test_a_gang_is_never_begun_with_too_few(world: Region, asked: PlacementRequest) -> None:
    placed = places(world.decide(asked))
    assert not placed or len(placed) + len(asked.live) >= asked.spec.gang_size


@given(regions(), requests())
def test_every_slot_is_placed_or_waits_for_something(
    world: Region, asked: PlacementRequest
) -> None:
    proposal = world.decide(asked)
    assert sorted([*places(proposal), *proposal.unplaced]) == sorted(asked.slots)
    assert (proposal.pending is None) == (not proposal.unplaced)


@given(regions(), requests())
def test_every_node_is_counted_once(world: Region, asked: PlacementRequest) -> None:
    evidence = world.decide(asked).evidence
    assert evidence.nodes == len(world.nodes)
    refused = sum(rejection.nodes for rejection in evidence.rejections)
    assert evidence.feasible + refused == evidence.nodes


@given(regions(), requests())
def test_waiting_is_called_hopeless_only_where_it_is(
    world: Region, asked: PlacementRequest
) -> None:
    pending = world.decide(asked).pending
    could_ever = any(may_ever(facts, asked) for facts in world.nodes)
    if pending is not None and not pending.waiting_helps:
        assert world.grant is None or not could_ever
    if pending is not None and world.nodes and not could_ever:
        assert not pending.waiting_helps

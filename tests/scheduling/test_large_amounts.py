"""Amounts as large as one may be: a decision answers in words, and never with an error."""

from itertools import product

import pytest

from durable.model.placement.pending_reasons import PendingCode
from durable.model.resources import Amounts
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.request import PlacementRequest
from durable.validation.quantities import MAX_QUANTITY
from tests.scheduling.world import node, places, region, request, said

MOST: Amounts = (MAX_QUANTITY, MAX_QUANTITY, MAX_QUANTITY)
# As much as a region of such nodes has.
VAST: Amounts = (4_000 * MAX_QUANTITY, 4_000 * MAX_QUANTITY, 4_000 * MAX_QUANTITY)


def asking_for(amount: int, slots: int = 1) -> PlacementRequest:
    resources = {"cpu_millis": amount, "memory_mib": amount, "gpus": amount}
    spec = WorkloadSpec.model_validate({"replicas": slots, "resources": resources})
    return request(slots).model_copy(update={"spec": spec})


AMOUNTS = (1, MAX_QUANTITY // 2, MAX_QUANTITY - 1, MAX_QUANTITY)


@pytest.mark.parametrize(("amount", "used"), [*product(AMOUNTS, (0, 1, MAX_QUANTITY))])
def test_the_largest_node_takes_what_fits(amount: int, used: int) -> None:
    world = region(node("n1", capacity=MOST, used=(used,) * 3), grant=VAST, room=VAST)
    proposal = world.decide(asking_for(amount))
    assert bool(places(proposal)) == (amount + used <= MAX_QUANTITY)


def test_a_room_beyond_any_one_amount_is_told_in_words() -> None:
    """A region has more than one amount may be, and still too little for all slots."""
    nodes = [node(f"n{number}", capacity=MOST) for number in range(4)]
    room = (3 * MAX_QUANTITY, 3 * MAX_QUANTITY, 3 * MAX_QUANTITY)
    proposal = region(*nodes, grant=VAST, room=room).decide(asking_for(MAX_QUANTITY, slots=4))
    assert len(places(proposal)) == 3
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.HEADROOM
    assert said(proposal)


def test_what_fits_into_no_node_is_told_in_words() -> None:
    world = region(node("n1", capacity=MOST, used=(1, 1, 1)), grant=VAST, room=VAST)
    assert said(world.decide(asking_for(MAX_QUANTITY)))

"""Each table of moves is whole: every state is reachable, and none is a trap by mistake."""

from enum import StrEnum
from itertools import pairwise
from typing import Any

import pytest

from durable.model.states import (
    BINDING_MOVES,
    NODE_MOVES,
    OVERRIDE_MOVES,
    POLICY_MOVES,
    REGION_MOVES,
    REQUEST_MOVES,
    RESERVATION_MOVES,
    BindingState,
    IllegalMove,
    Moves,
    NodeState,
    OverrideState,
    PolicyState,
    RegionState,
    RequestState,
    ReservationState,
)

FINAL: dict[type[StrEnum], tuple[Moves[Any], set[StrEnum]]] = {
    ReservationState: (
        RESERVATION_MOVES,
        {ReservationState.BOUND, ReservationState.RELEASED, ReservationState.EXPIRED},
    ),
    BindingState: (BINDING_MOVES, {BindingState.RELEASED}),
    NodeState: (NODE_MOVES, {NodeState.REMOVED}),
    RegionState: (REGION_MOVES, set()),
    OverrideState: (
        OVERRIDE_MOVES,
        {OverrideState.EXPIRED, OverrideState.REVOKED, OverrideState.REJECTED},
    ),
    PolicyState: (POLICY_MOVES, {PolicyState.ROLLED_BACK}),
    RequestState: (REQUEST_MOVES, {RequestState.WITHDRAWN}),
}


def reachable(moves: Moves[Any], start: StrEnum) -> set[StrEnum]:
    seen: set[StrEnum] = set()
    ahead = [start]
    while ahead:
        state = ahead.pop()
        if state not in seen:
            seen.add(state)
            ahead.extend(moves.table[state])
    return seen


@pytest.mark.parametrize("states", FINAL)
def test_every_state_is_in_the_table_and_can_be_reached(states: type[StrEnum]) -> None:
    moves, _ = FINAL[states]
    assert set(moves.table) == set(states)
    assert reachable(moves, moves.start) == set(states)


@pytest.mark.parametrize("states", FINAL)
def test_only_the_intended_states_are_final_and_one_is_always_ahead(states: type[StrEnum]) -> None:
    moves, final = FINAL[states]
    assert moves.final == final
    for state in states:
        # A state machine without an end must always lead back to where it began.
        assert reachable(moves, state) & (final or {moves.start})


@pytest.mark.parametrize("states", FINAL)
def test_staying_put_is_no_move(states: type[StrEnum]) -> None:
    moves, _ = FINAL[states]
    assert not any(moves.allows(state, state) for state in states)


@pytest.mark.parametrize("states", FINAL)
def test_check_agrees_with_the_table_for_every_pair(states: type[StrEnum]) -> None:
    moves, _ = FINAL[states]
    for before in states:
        for after in states:
            if moves.allows(before, after):
                moves.check(before, after)
            else:
                with pytest.raises(IllegalMove, match=f"from {before} to {after}"):
                    moves.check(before, after)


def test_an_illegal_move_lists_the_legal_ones() -> None:
    with pytest.raises(
        IllegalMove,
        match="BindingState cannot move from failed to serving; legal next states: released",
    ):
        BINDING_MOVES.check(BindingState.FAILED, BindingState.SERVING)
    with pytest.raises(IllegalMove, match="released is final"):
        BINDING_MOVES.check(BindingState.RELEASED, BindingState.BOUND)


ACTIVE = [
    BindingState.BOUND,
    BindingState.STARTING,
    BindingState.RUNNING,
    BindingState.READY,
    BindingState.SERVING,
]


@pytest.mark.parametrize("state", ACTIVE)
def test_an_active_binding_may_be_lost_from_sight_found_again_fail_or_be_released(
    state: BindingState,
) -> None:
    for after in (BindingState.UNKNOWN, BindingState.FAILED, BindingState.RELEASED):
        assert BINDING_MOVES.allows(state, after)
    assert BINDING_MOVES.allows(BindingState.UNKNOWN, state)
    assert not BINDING_MOVES.allows(BindingState.FAILED, state)


def test_a_binding_goes_forward_and_may_slip_back_while_it_runs() -> None:
    for before, after in pairwise(ACTIVE):
        assert BINDING_MOVES.allows(before, after)
    assert BINDING_MOVES.allows(BindingState.READY, BindingState.RUNNING)
    assert BINDING_MOVES.allows(BindingState.SERVING, BindingState.READY)
    for started in ACTIVE[2:]:
        assert not BINDING_MOVES.allows(started, BindingState.STARTING)
        assert not BINDING_MOVES.allows(started, BindingState.BOUND)


def test_a_node_out_of_sight_is_lost_before_it_is_removed_and_may_always_come_back() -> None:
    assert NODE_MOVES.table == {
        NodeState.READY: {NodeState.UNKNOWN, NodeState.REMOVED},
        NodeState.UNKNOWN: {NodeState.READY, NodeState.LOST},
        NodeState.LOST: {NodeState.READY, NodeState.REMOVED},
        NodeState.REMOVED: set(),
    }


def test_a_held_reservation_ends_in_exactly_one_way() -> None:
    assert RESERVATION_MOVES.table[ReservationState.HELD] == RESERVATION_MOVES.final


def test_what_was_placed_or_timed_out_may_wait_again_until_it_is_withdrawn() -> None:
    for state in (RequestState.PLACED, RequestState.TIMED_OUT):
        assert REQUEST_MOVES.allows(state, RequestState.PENDING)
        assert REQUEST_MOVES.allows(state, RequestState.WITHDRAWN)
    assert REQUEST_MOVES.allows(RequestState.TIMED_OUT, RequestState.PLACED)
    assert not REQUEST_MOVES.table[RequestState.WITHDRAWN]

"""What an order does at each phase, and whom the second of two operators is told of."""

from typing import Any

import pytest

from durable.model.ids import ActorId
from durable.model.policy.rollout import (
    PolicyOrder,
    PolicyOrderKind,
    PolicyPhase,
    PolicyRollout,
    TakenOrder,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.planners.policy_rollout.orders import apply_order
from tests.planners.policy_rollout.rollouts import EAST, T0, WEST, bake, rollout

BOB = ActorId("bob")
LAST = TakenOrder(
    number=7,
    revision=5,
    kind=PolicyOrderKind.PAUSE,
    actor=ActorId("alice"),
    reason="INC-42",
    at=T0,
)


def order(kind: str, **fields: Any) -> PolicyOrder:
    given: dict[str, Any] = {"actor": BOB, "reason": "INC-43", "request": "one", **fields}
    return PolicyOrder(revision=5, kind=PolicyOrderKind(kind), **given)


def apply(of: PolicyRollout, kind: str, **fields: Any) -> PolicyRollout:
    return apply_order(of, order(kind, **fields), LAST, EAST, [3, 1])


SHADOW, CANARY, WIDENING = PolicyPhase.SHADOW, PolicyPhase.CANARY, PolicyPhase.WIDENING
EVERYWHERE, BACK = PolicyPhase.EVERYWHERE, PolicyPhase.ROLLED_BACK


@pytest.mark.parametrize(
    ("of", "kind", "fields", "changes"),
    [
        (rollout(SHADOW, canary=None), "promote", {}, {"phase": CANARY, "canary": EAST}),
        (rollout(SHADOW, canary=None), "promote", {"canary": WEST},
         {"phase": CANARY, "canary": WEST}),
        (rollout(CANARY, is_paused=True), "promote", {}, {"is_paused": False}),
        (rollout(CANARY, bake=bake()), "promote", {"after": 7}, {"bake": bake(is_cut_short=True)}),
        (rollout(CANARY), "pause", {}, {"is_paused": True}),
        (rollout(WIDENING), "pause", {}, {"is_paused": True}),
        *(
            (rollout(phase), "rollback", {"reroll": True, "to_revision": 3},
             {"phase": PolicyPhase.ROLLING_BACK, "reroll": True, "to_revision": 3})
            for phase in (SHADOW, CANARY, WIDENING, EVERYWHERE, PolicyPhase.SUPERSEDED)
        ),
        (rollout(CANARY, is_paused=True), "rollback", {},
         {"phase": PolicyPhase.ROLLING_BACK, "is_paused": False}),
        # What has taken the place of another one goes back to the last that was everywhere.
        *(
            (rollout(phase), "rollback", {},
             {"phase": PolicyPhase.ROLLING_BACK, "to_revision": 3})
            for phase in (WIDENING, EVERYWHERE, PolicyPhase.SUPERSEDED)
        ),
        (rollout(PolicyPhase.ROLLING_BACK, to_revision=3), "rollback", {"to_revision": 1},
         {"to_revision": 1}),
        # What goes on may be replaced later.
        (rollout(BACK, to_revision=3), "rollback", {"reroll": True},
         {"phase": PolicyPhase.ROLLING_BACK, "reroll": True, "to_revision": 3}),
        (rollout(CANARY, bake=bake()), "pause", {"after": 7}, {"is_paused": True}),
    ],
)  # fmt: skip
def test_what_an_order_does(
    of: PolicyRollout, kind: str, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert apply(of, kind, **fields) == of.model_copy(update=changes)


@pytest.mark.parametrize(
    ("of", "kind", "fields", "words"),
    [
        (rollout(EVERYWHERE), "promote", {}, "is in force everywhere already"),
        # Of two who promote it, the second one did not mean to end the watch.
        *(
            (rollout(phase, bake=bake()), "promote", {},
             'on its way: alice paused revision 5 .* use --now or send `"after": 7`')
            for phase in (CANARY, WIDENING)
        ),
        (rollout(BACK), "promote", {}, "publish its content as the next revision"),
        (rollout(SHADOW), "pause", {}, "only one that is on its way"),
        (rollout(CANARY, is_paused=True), "pause", {}, "paused already: alice paused revision 5"),
        (rollout(BACK), "rollback", {}, "with reroll, what it placed is replaced"),
        (rollout(BACK, reroll=True), "rollback", {"reroll": True}, "is rolled_back: alice"),
        (rollout(CANARY), "rollback", {"to_revision": 5}, "cannot go back to itself"),
        (rollout(CANARY), "rollback", {"to_revision": 4}, r"Revision 4 was never .* \(3, 1\)"),
        (rollout(PolicyPhase.ROLLING_BACK, to_revision=3), "rollback", {"to_revision": 3},
         "is rolling_back: alice"),
        (rollout(BACK, to_revision=3), "rollback", {"to_revision": 1}, "is rolled_back: alice"),
    ],
)  # fmt: skip
def test_an_order_that_makes_no_sense_is_refused(
    of: PolicyRollout, kind: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as no:
        apply(of, kind, **fields)
    assert no.value.refusal.code is RefusalCode.WRONG_STATE


@pytest.mark.parametrize("phase", [WIDENING, EVERYWHERE, PolicyPhase.SUPERSEDED])
def test_without_another_to_go_back_to_a_rollback_is_refused(phase: PolicyPhase) -> None:
    with pytest.raises(RefusedError, match="there is none to go back to"):
        apply_order(rollout(phase), order("rollback"), LAST, EAST, [])


@pytest.mark.parametrize("kind", list(PolicyOrderKind))
def test_of_two_at_once_the_second_is_told_of_the_first(kind: PolicyOrderKind) -> None:
    said = r"alice paused revision 5 at 2030-01-01 00:00:00Z \(INC-42\), before this " + kind
    with pytest.raises(RefusedError, match=said) as no:
        apply(rollout(CANARY, bake=bake()), kind, after=6)
    assert no.value.refusal.code is RefusalCode.OVERTAKEN

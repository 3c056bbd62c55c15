"""What an order does to a revision, or why it does nothing; pure."""

from collections.abc import Sequence
from typing import assert_never

from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.rollout import (
    PolicyOrder,
    PolicyOrderKind,
    PolicyPhase,
    PolicyRollout,
    TakenOrder,
)
from durable.model.refusal import RefusalCode, RefusedError


def apply_order(
    rollout: PolicyRollout,
    order: PolicyOrder,
    last: TakenOrder | None,
    default_canary: RegionId,
    fallbacks: Sequence[PolicyRevision],
) -> PolicyRollout:
    """The revision as the order leaves it; refused where the order makes no sense by now.

    `fallbacks` are the others that were in force everywhere and may be again, the latest first.
    """
    if order.after is not None and order.after != rollout.number:
        raise _overtaken(rollout, order, last)
    kind = order.kind
    match kind:
        case PolicyOrderKind.PROMOTE:
            return _promote(rollout, order, last, default_canary)
        case PolicyOrderKind.PAUSE:
            return _pause(rollout, last)
        case PolicyOrderKind.ROLLBACK:
            return _roll_back(rollout, order, last, fallbacks)
    assert_never(kind)


def answer_to(order: PolicyOrder, rollout: PolicyRollout) -> str:
    """What the sender of an order is answered, by the revision as the order leaves it."""
    revision, kind = f"Revision {rollout.revision}", order.kind
    match kind:
        case PolicyOrderKind.PROMOTE:
            if rollout.phase is PolicyPhase.CANARY and rollout.bake is None:
                return f"{revision} comes into force in {rollout.canary} first."
            return f"{revision} goes on from {rollout.phase}."
        case PolicyOrderKind.PAUSE:
            return f"{revision} is paused: it stays where it is, and goes nowhere else."
        case PolicyOrderKind.ROLLBACK:
            replaced = "is replaced" if order.reroll else "goes on"
            return (
                f"{revision} is being rolled back: what is reserved and not bound is decided "
                f"again, and what is bound {replaced}."
            )
    assert_never(kind)


def _promote(
    rollout: PolicyRollout, order: PolicyOrder, last: TakenOrder | None, default_canary: RegionId
) -> PolicyRollout:
    """Sets out; or ends a pause; or, while a region is watched, goes on before its time is over."""
    match rollout.phase:
        case PolicyPhase.SHADOW:
            canary = order.canary or default_canary
            return rollout.model_copy(update={"phase": PolicyPhase.CANARY, "canary": canary})
        case PolicyPhase.CANARY | PolicyPhase.WIDENING if rollout.is_paused:
            return rollout.model_copy(update={"is_paused": False})
        case PolicyPhase.CANARY | PolicyPhase.WIDENING:
            if order.after is None:
                # Of two who promote it at once, the second one did not mean to end the watch.
                raise _refuse(
                    f"Revision {rollout.revision} is on its way{_by(last)}. To go on before a "
                    f'region\'s time is over, use --now or send `"after": {rollout.number}`.'
                )
            bake = rollout.bake and rollout.bake.model_copy(update={"is_cut_short": True})
            return rollout.model_copy(update={"bake": bake})
        case PolicyPhase.EVERYWHERE:
            raise _refuse(f"Revision {rollout.revision} is in force everywhere already.")
        case PolicyPhase.SUPERSEDED | PolicyPhase.ROLLING_BACK | PolicyPhase.ROLLED_BACK:
            raise _refuse(
                f"Revision {rollout.revision} is {rollout.phase}{_by(last)} and is not promoted "
                "again; publish its content as the next revision."
            )


def _pause(rollout: PolicyRollout, last: TakenOrder | None) -> PolicyRollout:
    if rollout.phase not in (PolicyPhase.CANARY, PolicyPhase.WIDENING):
        raise _refuse(
            f"Revision {rollout.revision} is {rollout.phase}; only one that is on its way "
            "through the regions can be paused."
        )
    if rollout.is_paused:
        raise _refuse(f"Revision {rollout.revision} is paused already{_by(last)}.")
    return rollout.model_copy(update={"is_paused": True})


def _roll_back(
    rollout: PolicyRollout,
    order: PolicyOrder,
    last: TakenOrder | None,
    fallbacks: Sequence[PolicyRevision],
) -> PolicyRollout:
    back = PolicyPhase.ROLLING_BACK
    if rollout.phase in (PolicyPhase.ROLLING_BACK, PolicyPhase.ROLLED_BACK):
        return _roll_back_again(rollout, order, last, fallbacks)
    changes = {"phase": back, "reroll": order.reroll, "is_paused": False}
    target = _chosen(rollout, order, fallbacks)
    if target is None and rollout.phase not in (PolicyPhase.SHADOW, PolicyPhase.CANARY):
        # In regions it has taken the place of another one, which must decide there again.
        target = next(iter(fallbacks), None)
        if target is None:
            raise _refuse(
                f"No other revision than {rollout.revision} was in force everywhere, so there is "
                "none to go back to; publish a corrected one and promote it."
            )
    return rollout.model_copy(update={**changes, "to_revision": target})


def _roll_back_again(
    rollout: PolicyRollout,
    order: PolicyOrder,
    last: TakenOrder | None,
    fallbacks: Sequence[PolicyRevision],
) -> PolicyRollout:
    """What goes on may still be replaced; regions that wait may still go back to another one."""
    back, target = PolicyPhase.ROLLING_BACK, rollout.to_revision
    if rollout.phase is back:
        target = _chosen(rollout, order, fallbacks) or target
    reroll = rollout.reroll or order.reroll
    if (target, reroll) == (rollout.to_revision, rollout.reroll):
        more = "" if rollout.reroll else "; with reroll, what it placed is replaced"
        raise _refuse(f"Revision {rollout.revision} is {rollout.phase}{_by(last)}{more}.")
    return rollout.model_copy(update={"phase": back, "to_revision": target, "reroll": reroll})


def _chosen(
    rollout: PolicyRollout, order: PolicyOrder, fallbacks: Sequence[PolicyRevision]
) -> PolicyRevision | None:
    """The revision that the order names; one that was never watched would skip every guardrail."""
    target = order.to_revision
    if target == rollout.revision:
        raise _refuse(f"Revision {rollout.revision} cannot go back to itself; name another one.")
    if target is not None and target not in fallbacks:
        possible = ", ".join(map(str, fallbacks[:5])) or "none"
        raise _refuse(
            f"Revision {target} was never in force everywhere, or was rolled back itself; go back "
            f"to one that was ({possible})."
        )
    return target


def _overtaken(rollout: PolicyRollout, order: PolicyOrder, last: TakenOrder | None) -> RefusedError:
    said = last or f"order {rollout.number} was taken"
    return RefusedError(
        RefusalCode.OVERTAKEN,
        f"{said}, before this {order.kind}; look at `durable policy show {rollout.revision}` and "
        "send it again if it still holds.",
    )


def _by(last: TakenOrder | None) -> str:
    return "" if last is None else f": {last}"


def _refuse(sentence: str) -> RefusedError:
    return RefusedError(RefusalCode.WRONG_STATE, sentence)

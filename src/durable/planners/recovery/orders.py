"""What becomes of a recovery when a person orders something: pure, or a refusal in a sentence."""

from typing import assert_never

from durable.model.recovery.recoveries import UNFENCED, Recovery, RecoveryOrderKind, RecoveryPhase
from durable.model.refusal import RefusalCode, RefusedError

_UNDER_WAY = frozenset(
    {
        RecoveryPhase.MOVING,
        RecoveryPhase.HOLDING,
        RecoveryPhase.FAILING_BACK,
        RecoveryPhase.SETTLING,
    }
)


def apply_order(
    recovery: Recovery | None, kind: RecoveryOrderKind, *, region: str, is_fenced: bool
) -> RecoveryPhase:
    """The phase that the order leads to; ordered again, where it is by now.

    `is_fenced` is the region's fact: its fence may not have been noted as a phase yet.
    """
    phase = None if recovery is None else recovery.phase
    match kind:
        case RecoveryOrderKind.CONFIRM:
            return _confirm(phase, region)
        case RecoveryOrderKind.VETO:
            return _veto(phase, region, is_fenced)
        case RecoveryOrderKind.FAILBACK:
            _refuse_unfenced(phase, region, "failback")
            return RecoveryPhase.FAILING_BACK
        case RecoveryOrderKind.SETTLE:
            _refuse_unfenced(phase, region, "settle")
            if phase is RecoveryPhase.FAILING_BACK and not is_fenced:
                raise _refused(
                    f"Work goes back to {region} already; wait until it is there, and move it out "
                    "again by weights if it has to stay elsewhere."
                )
            return RecoveryPhase.SETTLING
        case _:
            assert_never(kind)


def answer_to(kind: RecoveryOrderKind, recovery: Recovery) -> str:
    """What the sender of an order is answered, by the recovery as the order leaves it."""
    region = recovery.key.region
    match kind:
        case RecoveryOrderKind.CONFIRM:
            if recovery.phase is RecoveryPhase.CONFIRMED:
                return f"{region} is being fenced, and its work moved elsewhere."
            return f"The recovery of {region} is under way: {recovery.phase}."
        case RecoveryOrderKind.VETO:
            return f"{region} is not taken for lost as it looks now; nothing was changed."
        case RecoveryOrderKind.FAILBACK:
            return f"{region} is opened once it answers, and gets its work back."
        case RecoveryOrderKind.SETTLE:
            return f"What was moved stays; {region} takes new work once it answers."
    assert_never(kind)


def _confirm(phase: RecoveryPhase | None, region: str) -> RecoveryPhase:
    if phase is not None and (phase in _UNDER_WAY or phase is RecoveryPhase.CONFIRMED):
        return phase  # another trigger for the same loss
    if phase is not None and phase not in UNFENCED:
        raise _refused(
            f"The recovery of {region} has ended ({phase}); declare its next loss with "
            f"durable recovery declare {region}."
        )
    return RecoveryPhase.CONFIRMED


def _veto(phase: RecoveryPhase | None, region: str, is_fenced: bool) -> RecoveryPhase:
    if phase is None or phase in UNFENCED:
        if is_fenced:
            raise _refused(
                f"{region} is fenced already, so its loss cannot be vetoed; once its recovery is "
                "`moving`, send `failback` to take its work back, or `settle`."
            )
        return RecoveryPhase.VETOED
    raise _refused(
        f"{region} is fenced already ({phase}), so its loss cannot be vetoed; send `failback` to "
        "take its work back."
    )


def _refuse_unfenced(phase: RecoveryPhase | None, region: str, order: str) -> None:
    if phase in _UNDER_WAY:
        return
    if phase is None or phase in UNFENCED:
        raise _refused(f"Nothing was moved out of {region}, so there is nothing to {order}.")
    raise _refused(f"The recovery of {region} has ended already ({phase}).")


def _refused(sentence: str) -> RefusedError:
    return RefusedError(RefusalCode.WRONG_STATE, sentence)

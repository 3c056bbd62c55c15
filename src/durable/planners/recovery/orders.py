"""What becomes of a recovery when somebody orders something: pure, or a refusal in a sentence."""

from typing import assert_never

from durable.model.recovery.recoveries import UNFENCED, Recovery, RecoveryOrderKind, RecoveryStage
from durable.model.refusal import RefusalCode, RefusedError

_UNDER_WAY = frozenset(
    {
        RecoveryStage.MOVING,
        RecoveryStage.HOLDING,
        RecoveryStage.FAILING_BACK,
        RecoveryStage.SETTLING,
    }
)


def apply_order(
    recovery: Recovery | None, kind: RecoveryOrderKind, *, region: str, is_fenced: bool
) -> RecoveryStage:
    """The stage that the order leads to; ordered again, where it is by now.

    `is_fenced` is the region's fact: whoever fenced it may not have noted that as a stage yet.
    """
    stage = None if recovery is None else recovery.stage
    match kind:
        case RecoveryOrderKind.CONFIRM:
            return _confirm(stage, region)
        case RecoveryOrderKind.VETO:
            return _veto(stage, region, is_fenced)
        case RecoveryOrderKind.FAILBACK:
            _refuse_unfenced(stage, region, "failback")
            return RecoveryStage.FAILING_BACK
        case RecoveryOrderKind.SETTLE:
            _refuse_unfenced(stage, region, "settle")
            if stage is RecoveryStage.FAILING_BACK and not is_fenced:
                raise _refused(
                    f"Work goes back to {region} already; wait until it is there, and move it out "
                    "again by weights if it has to stay elsewhere."
                )
            return RecoveryStage.SETTLING
        case _:
            assert_never(kind)


def _confirm(stage: RecoveryStage | None, region: str) -> RecoveryStage:
    if stage is not None and (stage in _UNDER_WAY or stage is RecoveryStage.CONFIRMED):
        return stage  # another trigger for the same loss
    if stage is not None and stage not in UNFENCED:
        raise _refused(
            f"The recovery of {region} has ended ({stage}); declare its next loss with "
            f"durable recovery declare {region}."
        )
    return RecoveryStage.CONFIRMED


def _veto(stage: RecoveryStage | None, region: str, is_fenced: bool) -> RecoveryStage:
    if stage is None or stage in UNFENCED:
        if is_fenced:
            raise _refused(
                f"{region} is fenced already, so its loss cannot be vetoed; once its recovery is "
                "`moving`, send `failback` to take its work back, or `settle`."
            )
        return RecoveryStage.VETOED
    raise _refused(
        f"{region} is fenced already ({stage}), so its loss cannot be vetoed; send `failback` to "
        "take its work back."
    )


def _refuse_unfenced(stage: RecoveryStage | None, region: str, order: str) -> None:
    if stage in _UNDER_WAY:
        return
    if stage is None or stage in UNFENCED:
        raise _refused(f"Nothing was moved out of {region}, so there is nothing to {order}.")
    raise _refused(f"The recovery of {region} has ended already ({stage}).")


def _refused(sentence: str) -> RefusedError:
    return RefusedError(RefusalCode.WRONG_STATE, sentence)

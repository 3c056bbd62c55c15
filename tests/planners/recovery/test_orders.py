"""What may be ordered of a recovery, phase by phase."""

from datetime import UTC, datetime

import pytest

from durable.model.ids import ActorId, RegionId
from durable.model.recovery.recoveries import Recovery, RecoveryOrderKind, RecoveryPhase
from durable.model.refusal import RefusedError
from durable.planners.recovery.orders import apply_order

NOW = datetime(2026, 1, 1, tzinfo=UTC)
S, K = RecoveryPhase, RecoveryOrderKind
FENCED = (S.MOVING, S.HOLDING, S.SETTLING)


def recovery(phase: RecoveryPhase) -> Recovery:
    return Recovery(
        region=RegionId("east"), epoch=2, phase=phase, actor=ActorId("test"), reason="test",
        lost_at=NOW, started_at=NOW, changed_at=NOW,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "kind", "leads_to"),
    [
        (None, K.CONFIRM, S.CONFIRMED),
        (S.SUSPECTED, K.CONFIRM, S.CONFIRMED),
        (S.VETOED, K.CONFIRM, S.CONFIRMED),
        (S.MOVING, K.CONFIRM, S.MOVING),
        (S.HOLDING, K.CONFIRM, S.HOLDING),
        (None, K.VETO, S.VETOED),
        (S.CONFIRMED, K.VETO, S.VETOED),
        (S.MOVING, K.FAILBACK, S.FAILING_BACK),
        (S.HOLDING, K.FAILBACK, S.FAILING_BACK),
        (S.SETTLING, K.FAILBACK, S.FAILING_BACK),
        (S.HOLDING, K.SETTLE, S.SETTLING),
    ],
)
def test_an_order_leads_to_a_phase(
    phase: RecoveryPhase | None, kind: RecoveryOrderKind, leads_to: RecoveryPhase
) -> None:
    before = None if phase is None else recovery(phase)
    is_fenced = phase in FENCED
    assert apply_order(before, kind, region="east", is_fenced=is_fenced) is leads_to


@pytest.mark.parametrize(
    ("phase", "kind", "says"),
    [
        (S.MOVING, K.VETO, "send `failback`"),
        (S.HOLDING, K.VETO, "send `failback`"),
        (None, K.FAILBACK, "Nothing was moved"),
        (S.SUSPECTED, K.SETTLE, "Nothing was moved"),
        (S.FAILING_BACK, K.SETTLE, "already"),
        (S.SETTLED, K.FAILBACK, "has ended"),
        (S.SETTLED, K.CONFIRM, "declare its next loss"),
    ],
)
def test_an_order_that_comes_at_the_wrong_time_is_refused(
    phase: RecoveryPhase | None, kind: RecoveryOrderKind, says: str
) -> None:
    before = None if phase is None else recovery(phase)
    with pytest.raises(RefusedError, match=says):
        apply_order(before, kind, region="east", is_fenced=phase in FENCED)


def test_a_failback_may_be_taken_back_while_its_region_is_fenced_still() -> None:
    """It may never answer again, and then nothing would end the recovery."""
    before = recovery(S.FAILING_BACK)
    assert apply_order(before, K.SETTLE, region="east", is_fenced=True) is S.SETTLING


def test_a_veto_comes_too_late_once_the_fence_stands_whatever_the_phase_says() -> None:
    """Whoever fenced the region died before it could note that."""
    with pytest.raises(RefusedError, match="fenced already"):
        apply_order(recovery(S.CONFIRMED), K.VETO, region="east", is_fenced=True)

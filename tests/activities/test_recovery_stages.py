"""When a recovery waits, for what, and when it gives up."""

from datetime import UTC, datetime, timedelta

import pytest

from durable.activities.recovery_moves import Returns
from durable.activities.recovery_stages import FAILBACK_PATIENCE, await_fence, is_given_up
from durable.model.ids import ActorId, RegionId
from durable.model.recovery.recoveries import Recovery, RecoveryStage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - 2 * FAILBACK_PATIENCE
LATELY = NOW - FAILBACK_PATIENCE / 2


def recovery(**changes: object) -> Recovery:
    given = {
        "region": RegionId("east"), "epoch": 2, "stage": RecoveryStage.FAILING_BACK,
        "actor": ActorId("test"), "reason": "a test", "lost_at": LONG_AGO,
        "started_at": LONG_AGO, "changed_at": LONG_AGO, **changes,
    }  # fmt: skip
    return Recovery.model_validate(given)


@pytest.mark.parametrize(
    ("back", "back_since", "expected"),
    [
        (Returns(away=("api lacks 1",), last_at=LONG_AGO), LONG_AGO, True),
        (Returns(away=("api lacks 1",), last_at=LATELY), LONG_AGO, False),
        (Returns(away=("api lacks 1",), last_at=LONG_AGO), LATELY, False),
        (Returns(waiting=("api has not gone back",), last_at=LONG_AGO), LONG_AGO, True),
    ],
)
def test_what_goes_back_is_waited_for_from_the_last_progress_on(
    back: Returns, back_since: datetime, expected: bool
) -> None:
    assert is_given_up(recovery(back_since=back_since), back, NOW) is expected


def test_what_several_losses_moved_is_waited_for_together() -> None:
    first = Returns(waiting=("a",), last_at=LATELY)
    second = Returns(away=("b",), last_at=LONG_AGO)
    assert (first + second).left == ("a", "b")
    assert (second + first).last_at == LATELY


def test_a_lease_is_waited_for_only_where_there_is_one() -> None:
    lapses = NOW + timedelta(seconds=3)
    assert await_fence(recovery(movable_at=lapses), NOW).until == lapses
    assert "the lease of east to lapse" in await_fence(recovery(movable_at=lapses), NOW).why
    assert "the database of east to answer" in await_fence(recovery(), NOW).why

"""What a recovery does next: every case is a row."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.recovery.detection import (
    LossKind,
    LossVerdict,
    Mode,
    RecoveryPolicy,
    RegionSigns,
    Suspicion,
)
from durable.model.recovery.recoveries import Recovery, RecoveryPhase, WorkloadMove
from durable.model.recovery.steps import RecoveryRound, RecoveryStep, Returns
from durable.model.states import RegionState
from durable.planners.recovery.steps import (
    FAILBACK_PATIENCE,
    LOOK_LATER,
    LOOK_SOON,
    BeginHolding,
    CloseRecovery,
    ConfirmSuspected,
    DismissSuspected,
    DrawBudgets,
    FenceRegion,
    HoldOn,
    MeasureMoves,
    MoveBack,
    MoveOut,
    NextStep,
    ObservedRecovery,
    OpenRegion,
    OrderFailback,
    is_given_up,
    next_step,
)
from durable.planners.rest import Rest

EAST = RegionId("east")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
AGO = NOW - timedelta(minutes=1)
LONG_AGO, LATELY = NOW - 2 * FAILBACK_PATIENCE, NOW - FAILBACK_PATIENCE / 2
SOON, LATER = NOW + LOOK_SOON, NOW + LOOK_LATER
AUTOMATIC = RecoveryPolicy(failback=Mode.AUTOMATIC)
S, T = RecoveryPhase, RecoveryStep


def recovery(phase: RecoveryPhase, **values: Any) -> Recovery:
    usual = {
        "region": EAST, "epoch": 2, "phase": phase, "actor": ActorId("test"), "reason": "a test",
        "lost_at": LONG_AGO, "started_at": LONG_AGO, "changed_at": LONG_AGO, "movable_at": AGO,
    }  # fmt: skip
    return Recovery.model_validate({**usual, **values})


def move(**values: Any) -> WorkloadMove:
    named = {"tenant": TenantId("risk"), "workload": WorkloadName("api"), "priority": 100}
    return WorkloadMove.model_validate({**named, "replicas": 1, "slots": (0,), **values})


UNMOVED, REFUSED = move(), move(waits="no place")
ON_ITS_WAY = move(moved_at=NOW)
WHOLE = move(moved_at=AGO, whole_at=AGO, placed=1, serving=1)


def suspicion(since: datetime, calm_since: datetime | None = None) -> Suspicion:
    signs = RegionSigns(region=EAST, hosts=2, silent_hosts=2)
    verdict = LossVerdict(region=EAST, kind=LossKind.REGION, sentence="lost", signs=signs)
    return Suspicion(
        region=EAST, epoch=1, since=since, lost_at=since, verdict=verdict, calm_since=calm_since
    )


def observed(phase: RecoveryPhase, *taken: RecoveryStep, **values: Any) -> ObservedRecovery:
    """A fenced region at the recovery's own epoch, unless values say otherwise."""
    row = recovery(phase, **values.pop("row", {}))
    learned = values.pop("learned", {})
    is_suspected = phase is S.SUSPECTED
    usual: dict[str, Any] = {
        "recovery": row, "policy": RecoveryPolicy(), "now": NOW,
        "state": RegionState.SUSPECTED if is_suspected else RegionState.FENCED,
        "epoch": 1 if is_suspected else 2, "round": RecoveryRound(taken=taken, **learned),
    }  # fmt: skip
    return ObservedRecovery(**{**usual, **values})


def suspected(**values: Any) -> ObservedRecovery:
    return observed(S.SUSPECTED, **values)


CLOSED = {"closed": "east to answer", "closed_until": LATER}
AWAY = {"returns": Returns(count=2, left=("api lacks 1", "web lacks 1"), last_at=LONG_AGO)}
NO_LEASE = {"movable_at": None}
LAPSES = NOW + timedelta(seconds=3)
BACK = {"back_since": AGO}

CASES: dict[str, tuple[ObservedRecovery, NextStep]] = {
    # before anything was changed
    "well again": (
        suspected(state=RegionState.OPEN), DismissSuspected("east is not suspected any more")),
    "a person confirms": (
        suspected(policy=RecoveryPolicy(confirmation=Mode.MANUAL)),
        Rest("a person to confirm or veto it", LATER)),
    "calm for a while": (
        suspected(suspicion=suspicion(AGO, calm_since=NOW)),
        Rest("east to stay well, or to fall silent again", SOON)),
    "too early": (
        suspected(suspicion=suspicion(NOW)),
        Rest("the loss of east to last", NOW + timedelta(seconds=10))),
    "it lasts": (suspected(suspicion=suspicion(AGO)), ConfirmSuspected("a test")),
    "confirmed": (observed(S.CONFIRMED), FenceRegion()),
    # while the region is fenced
    "its database is asked": (observed(S.MOVING, row={"movable_at": LAPSES}), FenceRegion()),
    "its lease lapses": (
        observed(S.MOVING, T.FENCE, row={"movable_at": LAPSES}),
        Rest("the lease of east to lapse: its database does not answer", LAPSES)),
    "it has no lease": (
        observed(S.MOVING, T.FENCE, row=NO_LEASE),
        Rest("the database of east to answer: the region has no lease that could lapse", LATER)),
    "a budget is free": (observed(S.MOVING, moves=[UNMOVED], is_undrawn=True), DrawBudgets()),
    "a budget once a round": (
        observed(S.MOVING, T.DRAW, moves=[UNMOVED], is_undrawn=True), MoveOut()),
    "some to move": (observed(S.MOVING, moves=[UNMOVED, ON_ITS_WAY]), MoveOut()),
    "nothing known yet": (observed(S.MOVING), MoveOut()),
    "all on their way": (observed(S.MOVING, moves=[ON_ITS_WAY]), MeasureMoves()),
    "refused is not left": (observed(S.MOVING, moves=[REFUSED, ON_ITS_WAY]), MeasureMoves()),
    "more in a second": (
        observed(S.MOVING, T.MOVE_OUT, moves=[UNMOVED]), Rest("1 more to be moved", SOON)),
    "they find nodes": (
        observed(S.MOVING, T.MEASURE, moves=[ON_ITS_WAY]),
        Rest("moved replicas to find a node", SOON)),
    "all moved": (observed(S.MOVING, T.MEASURE, moves=[WHOLE, REFUSED]), BeginHolding()),
    "nothing was affected": (observed(S.MOVING, T.MOVE_OUT), BeginHolding()),
    "lost again while it moves": (
        observed(S.MOVING, epoch=3), CloseRecovery(S.SUPERSEDED, "a later loss follows it")),
    # holding
    "held": (observed(S.HOLDING, moves=[WHOLE]), HoldOn()),
    "held, and one is not whole": (
        observed(S.HOLDING, moves=[ON_ITS_WAY], is_undrawn=True), DrawBudgets()),
    "held, and needs no budget": (observed(S.HOLDING, moves=[WHOLE], is_undrawn=True), HoldOn()),
    "away": (
        observed(S.HOLDING, T.HOLD, moves=[WHOLE]), Rest("east to come back", LATER)),
    "away, and some on their way": (
        observed(S.HOLDING, T.HOLD, moves=[ON_ITS_WAY]), Rest("east to come back", SOON)),
    "back, and a person decides": (
        observed(S.HOLDING, T.HOLD, row=BACK), Rest("it is back: send failback or settle", LATER)),
    "back for a moment": (
        observed(S.HOLDING, T.HOLD, row={"back_since": NOW}, policy=AUTOMATIC),
        Rest("east to stay well", NOW + timedelta(seconds=10))),
    "back for long": (
        observed(S.HOLDING, T.HOLD, row=BACK, policy=AUTOMATIC),
        OrderFailback("east is well since 23:59:00Z")),
    "lost again while it holds": (
        observed(S.HOLDING, epoch=3), CloseRecovery(S.SUPERSEDED, "a later loss follows it")),
    # the way back
    "closed": (observed(S.FAILING_BACK), OpenRegion()),
    "closed, and not movable": (
        observed(S.FAILING_BACK, T.OPEN, row=NO_LEASE, learned=CLOSED), FenceRegion()),
    "closed, and never movable": (
        observed(S.FAILING_BACK, T.OPEN, T.FENCE, row=NO_LEASE, learned=CLOSED),
        Rest("east to answer", LATER)),
    "closed, and a budget is free": (
        observed(S.FAILING_BACK, T.OPEN, learned=CLOSED, is_undrawn=True), DrawBudgets()),
    "closed, so work goes on moving": (
        observed(S.FAILING_BACK, T.OPEN, learned=CLOSED), MoveOut(with_refused=True)),
    "closed, and more moves soon": (
        observed(S.FAILING_BACK, T.OPEN, T.MOVE_OUT, learned=CLOSED, moves=[ON_ITS_WAY]),
        Rest("east to answer", SOON)),
    "closed, and all has moved": (
        observed(S.FAILING_BACK, T.OPEN, T.MOVE_OUT, learned=CLOSED, moves=[WHOLE]),
        Rest("east to answer", LATER)),
    "open by the global side, not by its own": (
        observed(S.FAILING_BACK, T.OPEN, learned=CLOSED, state=RegionState.OPEN),
        Rest("east to answer", LATER)),
    "opened": (observed(S.FAILING_BACK, T.OPEN, row=BACK), MoveBack()),
    "open before": (observed(S.FAILING_BACK, is_open=True), MoveBack()),
    "without its nodes": (
        observed(S.FAILING_BACK, T.MOVE_BACK, is_open=True),
        Rest("the nodes of east to register again", SOON)),
    "some are not back": (
        observed(S.FAILING_BACK, T.MOVE_BACK, is_open=True, learned=AWAY, row=BACK),
        Rest("what goes back to serve there: api lacks 1", SOON)),
    "some never come back": (
        observed(S.FAILING_BACK, T.MOVE_BACK, is_open=True, learned=AWAY,
                 row={"back_since": LONG_AGO}),
        CloseRecovery(S.FAILED_BACK, "2 workloads are not back in east")),
    "all are back": (
        observed(S.FAILING_BACK, T.MOVE_BACK, is_open=True, row=BACK),
        CloseRecovery(S.FAILED_BACK, "work is back in east")),
    "all went back, and some is elsewhere now": (
        observed(S.FAILING_BACK, T.MOVE_BACK, is_open=True, row=BACK,
                 learned={"returns": Returns(strays=1, strayed=("api has 6 elsewhere",))}),
        CloseRecovery(S.FAILED_BACK, "1 workloads are only partly back in east")),
    "a budget keeps it": (
        observed(S.FAILING_BACK, T.MOVE_BACK, T.CLOSE, is_open=True, row=BACK,
                 learned={"open_budget": "Budget dr of west is still open."}),
        Rest("Budget dr of west is still open.", LATER)),
    "lost again on the way back": (
        observed(S.FAILING_BACK, epoch=3), CloseRecovery(S.SUPERSEDED, "it was lost again")),
    # settling
    "settled": (observed(S.SETTLING), OpenRegion()),
    "settled, and closed": (
        observed(S.SETTLING, T.OPEN, learned=CLOSED), Rest("east to answer", LATER)),
    "settled, and open": (
        observed(S.SETTLING, T.OPEN), CloseRecovery(S.SETTLED, "work stays where it was moved to")),
    "lost again while it settles": (
        observed(S.SETTLING, epoch=3), CloseRecovery(S.SUPERSEDED, "a later loss follows it")),
    **{
        f"ended: {phase}": (observed(phase), Rest("", is_final=True))
        for phase in (S.FAILED_BACK, S.SETTLED, S.VETOED, S.DISMISSED, S.SUPERSEDED)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_next_step_of_a_recovery(name: str) -> None:
    given, expected = CASES[name]
    assert next_step(given) == expected


def test_every_step_has_a_case() -> None:
    taken = {step.name for _, step in CASES.values() if not isinstance(step, Rest)}
    assert taken == set(RecoveryStep)


@pytest.mark.parametrize(
    ("returned_at", "back_since", "expected"),
    [
        (LONG_AGO, LONG_AGO, True),
        (LATELY, LONG_AGO, False),
        (LONG_AGO, LATELY, False),
        (None, LONG_AGO, True),
    ],
)
def test_what_goes_back_is_waited_for_from_the_last_progress_on(
    returned_at: datetime | None, back_since: datetime, expected: bool
) -> None:
    row = recovery(S.FAILING_BACK, back_since=back_since)
    assert is_given_up(row, returned_at, NOW) is expected


def test_what_several_losses_moved_is_waited_for_together() -> None:
    first = Returns(count=1, left=("a",), last_at=LATELY)
    second = Returns(count=1, left=("b",), last_at=LONG_AGO)
    assert first + second == Returns(count=2, left=("a", "b"), last_at=LATELY)
    assert (second + first).last_at == LATELY

"""Critical work moves first, few at once, and is measured from the loss."""

from datetime import UTC, datetime, timedelta

import pytest

from durable.model.ids import ActorId, RegionId
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.recoveries import Recovery, RecoveryPhase, WorkloadMove
from durable.planners.recovery.moves import (
    PATIENCE,
    MovedReplicas,
    draws_on_budgets,
    goes_back,
    is_measured_on,
    is_settled,
    is_unheard,
    may_take_over,
    measure,
    next_moves,
    next_returns,
    report_on,
)

LOST = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = LOST + timedelta(seconds=60)
POLICY = RecoveryPolicy(moves_at_once=3, moves_per_second=2)


def at(seconds: float) -> datetime:
    return LOST + timedelta(seconds=seconds)


def move(name: str = "api", priority: int = 900, **fields: object) -> WorkloadMove:
    given: dict[str, object] = {"replicas": 6, "slots": (0, 1), **fields}
    return WorkloadMove.model_validate(
        {"tenant": "risk", "workload": name, "priority": priority, **given}
    )


def names(moves: list[WorkloadMove]) -> list[str]:
    return [str(one.workload) for one in moves]


def test_critical_work_moves_before_all_other() -> None:
    waiting = [move("low", 10), move("usual", 500), move("top", 1000), move("critical")]
    assert names(next_moves(waiting, POLICY, NOW)) == ["top", "critical"]


def test_a_class_waits_until_the_one_before_it_has_a_node_or_says_why_not() -> None:
    usual = move("usual", 500)
    moved = at(58)
    assert next_moves([move(moved_at=moved), usual], POLICY, NOW) == []
    for settled in (
        move(moved_at=moved, placed=2),
        move(moved_at=moved, waits="no room"),
        move(moved_at=NOW - PATIENCE),
    ):
        assert names(next_moves([settled, usual], POLICY, NOW)) == ["usual"]


def test_no_more_move_than_the_policy_allows_at_once_or_in_a_second() -> None:
    many = [move(f"w{number}") for number in range(9)]
    assert len(next_moves(many, POLICY, NOW)) == 2, "in a second"
    lately = [move("a", moved_at=at(59.5), placed=2), move("b", moved_at=at(59.6), placed=2)]
    assert next_moves([*many, *lately], POLICY, NOW) == []
    in_flight = [move(f"f{number}", moved_at=at(55)) for number in range(2)]
    assert len(next_moves([*many, *in_flight], POLICY, NOW)) == 1, "at once"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([move()], [], True),
        ([move()], [move("low", 10), move("usual", 500)], True),
        ([move()], [move(whole_at=NOW)], True),
        ([move()], [move()], False),
        ([move(whole_at=NOW), move("usual", 500)], [move("low", 10)], False),
        ([move("usual", 500)], [move("low", 10)], False),
        # It was deleted meanwhile, or is only on a lower number of replicas.
        ([move(replicas=0)], [], False),
        ([move()], [move(replicas=0)], True),
        ([], [], False),
    ],
)
def test_a_budget_goes_to_critical_work_first_across_recoveries(
    ours: list[WorkloadMove], theirs: list[WorkloadMove], expected: bool
) -> None:
    assert may_take_over(ours, theirs, POLICY) is expected


@pytest.mark.parametrize(("priority", "draws"), [(0, False), (99, False), (100, True), (900, True)])
def test_best_effort_draws_on_no_budget(priority: int, draws: bool) -> None:
    assert draws_on_budgets(priority) is draws


def test_what_has_no_objective_moves_with_less_haste() -> None:
    policy = RecoveryPolicy(moves_at_once=8, moves_per_second=100)
    critical = [move(f"c{number}") for number in range(20)]
    usual = [move(f"u{number}", 500) for number in range(20)]
    assert len(next_moves([*critical, *usual], policy, NOW)) == 8
    assert len(next_moves(usual, policy, NOW)) == 2
    in_flight = [move(f"f{number}", 500, moved_at=at(55)) for number in range(2)]
    assert next_moves([*usual, *in_flight], policy, NOW) == []
    assert len(next_moves(usual, POLICY, NOW)) == 1, "never none"


def test_what_was_refused_is_tried_again_only_when_asked_for() -> None:
    refused = move(waits="It may run only in east, which is lost.")
    assert next_moves([refused], POLICY, NOW) == []
    assert next_moves([refused], POLICY, NOW, with_refused=True) == [refused]
    assert is_settled(refused, NOW)


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([], ["late", "low"]),
        ([move("never", 10, waits="no room")], ["low", "never"]),
        ([move("new", 900)], ["late", "new"]),
        ([move("new", 10)], ["low", "new"]),
        ([move("moving", 500, moved_at=at(55))], ["early", "late"]),
        ([move("moving", 900, moved_at=at(55)), move("new", 500)], ["early", "late"]),
    ],
)
def test_places_that_are_left_go_to_whichever_was_refused_the_longest_time_ago(
    others: list[WorkloadMove], chosen: list[str]
) -> None:
    refused = [
        move("early", 900, waits="no room", tried_at=at(50)),
        move("late", 900, waits="no room", tried_at=at(40)),
        move("low", 10, waits="no room", tried_at=at(30)),
    ]
    assert names(next_moves([*refused, *others], POLICY, NOW, with_refused=True)) == chosen


def test_what_is_refused_again_and_again_keeps_nobody_from_being_tried() -> None:
    waiting = {f"w{number}": move(f"w{number}", waits="no room") for number in range(7)}
    tried: set[str] = set()
    for second in range(4):
        for name in names(next_moves(waiting.values(), POLICY, at(second), with_refused=True)):
            waiting[name] = waiting[name].model_copy(update={"tried_at": at(second)})
            tried.add(name)
    assert tried == set(waiting)


def test_a_job_does_not_go_back() -> None:
    """What others have begun of it, they finish."""
    moved = [move("api", moved_at=at(5)), move("score", kind="job", moved_at=at(5))]
    assert names(next_returns(moved, POLICY, NOW)) == ["api"]
    assert [goes_back(one) for one in moved] == [True, False]


def test_work_goes_back_the_least_important_first() -> None:
    moved = [move("critical", moved_at=at(5)), move("low", 10, moved_at=at(9)), move("never")]
    assert names(next_returns(moved, POLICY, NOW)) == ["low", "critical"]


def test_what_finds_no_room_at_home_is_tried_after_what_was_not_tried() -> None:
    refused = move("low", 10, moved_at=at(5), waits="no room", tried_at=at(8))
    other = move("lower", 5, moved_at=at(5), waits="no room", tried_at=at(9))
    moved = [refused, other, move("critical", moved_at=at(9))]
    assert names(next_returns(moved, POLICY, NOW)) == ["critical", "low"]


@pytest.mark.parametrize(
    ("since", "seconds"),
    [
        ([1, 2, 3], None),
        ([20, 12, 7, 30, 50], 30.0),
    ],
)
def test_a_workload_has_recovered_when_the_fourth_replica_serves(
    since: list[float], seconds: float | None
) -> None:
    found = MovedReplicas({slot: at(one) for slot, one in enumerate(since)})
    lost = tuple(range(6))
    measured = measure(move(slots=lost, moved_at=at(5)), found, POLICY, LOST)
    assert measured.seconds_to_recover(LOST) == seconds


def test_what_was_lost_counts_and_not_what_others_had() -> None:
    found = MovedReplicas({0: at(8), 1: at(9), 2: at(-50), 3: at(-40)})
    measured = measure(move(moved_at=at(5)), found, POLICY, LOST)
    assert (measured.recovered_at, measured.whole_at, measured.serving) == (at(9), at(9), 2)
    others = MovedReplicas({2: at(-50), 3: at(-40), 4: at(-30), 5: at(-20)})
    measured = measure(move(moved_at=at(5)), others, POLICY, LOST)
    assert (measured.recovered_at, measured.whole_at, measured.serving) == (None, None, 0)


def test_what_was_scaled_away_or_was_only_a_surge_need_not_come_back() -> None:
    found = MovedReplicas({0: at(8), 1: at(9)})
    scaled = move(replicas=2, slots=(0, 1, 5), moved_at=at(5))
    measured = measure(scaled, found, POLICY, LOST)
    assert (measured.recovered_at, measured.whole_at) == (at(9), at(9))
    deleted = measure(move(replicas=0, moved_at=at(5)), MovedReplicas(), POLICY, LOST)
    assert deleted.whole_at == at(5)


def test_a_moved_job_is_whole_when_the_rest_of_it_is_done() -> None:
    found = MovedReplicas({0: at(8)}, done=frozenset({1}))
    job = move(kind="job", moved_at=at(5))
    assert measure(job, found, POLICY, LOST).whole_at == at(8)
    assert measure(job, MovedReplicas({0: at(8)}), POLICY, LOST).whole_at is None


@pytest.mark.parametrize(
    ("of", "is_open"),
    [
        (move(), True),
        (move(moved_at=at(5), whole_at=at(8)), True),
        (move(moved_at=at(5), whole_at=at(8), recovered_at=at(7)), False),
        (move("job", kind="job", moved_at=at(5), whole_at=at(8)), False),
        (move("usual", 500, moved_at=at(5), whole_at=at(8)), False),
        (move("usual", 500, moved_at=at(5)), True),
    ],
)
def test_what_is_whole_is_looked_at_again_only_for_the_objective(
    of: WorkloadMove, is_open: bool
) -> None:
    assert is_measured_on(of, POLICY) is is_open


@pytest.mark.parametrize(
    ("seconds", "again"),
    [(1, False), (9, False), (10, True), (12, True), (14, False), (30, True), (33, False)],
)
def test_what_may_not_have_heard_of_its_move_is_told_again_now_and_then(
    seconds: float, again: bool
) -> None:
    assert is_unheard(at(60 - seconds), NOW) is again
    assert not is_unheard(None, NOW)


def test_a_moment_that_was_reached_stays_when_replicas_fail_later() -> None:
    reached = move(moved_at=at(5), recovered_at=at(9), whole_at=at(9))
    measured = measure(reached, MovedReplicas(), POLICY, LOST)
    assert (measured.recovered_at, measured.whole_at) == (at(9), at(9))
    assert measured.serving == 0


def test_the_report_says_whether_the_objective_was_met() -> None:
    recovery = Recovery(
        region=RegionId("east"), epoch=2, phase=RecoveryPhase.HOLDING, actor=ActorId("test"),
        reason="test", lost_at=LOST, started_at=at(1), changed_at=at(1),
    )  # fmt: skip
    done = move("done", moved_at=at(5), recovered_at=at(9))
    late = move("late", moved_at=at(5), recovered_at=at(301))
    open_move = move("open", moved_at=at(5))
    low = move("low", 10)
    early = report_on(recovery, [done, open_move, low], POLICY, NOW)
    assert (early.critical, early.recovered, early.missed, early.is_met) == (2, 1, 0, False)
    assert report_on(recovery, [done, low], POLICY, NOW).is_met
    ended = report_on(recovery, [done, late, open_move], POLICY, at(400))
    assert (ended.missed, ended.slowest_seconds, ended.is_met) == (2, 301.0, False)

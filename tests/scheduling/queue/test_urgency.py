"""A deadline raises the priority of a job in steps, within what the policy allows."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.model.policy.policy import Urgency
from durable.scheduling.policies import PolicyError, first_policy, read_policy
from durable.scheduling.queue.urgency import urgency_at

T0 = datetime(2030, 1, 1, tzinfo=UTC)
POLICY = Urgency(most=200, ceiling=800, steps=4, begins=0.5)


def minutes(count: float) -> datetime:
    return T0 + timedelta(minutes=count)


@pytest.mark.parametrize(
    ("priority", "now", "raised_by", "until"),
    [
        pytest.param(600, 0, 0, 40, id="just admitted"),
        pytest.param(600, 39.9, 0, 40, id="half of the time is left"),
        pytest.param(600, 40, 50, 50, id="first step"),
        pytest.param(600, 50, 100, 60, id="second step"),
        pytest.param(600, 69.9, 150, 70, id="third step"),
        pytest.param(600, 70, 200, None, id="last step, before the deadline"),
        pytest.param(600, 80, 200, None, id="at the deadline"),
        pytest.param(600, 800, 200, None, id="long after it"),
        pytest.param(700, 70, 100, None, id="not above the ceiling"),
        pytest.param(700, 40, 25, 50, id="steps of what the ceiling leaves"),
        pytest.param(800, 70, 0, None, id="at the ceiling"),
        pytest.param(900, 70, 0, None, id="critical work stays as it is"),
        pytest.param(0, -5, 0, 40, id="a clock that is behind"),
    ],
)
def test_steps(priority: int, now: float, raised_by: int, until: float | None) -> None:
    found = urgency_at(POLICY, priority, T0, minutes(80), minutes(now))
    assert found == (raised_by, None if until is None else minutes(until))


def test_a_policy_may_leave_deadlines_without_effect() -> None:
    none = Urgency(most=0)
    assert urgency_at(none, 100, T0, minutes(80), minutes(79)) == (0, None)


def test_the_shipped_policy_keeps_deadlines_below_critical_work() -> None:
    assert first_policy().urgency == POLICY


def test_an_older_policy_has_the_usual_urgency() -> None:
    plain = first_policy().model_dump(mode="json", exclude={"urgency"})
    assert read_policy(plain).urgency == POLICY


@pytest.mark.parametrize(
    "urgency", [{"most": -1}, {"ceiling": 1_001}, {"steps": 0}, {"begins": 1.0}, {"mots": 3}]
)
def test_a_policy_that_makes_no_sense_is_refused(urgency: dict[str, float]) -> None:
    plain = first_policy().model_dump(mode="json")
    with pytest.raises(PolicyError, match="urgency"):
        read_policy({**plain, "urgency": urgency})


policies = st.builds(
    Urgency,
    most=st.integers(0, 1_000),
    ceiling=st.integers(0, 1_000),
    steps=st.integers(1, 100),
    begins=st.floats(0, 0.99),
)


@given(
    policies,
    st.integers(0, 1_000),
    st.integers(1, 10**7),
    st.lists(st.integers(-100, 2 * 10**7), min_size=2, max_size=20),
)
def test_it_only_grows_and_says_until_when(
    policy: Urgency, priority: int, seconds: int, moments: list[int]
) -> None:
    due = T0 + timedelta(seconds=seconds)
    before = 0
    for moment in sorted(moments):
        now = T0 + timedelta(seconds=moment)
        raised_by, until = urgency_at(policy, priority, T0, due, now)
        assert before <= raised_by <= policy.most
        assert raised_by == 0 or priority + raised_by <= policy.ceiling
        assert until is None or until > now
        if until is not None:
            just_before = until - timedelta(microseconds=1)
            if just_before > now:
                again = urgency_at(policy, priority, T0, due, just_before)
                assert again.raised_by == raised_by
        before = raised_by

"""The next step of a revision, case by case; and that any order of steps ends."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.model.ids import RegionId
from durable.model.policy.policy import Guardrails
from durable.model.policy.rollout import PolicyHealth, PolicyPhase, PolicyRollout, RegionPolicy
from durable.model.states import PolicyState
from durable.planners.policy_rollout.guardrails import broken_guardrail, stricter
from durable.planners.policy_rollout.steps import (
    Enter,
    Hold,
    LeaveRegion,
    ObservedPolicy,
    PolicyStep,
    Reach,
    Trip,
    Watch,
    next_step,
)
from durable.planners.rest import Rest
from tests.planners.policy_rollout.rollouts import (
    EAST,
    NORTH,
    T0,
    WEST,
    after,
    bake,
    regions,
    rollout,
)

GUARDRAILS = Guardrails(bake_seconds=300, step_seconds=60)
NEW, CANARY, ACTIVE = PolicyState.PUBLISHED, PolicyState.CANARY, PolicyState.ACTIVE
OLD, BACK = PolicyState.SUPERSEDED, PolicyState.ROLLED_BACK
WIDENING, ROLLING_BACK = PolicyPhase.WIDENING, PolicyPhase.ROLLING_BACK
SICK = PolicyHealth(pending_percent=30)


def step(
    of: PolicyRollout,
    now: float = 0,
    missing: str = "",
    frozen: str = "",
    age: float | None = None,
    **fields: Any,
) -> PolicyStep:
    """So many seconds after the note, and in force for as long as that unless stated otherwise."""
    away = {RegionId(missing): "no route"} if missing else {}
    froze = {RegionId(name): f"ann froze {name}" for name in frozen.split()}
    states = {name: value for name, value in fields.items() if isinstance(value, PolicyState)}
    health = fields.get("health")
    held = regions(now if age is None else age, **states)
    observed = ObservedPolicy(of, held, after(now), away, health, froze)
    return next_step(observed, GUARDRAILS)


def test_a_published_revision_waits_for_a_person() -> None:
    assert step(rollout(PolicyPhase.SHADOW), east=NEW) == Rest("a person to promote it")


@pytest.mark.parametrize(
    ("of", "fields", "expected"),
    [
        # The canary: what waits there is noted first, then it decides, then it is watched.
        (rollout(), {"east": NEW, "west": NEW}, Watch(EAST)),
        (rollout(bake=bake()), {"east": NEW, "west": NEW}, Enter(EAST, CANARY)),
        (rollout(bake=bake()), {"east": CANARY, "now": 300}, Reach(WIDENING)),
        (rollout(bake=bake(is_cut_short=True)), {"east": CANARY}, Reach(WIDENING)),
        (rollout(bake=bake()), {"east": CANARY, "now": 299, "health": SICK, "west": NEW},
         Trip("30 % of the replicas in east wait, 30 points more than before (allowed: 10)")),
        (rollout(bake=bake(pending_percent_before=25)),
         {"east": CANARY, "now": 300, "health": SICK}, Reach(WIDENING)),
        # Region by region, each watched for a while.
        (rollout(WIDENING, bake=bake()), {"east": CANARY, "west": NEW}, Enter(EAST, ACTIVE)),
        (rollout(WIDENING, bake=bake()), {"east": ACTIVE, "north": NEW, "west": NEW},
         Watch(NORTH)),
        (rollout(WIDENING, bake=bake(NORTH)), {"east": ACTIVE, "north": NEW, "west": NEW},
         Enter(NORTH, ACTIVE)),
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "north": ACTIVE, "west": NEW, "now": 60}, Watch(WEST)),
        (rollout(WIDENING, bake=bake(WEST)),
         {"east": ACTIVE, "north": ACTIVE, "west": ACTIVE, "now": 60},
         Reach(PolicyPhase.EVERYWHERE)),
        # One that a person has promoted on goes on without it.
        (rollout(WIDENING, bake=bake(WEST, is_cut_short=True)),
         {"east": ACTIVE, "north": NEW, "missing": "west", "now": 60}, Watch(NORTH)),
        # The watch counts from when it came into force, however late that was, and by both clocks.
        (rollout(bake=bake()), {"east": CANARY, "now": 9_000, "age": 300}, Reach(WIDENING)),
        # A freeze of one region keeps no other waiting, also one that came after its watch began.
        (rollout(WIDENING, bake=bake()),
         {"east": ACTIVE, "north": NEW, "west": NEW, "frozen": "north"}, Watch(WEST)),
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "north": NEW, "west": NEW, "frozen": "north"}, Watch(WEST)),
        # Back: every region, and those that follow an older order again.
        (rollout(ROLLING_BACK, bake=bake()), {"east": CANARY, "west": NEW}, LeaveRegion(EAST)),
        (rollout(ROLLING_BACK), {"east": BACK, "west": OLD}, LeaveRegion(WEST)),
        (rollout(ROLLING_BACK, number=8), {"east": BACK}, LeaveRegion(EAST)),
        (rollout(ROLLING_BACK), {"east": BACK, "west": BACK}, Reach(PolicyPhase.ROLLED_BACK)),
    ],
)  # fmt: skip
def test_the_next_step(of: PolicyRollout, fields: dict[str, Any], expected: PolicyStep) -> None:
    assert step(of, **fields) == expected


@pytest.mark.parametrize(
    ("of", "fields", "words"),
    [
        (rollout(bake=bake()), {"east": CANARY, "now": 299}, "east is watched until 00:05:00Z"),
        # It came into force an hour after the note; and a clock there that jumped ends nothing.
        (rollout(bake=bake()), {"east": CANARY, "now": 3600, "age": 0}, "until 01:05:00Z"),
        (rollout(bake=bake()), {"east": CANARY, "now": 10, "age": 3600}, "until 00:05:00Z"),
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "north": ACTIVE, "west": NEW, "now": 3600, "age": 1}, "until 01:00:59Z"),
        (rollout(is_paused=True), {"east": NEW}, "alice paused it (INC-42)"),
        (rollout(), {"missing": "east", "west": NEW}, "east to answer: no route"),
        (rollout(WIDENING, bake=bake(NORTH)), {"east": ACTIVE, "north": ACTIVE, "west": NEW},
         "north is watched until 00:01:00Z"),
        (rollout(WIDENING, bake=bake(EAST)), {"east": ACTIVE, "missing": "west"},
         "west to answer: no route"),
        # What it does there is not known: no other region follows before its time is over.
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "missing": "north", "west": NEW, "now": 59},
         "north to answer, which is watched; paused at 00:11:00Z if it does not: no route"),
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "missing": "north", "west": NEW, "now": 659}, "paused at 00:11:00Z"),
        (rollout(bake=bake()), {"missing": "east", "west": NEW, "now": 899},
         "east to answer, which is watched; paused at 00:15:00Z if it does not: no route"),
        # A person who promoted it again waits for as long again.
        (rollout(WIDENING, bake=bake(NORTH), changed_at=after(1000)),
         {"east": ACTIVE, "missing": "north", "west": NEW, "now": 1659}, "paused at 00:27:40Z"),
        (rollout(ROLLING_BACK), {"east": BACK, "missing": "west"}, "west to answer: no route"),
        (rollout(WIDENING, bake=bake(WEST)),
         {"east": ACTIVE, "north": NEW, "west": ACTIVE, "frozen": "north", "now": 60},
         "ann froze north"),
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "north": ACTIVE, "west": NEW, "frozen": "north west"},
         "north is watched until 00:01:00Z"),
    ],
)  # fmt: skip
def test_a_wait_says_what_for(of: PolicyRollout, fields: dict[str, Any], words: str) -> None:
    rest = step(of, **fields)
    assert isinstance(rest, Rest)
    assert words in rest.why
    assert not rest.is_final


@pytest.mark.parametrize(
    ("of", "fields"),
    [
        (rollout(bake=bake()), {"missing": "east", "west": NEW, "now": 900}),
        (rollout(WIDENING, bake=bake(NORTH)),
         {"east": ACTIVE, "missing": "north", "west": NEW, "now": 660}),
    ],
)  # fmt: skip
def test_a_region_that_stays_silent_while_it_is_watched_pauses_the_promotion(
    of: PolicyRollout, fields: dict[str, Any]
) -> None:
    held = step(of, **fields)
    assert isinstance(held, Hold)
    assert "does not answer while it is watched" in held.sentence
    assert "promote revision 5" in held.sentence


@pytest.mark.parametrize("phase", [PolicyPhase.EVERYWHERE, PolicyPhase.SUPERSEDED,
                                   PolicyPhase.ROLLED_BACK])  # fmt: skip
def test_what_has_settled_has_no_next_step(phase: PolicyPhase) -> None:
    rest = step(rollout(phase), east=ACTIVE)
    assert isinstance(rest, Rest)
    assert rest.is_final


def test_a_guardrail_trips_also_while_the_rollout_is_paused() -> None:
    paused = rollout(bake=bake(), is_paused=True)
    assert isinstance(step(paused, east=CANARY, health=SICK), Trip)


@pytest.mark.parametrize(
    ("limit", "strict", "lax"),
    [
        ("pending_rise_percent", 5.0, 100.0),
        ("refused_percent", 20.0, 100.0),
        ("place_seconds", 30.0, 86_400.0),
        ("least_decisions", 2, 10_000),
    ],
)
def test_no_revision_loosens_the_limits_that_it_is_judged_by(
    limit: str, strict: float, lax: float
) -> None:
    for candidate, in_force in ((strict, lax), (lax, strict)):
        own = GUARDRAILS.model_copy(update={limit: candidate, "bake_seconds": 7})
        other = GUARDRAILS.model_copy(update={limit: in_force})
        assert stricter(own, other) == own.model_copy(update={limit: strict})


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"pending_percent": 10.0}, None),
        ({"pending_percent": 11.0}, "11 points more than before"),
        # Too few decisions say nothing.
        ({"decisions": 4, "reserves": 4, "refused": 4, "place_seconds": 900.0}, None),
        ({"decisions": 5, "reserves": 4, "refused": 2}, None),
        ({"decisions": 5, "reserves": 4, "refused": 3}, "3 of 4 reservations in east were refused"),
        ({"decisions": 5, "place_seconds": 60.0}, None),
        ({"decisions": 5, "place_seconds": 61.0}, "waits longer than 61 s"),
        ({}, None),
    ],
)
def test_a_guardrail_says_which_bound_is_broken(health: dict[str, Any], words: str | None) -> None:
    broken = broken_guardrail(GUARDRAILS, bake(), PolicyHealth(**health))
    assert broken is None if words is None else words in (broken or "")


# ── whatever happens, it ends ───────────────────────────────────────────────────────────────────


def take(observed: ObservedPolicy, taken: PolicyStep) -> ObservedPolicy:
    """What the authority would hold after the step."""
    of, held = observed.rollout, dict(observed.regions)
    match taken:
        case Watch(region):
            noted = bake(region).model_copy(update={"since": observed.now})
            return replace(observed, rollout=of.model_copy(update={"bake": noted}))
        case Enter(region, state):
            held[region] = RegionPolicy(state=state, number=of.number)
        case LeaveRegion(region):
            held[region] = RegionPolicy(state=BACK, number=of.number)
        case Reach(phase):
            return replace(observed, rollout=of.model_copy(update={"phase": phase}))
        case Trip():
            back = {"phase": ROLLING_BACK, "number": of.number + 1}
            return replace(observed, rollout=of.model_copy(update=back), health=None)
        case Hold():
            return replace(observed, rollout=of.model_copy(update={"is_paused": True}))
        case Rest(_, until):
            waited = ((until or observed.now) - observed.now).total_seconds()
            aged = {
                name: one.model_copy(update={"age_seconds": one.age_seconds + waited})
                for name, one in held.items()
            }
            return replace(observed, now=until or observed.now, regions=aged)
    return replace(observed, regions=held)


@given(
    names=st.sets(st.sampled_from([EAST, NORTH, WEST]), min_size=1),
    sick_after=st.integers(0, 40),
    back_after=st.integers(0, 40),
)
def test_every_way_ends_with_one_revision_everywhere(
    names: set[RegionId], sick_after: int, back_after: int
) -> None:
    held = {name: RegionPolicy(state=NEW) for name in names}
    observed = ObservedPolicy(rollout(canary=min(names)), held, T0)
    for count in range(60):
        if count == sick_after and observed.rollout.bake is not None:
            observed = replace(observed, health=SICK)
        if count == back_after and not observed.rollout.is_settled:
            back = {"phase": ROLLING_BACK, "number": 8}
            observed = replace(observed, rollout=observed.rollout.model_copy(update=back))
        taken = next_step(observed, GUARDRAILS)
        if isinstance(taken, Rest) and taken.is_final:
            break
        canaries = [one for one in observed.regions.values() if one.state is CANARY]
        assert len(canaries) <= 1
        observed = take(observed, taken)
    end = PolicyState.ACTIVE if observed.rollout.phase is PolicyPhase.EVERYWHERE else BACK
    assert observed.rollout.is_settled
    assert {one.state for one in observed.regions.values()} == {end}

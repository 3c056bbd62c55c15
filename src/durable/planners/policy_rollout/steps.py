"""The next step of a policy revision: pure, so that every case is a row of a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from durable.model.ids import RegionId
from durable.model.policy.policy import Guardrails
from durable.model.policy.rollout import (
    Bake,
    PolicyHealth,
    PolicyPhase,
    PolicyRollout,
    RegionPolicy,
)
from durable.model.states import PolicyState
from durable.planners.policy_rollout.guardrails import broken_guardrail
from durable.planners.rest import Rest

# After the time of its watch, a region that does not answer is waited for so long.
SILENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class ObservedPolicy:
    """A revision as the authority has it at one moment."""

    rollout: PolicyRollout
    regions: Mapping[RegionId, RegionPolicy]
    now: datetime
    # Regions that did not answer, with the reason.
    unreachable: Mapping[RegionId, str] = field(default_factory=dict[RegionId, str])
    # Of the region that is watched.
    health: PolicyHealth | None = None
    # Regions where a person has frozen the policy, with the sentence that says so.
    frozen: Mapping[RegionId, str] = field(default_factory=dict[RegionId, str])

    def state(self, region: RegionId) -> PolicyState | None:
        found = self.regions.get(region)
        return None if found is None else found.state


@dataclass(frozen=True)
class Watch:
    """Note what a region shows before the revision comes into force there."""

    region: RegionId


@dataclass(frozen=True)
class Enter:
    """Bring the revision into force in a region."""

    region: RegionId
    state: PolicyState


@dataclass(frozen=True)
class LeaveRegion:
    """Roll the revision back in a region."""

    region: RegionId


@dataclass(frozen=True)
class Reach:
    """Record that the revision has come to another phase."""

    phase: PolicyPhase


@dataclass(frozen=True)
class Trip:
    """A guardrail is broken: roll back."""

    sentence: str


@dataclass(frozen=True)
class Hold:
    """The region that is watched has been silent for too long: pause, so that a person decides."""

    sentence: str


PolicyStep = Watch | Enter | LeaveRegion | Reach | Trip | Hold | Rest


def next_step(observed: ObservedPolicy, guardrails: Guardrails) -> PolicyStep:
    """What comes next; asked again after each step."""
    phase = observed.rollout.phase
    match phase:
        case PolicyPhase.SHADOW:
            return Rest("a person to promote it")
        case PolicyPhase.CANARY | PolicyPhase.WIDENING:
            return _forward(observed, guardrails)
        case PolicyPhase.ROLLING_BACK:
            return _back(observed)
        case PolicyPhase.EVERYWHERE | PolicyPhase.SUPERSEDED | PolicyPhase.ROLLED_BACK:
            return Rest("", is_final=True)
    assert_never(phase)


def _forward(observed: ObservedPolicy, guardrails: Guardrails) -> PolicyStep:
    rollout = observed.rollout
    bake, health = rollout.bake, observed.health
    if bake is not None and health is not None:
        broken = broken_guardrail(guardrails, bake, health)
        if broken is not None:
            return Trip(broken)
    if rollout.is_paused:
        return Rest(f"a person to promote it: {rollout.actor} paused it ({rollout.reason[:200]})")
    if rollout.phase is PolicyPhase.CANARY:
        return _canary(observed, guardrails)
    return _widen(observed, guardrails)


def _canary(observed: ObservedPolicy, guardrails: Guardrails) -> PolicyStep:
    rollout = observed.rollout
    region, bake = rollout.canary, rollout.bake
    assert region is not None, "a canary has its region"
    if region in observed.unreachable:
        if bake is None or bake.is_cut_short:
            return Rest(f"{region} to answer: {observed.unreachable[region]}")
        return _silent(observed, bake, guardrails.bake_seconds)
    if bake is None:
        return Watch(region)
    if observed.state(region) not in (PolicyState.CANARY, PolicyState.ACTIVE):
        return Enter(region, PolicyState.CANARY)
    return _baking(observed, bake, guardrails.bake_seconds) or Reach(PolicyPhase.WIDENING)


def _widen(observed: ObservedPolicy, guardrails: Guardrails) -> PolicyStep:
    """Region by region, the canary's first: there it only becomes the one active revision."""
    rollout, bake = observed.rollout, observed.rollout.bake
    canary = rollout.canary
    if canary is not None and observed.state(canary) is PolicyState.CANARY:
        return Enter(canary, PolicyState.ACTIVE)
    if bake is not None and bake.region != canary:
        is_there = observed.state(bake.region) is PolicyState.ACTIVE
        is_unreachable = bake.region in observed.unreachable
        if not is_there and not is_unreachable and bake.region not in observed.frozen:
            return Enter(bake.region, PolicyState.ACTIVE)
        if is_there or is_unreachable:
            wait = _baking(observed, bake, guardrails.step_seconds)
            if wait is not None:
                return wait
    known = {*observed.regions, *observed.unreachable}
    left = sorted(one for one in known if observed.state(one) is not PolicyState.ACTIVE)
    for region in left:
        # A freeze of one region is no reason for another to wait.
        if region not in observed.unreachable and region not in observed.frozen:
            return Watch(region)
    if left:
        frozen, first = observed.frozen.get(left[0]), left[0]
        return Rest(frozen or f"{first} to answer: {observed.unreachable[first]}")
    return Reach(PolicyPhase.EVERYWHERE)


def _baking(observed: ObservedPolicy, bake: Bake, seconds: float) -> Hold | Rest | None:
    """The wait for the end of a watch, which ends only where the region shows how it fares."""
    if bake.is_cut_short:
        return None
    if bake.region in observed.unreachable:
        return _silent(observed, bake, seconds)
    # By the region's own clock since it came into force there, and by ours since the note before
    # that: one of them may have jumped.
    noted = (observed.now - bake.since).total_seconds()
    left = seconds - min(observed.regions[bake.region].age_seconds, noted)
    if left <= 0:
        return None
    ends_at = observed.now + timedelta(seconds=left)
    return Rest(f"{bake.region} is watched until {ends_at:%H:%M:%S}Z", ends_at)


def _silent(observed: ObservedPolicy, bake: Bake, seconds: float) -> Hold | Rest:
    """What a region does that does not answer is not known, so no other follows it."""
    rollout, why = observed.rollout, observed.unreachable[bake.region]
    held_at = max(bake.since, rollout.changed_at) + timedelta(seconds=seconds) + SILENCE
    if observed.now < held_at:
        return Rest(
            f"{bake.region} to answer, which is watched; paused at {held_at:%H:%M:%S}Z if it does "
            f"not: {why}",
            held_at,
        )
    return Hold(
        f"{bake.region} does not answer while it is watched: promote revision {rollout.revision} "
        "to wait for it again, and once more with --now to go on without it"
    )


def _back(observed: ObservedPolicy) -> PolicyStep:
    """Every region that answers at once; the others as soon as they do."""
    number = observed.rollout.number
    for region, policy in sorted(observed.regions.items()):
        if policy.state is not PolicyState.ROLLED_BACK or policy.number < number:
            return LeaveRegion(region)
    for region, why in sorted(observed.unreachable.items()):
        return Rest(f"{region} to answer: {why}")
    return Reach(PolicyPhase.ROLLED_BACK)

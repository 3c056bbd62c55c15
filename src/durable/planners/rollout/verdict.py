"""Whether a rollout goes on, has to be rolled back, or is done; and when to look at it again."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from durable.model.ids import RegionId
from durable.model.work.rollout import Rollout, RolloutState, RolloutStep, rounded_up
from durable.planners.rollout.planner import RolloutPlan
from durable.validation.quantities import show_duration


@dataclass(frozen=True)
class RolloutVerdict:
    """The rollout as it is to be remembered, and why it must be rolled back, if so."""

    state: RolloutState
    roll_back: str | None = None


def judge(
    state: RolloutState,
    rollout: Rollout,
    plan: RolloutPlan,
    *,
    failures: int,
    now: datetime,
) -> RolloutVerdict:
    """What the last step of a rollout means: the pure part of every automatic rollback."""
    followed = follow(state, plan, now)
    if followed.rollback is not None or plan.is_replaced:
        return RolloutVerdict(followed)
    most = rollout.failures_allowed(plan.progress.wanted)
    if failures >= most:
        return RolloutVerdict(
            followed, f"its replicas failed {failures} times; {most} are too many"
        )
    if now - followed.progressed_at >= rollout.progress_deadline:
        late = show_duration(rollout.progress_deadline)
        done = f"{plan.progress.replaced} of {plan.progress.wanted} replicas were available"
        return RolloutVerdict(followed, f"it made no progress for {late}: {done}")
    return RolloutVerdict(followed)


def follow(state: RolloutState, plan: RolloutPlan, now: datetime) -> RolloutState:
    """What was reached, and since when; only what the rollout itself owes can be late."""
    served = {
        RegionId(region): state.served_since.get(RegionId(region), now)
        for region in sorted(plan.done_regions)
    }
    has_more = plan.progress.replaced > state.replaced
    return state.model_copy(
        update={
            "served_since": served,
            "replaced": max(state.replaced, plan.progress.replaced),
            "progressed_at": now if has_more or _is_at_rest(plan) else state.progressed_at,
        }
    )


def _is_at_rest(plan: RolloutPlan) -> bool:
    """Whether it waits for a person, a bake, or what no generation could help."""
    return plan.progress.step is RolloutStep.PAUSED or plan.progress.awaited == 0


def baked_regions(state: RolloutState, rollout: Rollout, now: datetime) -> frozenset[str]:
    """Regions that have served for their bake time."""
    bake = rollout.bake or timedelta(0)
    return frozenset(
        str(region) for region, since in state.served_since.items() if now - since >= bake
    )


def pause_point(state: RolloutState, rollout: Rollout, replicas: int) -> int | None:
    """How many replicas may be replaced before a person promotes the rollout; None for all."""
    if state.promoted >= len(rollout.pauses):
        return None
    return min(replicas, rounded_up(rollout.pauses[state.promoted], replicas))


def look_again_at(
    state: RolloutState,
    rollout: Rollout,
    plan: RolloutPlan,
    ready_at: Iterable[datetime],
    now: datetime,
) -> datetime | None:
    """When something is due that nothing reports: a ready time, a bake, or the deadline."""
    moments = list(ready_at)
    if state.rollback is None and not plan.is_replaced:
        bake = rollout.bake or timedelta(0)
        baked = [since + bake for since in state.served_since.values()]
        moments += [moment for moment in baked if moment > now]
        if not _is_at_rest(plan):
            moments.append(state.progressed_at + rollout.progress_deadline)
    return min(moments, default=None)

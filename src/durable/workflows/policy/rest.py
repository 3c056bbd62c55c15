"""How long a policy rests before it looks again by itself; a message or a hint wakes it at once."""

from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.policy.rollout import PolicyPhase, PolicyProgress, PolicyRollout
    from durable.workflows import timeouts


def rest_of(progress: PolicyProgress, now: datetime) -> timedelta:
    """Long while only a person can move it, and at most until what it waits for is due."""
    rollout = progress.rollout
    if rollout.phase is PolicyPhase.SHADOW:
        return timeouts.POLICY_IDLE
    if rollout.is_paused:
        return _paused(rollout, now)
    return timeouts.rest_until(progress.look_at, now, timeouts.POLICY_LOOK)


def _paused(rollout: PolicyRollout, now: datetime) -> timedelta:
    """Half as long as it was paused already: what goes wrong because of it mostly does so soon."""
    if rollout.bake is None:
        return timeouts.POLICY_IDLE  # it is in force nowhere, so that no guardrail can break
    paused_for = now - rollout.changed_at
    return min(timeouts.POLICY_PAUSED_LONGEST, max(timeouts.POLICY_LOOK, paused_for / 2))

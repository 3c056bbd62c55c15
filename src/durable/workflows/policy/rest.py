"""How long a policy rests before it looks again by itself; a message or a hint wakes it at once."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.policy.rollout import PolicyPhase, PolicyProgress
    from durable.workflows import timeouts


def rest_of(progress: PolicyProgress) -> timedelta:
    """Long while only a person can move it, and at most until what it waits for is due."""
    rollout = progress.rollout
    if rollout.phase is PolicyPhase.SHADOW:
        return timeouts.POLICY_IDLE
    if rollout.is_paused:
        return _paused(progress)
    return timeouts.rest_for(progress.look_in, timeouts.POLICY_LOOK)


def _paused(progress: PolicyProgress) -> timedelta:
    """Half as long as it was paused already: what goes wrong because of it mostly does so soon."""
    if progress.rollout.bake is None:
        return timeouts.POLICY_IDLE  # it is in force nowhere, so that no guardrail can break
    paused_for = timedelta(seconds=progress.ordered_for_seconds)
    return min(timeouts.POLICY_PAUSED_LONGEST, max(timeouts.POLICY_LOOK, paused_for / 2))

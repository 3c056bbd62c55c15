"""Whether a region shows that a new revision does harm."""

from durable.model.policy import Guardrails
from durable.model.policy_rollout import Bake, PolicyHealth


def broken_guardrail(guardrails: Guardrails, bake: Bake, health: PolicyHealth) -> str | None:
    """The first guardrail that is broken, as a sentence; none while all hold."""
    rise = health.pending_percent - bake.pending_percent_before
    if rise > guardrails.pending_rise_percent:
        return (
            f"{health.pending_percent:.0f} % of the replicas in {bake.region} wait, "
            f"{rise:.0f} points more than before (allowed: {guardrails.pending_rise_percent:g})"
        )
    if health.decisions < guardrails.least_decisions:
        return None
    if health.refused_percent > guardrails.refused_percent:
        return (
            f"{health.refused:,} of {health.reserves:,} reservations in {bake.region} were refused "
            f"(allowed: {guardrails.refused_percent:g} %)"
        )
    waited = health.place_seconds
    if waited is not None and waited > guardrails.place_seconds:
        return (
            f"one of twenty replicas in {bake.region} waits longer than {waited:.0f} s for a node "
            f"(allowed: {guardrails.place_seconds:g} s)"
        )
    return None

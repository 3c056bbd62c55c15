"""Whether a region shows that a new revision does harm."""

from durable.model.policy.policy import Guardrails
from durable.model.policy.rollout import Bake, PolicyHealth


def stricter(one: Guardrails, other: Guardrails) -> Guardrails:
    """Each limit as the stricter of two revisions has it: none is judged by its own word alone.

    How long it is watched stays as the first says: a promotion may cut that short anyhow.
    """
    limits = ("pending_rise_percent", "refused_percent", "place_seconds", "least_decisions")
    return one.model_copy(
        update={name: min(getattr(one, name), getattr(other, name)) for name in limits}
    )


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

"""The overrides of a region as decisions and commits see them, and what follows for one workload.

Whatever a row says, time has the last word: each question is asked at a moment.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import AwareDatetime

from durable.model.ids import ActorId, OverrideId
from durable.model.overrides.effects import Effects, Gate, OverrideScope
from durable.validation.text import show_moment
from durable.validation.value import Value

# The highest that a workload can have by itself.
MAX_PRIORITY = 1_000


class RegionalOverride(Value):
    """A region's copy of one override."""

    override: OverrideId
    kind: str
    scope: OverrideScope
    effects: Effects
    actor: ActorId
    reason: str
    expires_at: AwareDatetime

    def __str__(self) -> str:
        return (
            f"override {self.override} ({self.kind} by {self.actor} until "
            f"{show_moment(self.expires_at)}: {self.reason[:120]})"
        )


def concerning(
    overrides: Iterable[RegionalOverride], tenant: str, workload: str, now: datetime
) -> tuple[RegionalOverride, ...]:
    """Those that are in force at this moment and mean this workload, in a fixed order."""
    found = (
        one
        for one in overrides
        if now < one.expires_at
        and one.scope.concerns(tenant, workload)
        and one.effects.is_about_work
    )
    return tuple(sorted(found, key=lambda one: one.override))


def skipped_gates(overrides: Iterable[RegionalOverride]) -> frozenset[Gate]:
    return frozenset(gate for one in overrides for gate in one.effects.skips)


def skipping_only(
    overrides: Iterable[RegionalOverride], gates: frozenset[Gate]
) -> tuple[RegionalOverride, ...]:
    """The same overrides, letting pass none but these gates."""
    return tuple(_skipping_only(one, gates) for one in overrides)


def _skipping_only(override: RegionalOverride, gates: frozenset[Gate]) -> RegionalOverride:
    effects = override.effects
    if gates.issuperset(effects.skips):
        return override
    kept = tuple(gate for gate in effects.skips if gate in gates)
    return override.model_copy(update={"effects": effects.model_copy(update={"skips": kept})})


def holder(overrides: Sequence[RegionalOverride]) -> RegionalOverride | None:
    """What keeps the workload from being placed at all."""
    if Gate.HOLD in skipped_gates(overrides):
        return None
    return next((one for one in overrides if one.effects.holds), None)


def keeps_off(
    overrides: Sequence[RegionalOverride], zone: str, node: str
) -> RegionalOverride | None:
    """What keeps the workload off one node."""
    if Gate.AVOIDED in skipped_gates(overrides):
        return None
    return next((one for one in overrides if not one.effects.allows(zone, node)), None)


def raised(priority: int, overrides: Iterable[RegionalOverride]) -> int:
    """The priority with the highest raise; several do not add up."""
    by = max((one.effects.raises_priority for one in overrides), default=0)
    return min(priority + by, max(priority, MAX_PRIORITY)) if by else priority

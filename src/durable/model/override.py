"""Human control with a time limit: what a person may change, for how long, and who agreed."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import AwareDatetime, JsonValue, model_validator

from durable.model.ids import ActorId, OverrideId
from durable.model.states import OverrideState
from durable.validation.text import PlainText
from durable.validation.value import Value


class OverrideKind(StrEnum):
    EMERGENCY_QUOTA = "emergency_quota"
    RECOVERY_BUDGET = "recovery_budget"
    AVOID_ZONE = "avoid_zone"
    PIN_PLACEMENT = "pin_placement"
    HOLD_PLACEMENT = "hold_placement"
    PRIORITY_BOOST = "priority_boost"
    AUTOSCALER_PAUSE = "autoscaler_pause"
    REPAIR_APPROVAL = "repair_approval"
    REPAIR_PAUSE = "repair_pause"
    POLICY_FREEZE = "policy_freeze"
    BREAK_GLASS = "break_glass"


# These reach past a limit that protects somebody else, so one person alone must not.
NEEDS_APPROVAL = frozenset(
    {OverrideKind.EMERGENCY_QUOTA, OverrideKind.RECOVERY_BUDGET, OverrideKind.BREAK_GLASS}
)
LONGEST = timedelta(days=7)


class Override(Value):
    """One override; it ends by itself, and every end but the last can be brought forward."""

    id: OverrideId
    kind: OverrideKind
    scope: dict[str, JsonValue]
    effect: dict[str, JsonValue]
    actor: ActorId
    reason: PlainText
    approver: ActorId | None = None
    state: OverrideState = OverrideState.PROPOSED
    proposed_at: AwareDatetime
    expires_at: AwareDatetime

    @property
    def latest_expiry(self) -> datetime:
        return self.proposed_at + LONGEST

    def is_in_force(self, now: datetime) -> bool:
        """Whatever the state says, time has the last word."""
        return self.state is OverrideState.ACTIVE and now < self.expires_at

    @model_validator(mode="after")
    def _be_limited_and_approved(self) -> Self:
        if not self.proposed_at < self.expires_at <= self.latest_expiry:
            raise ValueError(f"expires_at: allowed: within {LONGEST.days} days of proposed_at")
        if self.approver == self.actor:
            raise ValueError(f"approver: got {self.approver}; allowed: a person other than actor")
        alone = self.kind in NEEDS_APPROVAL and self.approver is None
        if self.state is OverrideState.ACTIVE and alone:
            raise ValueError(f"approver: allowed: a second person, because {self.kind} needs one")
        return self

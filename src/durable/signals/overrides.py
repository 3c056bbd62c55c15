"""What can be sent to an override, and what its query `status` answers."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from durable.model.ids import RegionId
from durable.model.overrides.effects import OverrideScope
from durable.model.overrides.kind import Kind
from durable.model.overrides.kinds import KINDS, LONGEST_TTL
from durable.model.overrides.override import Override
from durable.model.states import OverrideState
from durable.signals.payloads import OperatorRequest
from durable.signals.status import MessageRecord
from durable.validation.problems import Finding, problems_in, refuse
from durable.validation.quantities import Duration, read_duration
from durable.validation.text import PlainText
from durable.validation.value import Value


class ProposeOverride(OperatorRequest):
    """Have something different for a while: in force at once, or once a second person approves."""

    kind: str
    scope: OverrideScope = OverrideScope()
    effect: dict[str, JsonValue] = Field(default={})
    # Without one, the default of its kind.
    ttl: Duration | None = None
    ticket: PlainText | None = None

    @property
    def of_kind(self) -> Kind:
        return KINDS[self.kind]

    @property
    def lasts(self) -> timedelta:
        return self.ttl or self.of_kind.default_ttl

    @field_validator("ttl", mode="before")
    @classmethod
    def _read_ttl(cls, value: object, info: ValidationInfo) -> object:
        kind = KINDS.get(str(info.data.get("kind")))
        return value if value is None or kind is None else kind.read_ttl(value)

    @model_validator(mode="after")
    def _be_of_its_kind(self) -> Self:
        kind = KINDS.get(self.kind)
        if kind is None:
            known = ", ".join(KINDS)
            clause = f"got {self.kind[:80]!r}; allowed: {known}"
            refuse("ProposeOverride", [Finding(("kind",), self.kind, clause)])
        assert kind is not None
        scope = kind.problem_with_scope(self.scope)
        findings = [Finding(("scope",), str(self.scope), scope)] if scope else []
        findings += _problems_with_effect(kind, self.effect)
        refuse("ProposeOverride", findings)
        return self


def _problems_with_effect(kind: Kind, effect: Mapping[str, Any]) -> list[Finding]:
    try:
        kind.effect.model_validate(effect)
    except ValidationError as error:
        return [
            Finding(("effect", *one.location), one.value, one.message)
            for one in problems_in(error, kind.effect)
        ]
    return []


class ApproveOverride(OperatorRequest):
    """Agree to what another person proposed: from now on it is in force."""


class RejectOverride(OperatorRequest):
    """Refuse what was proposed; it never has an effect."""


class RevokeOverride(OperatorRequest):
    """End it now."""


class ExtendOverride(OperatorRequest):
    """Let it last longer, within the maximum of its kind."""

    by: Annotated[Duration, Field(description="How much longer, such as 30m.")]

    @field_validator("by", mode="before")
    @classmethod
    def _read_by(cls, value: object) -> object:
        return read_duration(value, LONGEST_TTL)


class OverrideStatus(Value):
    # None while nothing has been proposed.
    override: Override | None
    # The regions that obey it, and those that could not be asked, with the reason.
    regions: tuple[RegionId, ...] = ()
    unreachable_regions: Mapping[RegionId, str] = Field(default={})
    # Why the authority could not be asked.
    unreachable: str = ""
    rejected: tuple[MessageRecord, ...] = ()
    rejected_count: int = 0

    @property
    def state(self) -> str:
        return "unproposed" if self.override is None else OverrideState(self.override.state).value

"""What an override and its activities exchange: plain values with defaults for new fields."""

from collections.abc import Mapping

from pydantic import AwareDatetime, Field

from durable.model.ids import OverrideId, RegionId
from durable.model.operators.rights import OperatorMessage
from durable.model.overrides.override import Override
from durable.signals.overrides import ProposeOverride
from durable.validation.quantities import Duration
from durable.validation.value import Value


class ProposeStep(Value):
    """A proposal, as it was read and as it came."""

    id: OverrideId
    proposal: ProposeOverride
    asked: OperatorMessage


class ChangeStep(Value):
    """Any other message of a person."""

    id: OverrideId
    change: str
    by: Duration | None = None
    asked: OperatorMessage


class Seen(Value):
    """The override as the authority has it, and the time there."""

    override: Override | None
    now: AwareDatetime
    # What the sender of a message is told.
    answer: str = ""


class Spread(Value):
    """Which regions obey the override as it is now, and which could not be asked."""

    number: int
    regions: tuple[RegionId, ...] = ()
    missing: Mapping[RegionId, str] = Field(default={})

"""What an override and its activities exchange: plain values with defaults for new fields."""

from collections.abc import Mapping

from pydantic import AwareDatetime, Field

from durable.model.ids import RegionId
from durable.model.overrides.override import Override
from durable.validation.value import Value


class OverrideReading(Value):
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

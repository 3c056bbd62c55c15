"""Databases that went back: restored from a backup, or failed over to a standby that was behind."""

from datetime import UTC, datetime

from pydantic import AwareDatetime

from durable.model.ids import RegionId
from durable.validation.value import Value

# Beside names of regions, none of which may be this.
GLOBAL_SIDE = "global"

_FROM = datetime(2025, 1, 1, tzinfo=UTC)


class WentBack(Value):
    """A database that is older than what others know of it, and therefore changes nothing."""

    went_back_at: AwareDatetime
    why: str
    serves_global: bool
    regions: tuple[RegionId, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return ((GLOBAL_SIDE,) if self.serves_global else ()) + tuple(map(str, self.regions))


def epoch_at(now: datetime) -> int:
    """The epoch of a restore at this moment: above that of every restore and copy before it."""
    return int((now - _FROM).total_seconds() * 1000)


class RestoredSide(Value):
    """What an operator says was restored: one region, the global side, or everything."""

    region: RegionId | None = None
    is_all: bool = False

    @property
    def is_region(self) -> bool:
        return self.region is not None

    def __str__(self) -> str:
        return str(self.region) if self.region else ("--all" if self.is_all else "--global")

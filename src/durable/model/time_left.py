"""What is left of a limit: the only form in which one crosses from one clock to another.

Two clocks are never compared. Whoever has the limit says how much of it is left by its own clock;
whoever receives that counts it from its own clock, read before the other was asked, so that the
limit may end early by what the way took, and never late.
"""

from datetime import datetime, timedelta
from typing import Self

from durable.validation.value import Value


class TimeLeft(Value):
    """How many seconds are left; below zero of what is over."""

    seconds: float

    @classmethod
    def of(cls, ends_at: datetime, now: datetime) -> Self:
        """Both by one clock."""
        return cls(seconds=(ends_at - now).total_seconds())

    @property
    def is_over(self) -> bool:
        return self.seconds <= 0

    def counted_from(self, now: datetime) -> datetime:
        """When it ends by another clock, which was read before."""
        return now + timedelta(seconds=self.seconds)

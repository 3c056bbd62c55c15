"""The step that planners answer when nothing is to be done now."""

from dataclasses import dataclass
from datetime import datetime

from durable.validation.text import shorten


@dataclass(frozen=True)
class Rest:
    """Nothing to do before a person orders something, or before this moment."""

    why: str
    until: datetime | None = None
    # Whether it will never go on by itself.
    is_final: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", shorten(self.why))

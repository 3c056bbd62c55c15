"""What the supervisor says while it works, for a display, a pipe or a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Event(BaseModel):
    """A step that begins or is done, something worth a note, or the verdict on the start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["begin", "done", "note", "running", "failed"]
    text: str = ""
    seconds: float = 0.0


Report = Callable[[Event], None]

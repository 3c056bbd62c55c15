"""How long something lasts, written with a unit and kept exactly."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from durable.validation.text import quote

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WRITTEN = re.compile(f"([1-9][0-9]*)([{''.join(_UNITS)}])")
_MAX_TEXT = 12
MAX_DURATION = timedelta(days=3_660)

_ALLOWED = "a whole number and a unit out of s, m, h, d, such as 90s or 30d, up to 3660d"


def read_duration(value: object) -> timedelta:
    """`30d` as exactly thirty days; durations that are not whole seconds do not exist here."""
    if isinstance(value, timedelta):
        duration = value
    else:
        match = (
            _WRITTEN.fullmatch(value)
            if isinstance(value, str) and len(value) <= _MAX_TEXT
            else None
        )
        if match is None:
            raise ValueError(f"got {quote(value)}; allowed: {_ALLOWED}")
        duration = _of_seconds(int(match[1]) * _UNITS[match[2]])
    if not timedelta(0) < duration <= MAX_DURATION or duration.microseconds:
        raise ValueError(f"got {quote(value)}; allowed: {_ALLOWED}")
    return duration


def show_duration(duration: timedelta) -> str:
    """In the largest unit that shows it exactly."""
    seconds = duration // timedelta(seconds=1)
    unit, size = next((unit, size) for unit, size in _UNITS.items() if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _of_seconds(seconds: int) -> timedelta:
    # Anything past the bound becomes one second past it, before timedelta itself overflows.
    return min(timedelta(seconds=min(seconds, 10**9)), MAX_DURATION + timedelta(seconds=1))


Duration = Annotated[
    timedelta,
    BeforeValidator(read_duration),
    PlainSerializer(show_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_WRITTEN.pattern}$"}),
]

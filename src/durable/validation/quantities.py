"""Amounts and durations as people write them, with a unit, and read exactly."""

import re
from datetime import timedelta
from functools import lru_cache
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from durable.validation.text import quote

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WRITTEN = re.compile(f"([1-9][0-9]*)([{''.join(_UNITS)}])")
_MAX_DURATION_TEXT = 12
MAX_DURATION = timedelta(days=3_660)


def read_duration(value: object, longest: timedelta = MAX_DURATION) -> timedelta:
    """`30d` as exactly thirty days; durations that are not whole seconds do not exist here."""
    if isinstance(value, timedelta):
        duration = value
    else:
        match = (
            _WRITTEN.fullmatch(value)
            if isinstance(value, str) and len(value) <= _MAX_DURATION_TEXT
            else None
        )
        if match is None:
            raise _no_duration(value, longest)
        duration = _of_seconds(int(match[1]) * _UNITS[match[2]])
    if not timedelta(0) < duration <= longest or duration.microseconds:
        raise _no_duration(value, longest)
    return duration


def _read_any(value: object) -> timedelta:
    return read_duration(value)


def _no_duration(value: object, longest: timedelta) -> ValueError:
    given = f"{value.total_seconds():g}s" if isinstance(value, timedelta) else quote(value)
    long = "30d" if longest > timedelta(days=30) else "30m"
    return ValueError(
        f"got {given}; allowed: a whole number and one of the units s, m, h, d, such as 90s or "
        f"{long}, up to {show_duration(longest)}"
    )


# Every spec is written many times on its way, with the same few durations.
@lru_cache(maxsize=1_000)
def show_duration(duration: timedelta) -> str:
    """In the largest unit that shows it exactly."""
    seconds = duration // timedelta(seconds=1)
    unit, size = next((unit, size) for unit, size in _UNITS.items() if seconds % size == 0)
    return f"{seconds // size}{unit}"


def show_roughly(duration: timedelta) -> str:
    """In its two largest units, rounded down, for people: `59m 29s`."""
    parts: list[tuple[int, str]] = []
    seconds = max(duration // timedelta(seconds=1), 0)
    for unit, size in _UNITS.items():
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count}{unit}" for count, unit in parts[:2] if count) or "0s"


def _of_seconds(seconds: int) -> timedelta:
    # Anything past the bound becomes one second past it, before timedelta itself overflows.
    return min(timedelta(seconds=min(seconds, 10**9)), MAX_DURATION + timedelta(seconds=1))


Duration = Annotated[
    timedelta,
    BeforeValidator(_read_any),
    PlainSerializer(show_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_WRITTEN.pattern}$"}),
]


# JSON consumers that keep numbers as doubles never lose a digit of these.
MAX_QUANTITY = 2**53 - 1

_MIB = 1024**2
_MEMORY_UNITS = {
    "Ki": 1024,
    "Mi": _MIB,
    "Gi": 1024**3,
    "Ti": 1024**4,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
}
# Named digits, not \d, which would also take digits of other scripts.
_NUMBER = r"(0|[1-9][0-9]*)(?:\.([0-9]+))?"
_CPU = re.compile(f"{_NUMBER}(m?)")
_MEMORY = re.compile(f"{_NUMBER}({'|'.join(_MEMORY_UNITS)})")
_MAX_TEXT = 24

_CPU_ALLOWED = "cores such as 2 or 0.5, or whole millis such as 500m"
_MEMORY_ALLOWED = "a number and one of the units Ki, Mi, Gi, Ti, M, G, T, such as 512Mi or 1.5Gi"
_COUNT_ALLOWED = "a whole number such as 1"


def read_cpu_millis(value: object) -> int:
    """Thousandths of a core from `2`, `0.5` or `500m`."""
    if type(value) is int:
        return _bounded(value * 1000, value, _CPU_ALLOWED)
    # As it was written: the shortest decimal that is this float.
    match = _match(_CPU, repr(value) if type(value) is float else value, value, _CPU_ALLOWED)
    whole, fraction, unit = match.groups()
    millis, rest = _scaled(whole, fraction, 1 if unit else 1000)
    if rest:
        raise _refusal(value, _CPU_ALLOWED, "not a whole number of millis")
    return _bounded(millis, value, _CPU_ALLOWED)


def read_memory_mib(value: object, *, round_up: bool) -> int:
    """Whole MiB from `512Mi`, `1.5Gi` or `1G`.

    A whole number of another unit is rounded up or down; a fraction must come out exactly, because
    who writes one means that amount.
    """
    if isinstance(value, int | float):
        raise _refusal(value, f"{_MEMORY_ALLOWED}; give a unit")
    match = _match(_MEMORY, value, value, _MEMORY_ALLOWED)
    whole, fraction, unit = match.groups()
    size, rest = _scaled(whole, fraction, _MEMORY_UNITS[unit])
    if fraction is not None and (rest or size % _MIB):
        raise _refusal(value, _MEMORY_ALLOWED, "not a whole number of MiB")
    return _bounded((size + (_MIB - 1 if round_up else 0)) // _MIB, value, _MEMORY_ALLOWED)


def _scaled(whole: str, fraction: str | None, unit: int) -> tuple[int, int]:
    """The number times the unit: its whole part, and whether anything is left of it."""
    digits = fraction or ""
    return divmod(int(whole + digits) * unit, 10 ** len(digits))


def read_count(value: object) -> int:
    """A number of devices, written as it is."""
    if type(value) is not int:
        raise _refusal(value, _COUNT_ALLOWED)
    return _bounded(value, value, _COUNT_ALLOWED)


def show_cpu(millis: int) -> str:
    return f"{millis}m cpu" if millis % 1000 else f"{millis // 1000} cpu"


def show_memory(mib: int) -> str:
    """In the largest unit that shows it exactly."""
    for unit, size in (("Ti", 1024**2), ("Gi", 1024)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}Mi"


def _match(pattern: re.Pattern[str], text: object, value: object, allowed: str) -> re.Match[str]:
    # The length comes first: neither the pattern nor int() runs over text of unbounded size.
    match = pattern.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_TEXT else None
    if match is None:
        raise _refusal(value, allowed)
    return match


def _bounded(amount: int, value: object, allowed: str) -> int:
    if not 0 <= amount <= MAX_QUANTITY:
        raise _refusal(value, f"{allowed}, from 0 to {MAX_QUANTITY} in millis, MiB or devices")
    return amount


def _refusal(value: object, allowed: str, why: str = "") -> ValueError:
    reason = f", which is {why}" if why else ""
    return ValueError(f"got {quote(value)}{reason}; allowed: {allowed}")

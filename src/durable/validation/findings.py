"""Several things wrong at once, each told at its own place in the input."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from durable.validation.locations import Location, dotted
from durable.validation.quoting import quote

SENTENCE = "sentence"


class Finding(NamedTuple):
    """What a rule of ours holds against a value; the clause says what is allowed."""

    location: Location
    value: object
    clause: str


def refuse(title: str, findings: Iterable[Finding]) -> None:
    """Refuse the input when there is any finding; call it inside a validator."""
    errors = [
        InitErrorDetails(
            type=PydanticCustomError(SENTENCE, "{clause}", {"clause": finding.clause}),
            loc=finding.location,
            input=finding.value,
        )
        for finding in findings
    ]
    if errors:
        raise ValidationError.from_exception_data(title, errors)


def repeated(named: Iterable[tuple[Location, str]]) -> Iterator[Finding]:
    """A finding for every name that was used before."""
    first: dict[str, Location] = {}
    for location, name in named:
        if name in first:
            clause = f"got {quote(name)} again, first used at {dotted(first[name])}"
            yield Finding(location, name, f"{clause}; allowed: every name once")
        first.setdefault(name, location)

"""What is wrong with some input, in sentences: where it is, what was given, what is allowed."""

import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from difflib import get_close_matches
from types import GenericAlias, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from durable.validation.text import quote
from durable.validation.value import Value

Location = tuple[int | str, ...]

_PLAIN = re.compile("[A-Za-z0-9_-]{1,64}")
_KEY_ITSELF = "[key]"


def dotted(location: Location) -> str:
    """`regions[0].zones` for ("regions", 0, "zones")."""
    return "".join(map(_step, location)).removeprefix(".")


def _step(part: int | str) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if part == _KEY_ITSELF:
        return " (the key)"
    # A key is input too: one with line breaks must not forge lines of a report.
    return f".{part}" if _PLAIN.fullmatch(part) else f"[{quote(part)}]"


def value_types_at(model: type[Value], location: Location) -> tuple[type[Value], ...]:
    """The types of value that the model allows at a location of its input."""
    annotations: list[Any] = [model]
    for part in location:
        # A part that leads nowhere is the validator's label of a union's branch.
        annotations = [
            found for annotation in annotations for found in _below(annotation, part)
        ] or annotations
    return tuple(dict.fromkeys(_values(annotations)))


def _below(annotation: Any, part: int | str) -> Iterator[Any]:
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        if field is not None:
            yield field.annotation
    elif origin is Annotated:
        yield from _below(get_args(annotation)[0], part)
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _below(member, part)
    elif get_args(annotation):
        yield get_args(annotation)[-1 if isinstance(part, str) else 0]


def _values(annotations: Iterable[Any]) -> Iterator[type[Value]]:
    for annotation in annotations:
        if isinstance(annotation, type) and not isinstance(annotation, GenericAlias):
            if issubclass(annotation, Value):
                yield annotation
        elif get_origin(annotation) in (Annotated, Union, UnionType):
            yield from _values(get_args(annotation))


_MAX_SHOWN = 20
# Marks an error whose message is a whole clause of ours.
SENTENCE = "sentence"

# What is allowed, by the validator's own name of the error; `{}` takes its context.
_ALLOWED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text of {min_length} or more characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "none_required": "nothing",
    "union_tag_invalid": "a {discriminator} out of {expected_tags}",
    "union_tag_not_found": "a mapping with the field {discriminator}",
    "timezone_aware": "a moment with its time zone, such as 2030-01-31T12:00:00Z",
}


class Finding(NamedTuple):
    """What one of our rules finds wrong with a value; the clause says what is allowed."""

    location: Location
    value: object
    clause: str


def refuse(title: str, findings: Iterable[Finding]) -> None:
    """Refuses the input if there is any finding; called inside a validator."""
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


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what was there, and a clause that says what is allowed."""

    path: str
    value: str
    message: str
    location: Location

    def __str__(self) -> str:
        return f"field {self.path}: {self.message}" if self.path else self.message


def problems_in(error: ValidationError, model: type[Value]) -> list[Problem]:
    """Every problem of a failed validation of `model`, in the order of the input's fields."""
    errors = error.errors(include_url=False)
    return [_problem(details, model) for details in errors if not _echoes(details)]


def sentences(problems: Iterable[Problem]) -> str:
    """The problems one a line, cut where more would not help."""
    lines = [str(problem) for problem in problems]
    rest = len(lines) - _MAX_SHOWN
    return "\n".join(lines[:_MAX_SHOWN] + ([f"and {rest} more"] if rest > 0 else []))


def in_one_line(problems: Iterable[Problem]) -> str:
    """The problems as one sentence, for an answer that is a line."""
    return "; ".join(
        f"{problem.path}: {problem.message}" if problem.path else problem.message
        for problem in problems
    )


def _echoes(details: ErrorDetails) -> bool:
    """A list counts as too short when its entries were refused; those are reported already."""
    given = details["input"]
    return (
        details["type"] == "too_short"
        and isinstance(given, Sized)
        and len(given) >= details.get("ctx", {})["min_length"]
    )


def _problem(details: ErrorDetails, model: type[Value]) -> Problem:
    location = details["loc"]
    value = quote(details["input"])
    if details["type"] == "missing":
        value, message = "nothing", "is missing; it must be given"
    elif details["type"] == "extra_forbidden":
        message = _unknown_field(str(location[-1]), value_types_at(model, location[:-1]))
    else:
        message = _clause(details, value, value_types_at(model, location))
    return Problem(dotted(location), value, message, location)


def _clause(details: ErrorDetails, value: str, expected: Sequence[type[Value]]) -> str:
    context = details.get("ctx", {})
    if details["type"] == "value_error":
        # Our own validators say the whole clause themselves.
        return str(context["error"])
    if details["type"] == SENTENCE:
        return details["msg"]
    if details["type"] in ("model_type", "model_attributes_type"):
        allowed = f"a mapping with the fields {_names(expected)}"
    elif details["type"] in _ALLOWED:
        allowed = _ALLOWED[details["type"]].format(**context)
    else:
        allowed = details["msg"].removeprefix("Input should be ").removeprefix("Value should be ")
    return f"got {value}; allowed: {allowed}"


def _unknown_field(name: str, parents: Sequence[type[Value]]) -> str:
    known = [field for parent in parents for field in parent.known_fields()]
    nearest = get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown field {quote(name)}; known fields: {_names(parents) or 'none'}{hint}"


def _names(types: Sequence[type[Value]]) -> str:
    return ", ".join(dict.fromkeys(field for known in types for field in known.known_fields()))

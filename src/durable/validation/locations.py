"""Where in nested data something is: paths for people, and the types that live there."""

import re
from collections.abc import Iterable, Iterator
from types import GenericAlias, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

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

"""What differs between two specs, field by field."""

import json
from collections.abc import Mapping
from typing import cast

from durable.validation.value import Value


class Difference(Value):
    """One field that has another value; None where it is not set."""

    field: str
    before: object
    after: object


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[Difference]:
    """Only what differs, in the order of the fields' names."""
    old, new = _fields(before), _fields(after)
    return [
        Difference(field=name, before=old.get(name), after=new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def show_value(value: object) -> str:
    """A value as a cell: text as it is, everything else as JSON."""
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value)


def _fields(content: Mapping[str, object], path: str = "") -> dict[str, object]:
    """Every value by its dotted path; a list is one value."""
    found: dict[str, object] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            found |= _fields(cast(Mapping[str, object], value), f"{path}{name}.")
        else:
            found[f"{path}{name}"] = value
    return found

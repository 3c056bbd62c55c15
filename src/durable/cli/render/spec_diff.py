"""What differs between two specs, field by field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from durable.cli.render.output import results
from durable.cli.render.tables import print_table
from durable.validation.value import Value


class Difference(Value):
    """One field that has another value; None where it is not set."""

    field: str
    before: object
    after: object


@dataclass(frozen=True)
class Comparison:
    """Two numbered specs of a kind, side by side."""

    noun: str
    before: int
    after: int
    old: Mapping[str, object]
    new: Mapping[str, object]
    # What is said if nothing differs.
    same: str

    @property
    def content(self) -> dict[str, Any]:
        found = differences(self.old, self.new)
        return {"from": self.before, "to": self.after, "differences": found}

    def print(self) -> None:
        rows = [
            (one.field, show_value(one.before), show_value(one.after))
            for one in differences(self.old, self.new)
        ]
        if rows:
            heads = ("Field", f"{self.noun} {self.before}", f"{self.noun} {self.after}")
            print_table(heads, rows)
        else:
            results.print(self.same)


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

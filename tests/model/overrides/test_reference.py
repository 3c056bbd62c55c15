"""docs/overrides.md says of every kind what is so."""

import json
from pathlib import Path

from durable.model.overrides.kinds import KINDS
from durable.validation.quantities import show_duration

PAGE = Path(__file__).parents[3] / "docs" / "overrides.md"


def test_the_page_lists_every_kind_as_it_is_and_no_other() -> None:
    listed = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert listed == [
        f"| `{kind.name}` | {kind.sentence} | {kind.scope_rule.removeprefix('a scope with ')} | "
        f"`{json.dumps(kind.example['effect'])}` | {show_duration(kind.default_ttl)}, "
        f"{show_duration(kind.longest_ttl)} | {'yes' if kind.needs_approval else 'no'} |"
        for kind in KINDS.values()
    ]

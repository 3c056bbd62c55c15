"""How every benchmark speaks: progress while it runs, a table, and one line of JSON at the end."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def progress(sentence: str) -> None:
    """Goes to stderr, so that stdout ends in the line of JSON alone."""
    print(f"  {sentence}", file=sys.stderr, flush=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    shown = Table(title=title)
    for column in columns:
        shown.add_column(column, justify="right")
    for row in rows:
        shown.add_row(*(_cell(cell) for cell in row))
    Console(width=100).print(shown)


def verdict(name: str, yardstick: dict[str, Any], figures: dict[str, Any], *, holds: bool) -> None:
    line = {"bench": name, "yardstick": yardstick, "figures": figures, "holds": holds}
    print(json.dumps(line), flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"
    return str(value)

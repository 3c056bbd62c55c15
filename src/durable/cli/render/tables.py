"""Tables that fit: names stay whole, sentences fold, and rows that are too wide become lines."""

import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from durable.cli.render.amounts import show_rounded
from durable.cli.render.output import (
    error_object,
    missing_object,
    note_missing,
    print_json,
    progress,
    results,
    timestamp,
)
from durable.cli.render.visible import in_one_cell
from durable.model.ids import RegionId
from durable.model.resources import Resources
from durable.validation.value import Value

GAP = 2
# A column of sentences is not folded to less than this.
MIN_SENTENCE_WIDTH = 14


class Row(Value):
    """One line of a list; its fields are the columns, except those that only programs read."""

    json_only: ClassVar[frozenset[str]] = frozenset()


def print_rows(
    what: str,
    rows: Sequence[Row],
    limit: int,
    as_json: bool,
    remedy: str,
    failure: str | None = None,
    scope: str = "",
    missing: Mapping[RegionId, str] = {},
) -> None:
    """Prints the rows as a table, with a column per field, or as one object.

    `failure` says what is wrong with them, for programs; `scope` names the filters, such as
    ` of risk`; `missing` has the regions that did not answer.
    """
    shown = rows[:limit]
    note_missing(missing)
    if as_json:
        content = {what: [row.model_dump(mode="json") for row in shown], "total": len(rows)}
        print_json({**content, **missing_object(missing), **error_object("unhealthy", failure)})
        return
    if not rows and missing:
        return
    if not rows:
        results.print(f"There are no {what}{scope} yet: {remedy}.")
        return
    _print_fields(shown)
    if len(rows) > limit:
        progress.print(f"and {len(rows) - limit:,} more: raise --limit or filter the list")


def _print_fields(rows: Sequence[Row]) -> None:
    """Leaves out the columns that are empty in every row."""
    kind = type(rows[0])
    columns = [
        name
        for name in kind.model_fields
        if name not in kind.json_only and any(getattr(row, name) is not None for row in rows)
    ]
    heads = [name.replace("_", " ").capitalize() for name in columns]
    print_table(heads, [[_cell(getattr(row, name)) for name in columns] for row in rows])


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return timestamp(value)
        case Resources():
            return show_rounded(value)
        case _:
            return str(value)


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> None:
    """Prints plain cells; nothing of them is cut on a terminal of any width."""
    rows = [[in_one_cell(cell) for cell in row] for row in rows]
    if title is not None:
        results.print(escape(in_one_cell(title)))
    widths = _fit(heads, rows, results.width - GAP * (len(heads) - 1))
    if widths is None:
        _print_lines(heads, rows)
        return
    table = Table(
        box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True
    )
    for head, width in zip(heads, widths, strict=True):
        table.add_column(escape(head), width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    results.print()
    results.print(table)
    results.print()


def _fit(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Narrows the widest columns until words would break; None if that is not enough."""
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    floors = [_min_width(column) for column in columns]
    while sum(widths) > room:
        slack = [width - floor for width, floor in zip(widths, floors, strict=True)]
        widest = max(range(len(widths)), key=lambda index: (slack[index] > 0, widths[index]))
        if slack[widest] <= 0:
            return None
        widths[widest] -= 1
    return widths


def _min_width(column: Sequence[str]) -> int:
    words = max((cell_len(word) for cell in column for word in cell.split()), default=1)
    return max(words, min(MIN_SENTENCE_WIDTH, max(map(cell_len, column))))


def _print_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints the first cell of each row alone; below it, every other cell with its head."""
    for row in rows:
        results.print(f"[bold]{escape(row[0])}[/]")
        cells = [
            f"{head.lower()} {cell}" for head, cell in zip(heads[1:], row[1:], strict=True) if cell
        ]
        for line in _pack(cells, results.width - GAP):
            results.print(f"{' ' * GAP}{escape(line)}")


def _pack(cells: Sequence[str], room: int) -> list[str]:
    """As many to a line as there is room for; only what is longer than a line is folded."""
    lines: list[str] = []
    for cell in cells:
        if lines and cell_len(lines[-1]) + GAP + cell_len(cell) <= room:
            lines[-1] += " " * GAP + cell
        else:
            lines += textwrap.wrap(cell, room, break_on_hyphens=False)
    return lines

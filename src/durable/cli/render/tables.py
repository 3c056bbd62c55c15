"""Tables that fit: names stay whole, sentences fold, and rows that are too wide become lines."""

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from durable.cli.render.output import conclude, progress, results
from durable.cli.render.visible import in_one_cell
from durable.model.resources import Resources
from durable.resources.resource import Filters, Resource, Rows, head_of, value_in
from durable.validation.quantities import show_cpu, show_memory
from durable.validation.text import counted, show_moment
from durable.validation.value import Value

R = TypeVar("R", bound=Value)

GAP = 2
CORE, GI = 1_000, 1_024
# A column of sentences is not folded to less than this.
MIN_SENTENCE_WIDTH = 14


def print_resource(
    resource: Resource[R],
    rows: Rows[R],
    filters: Filters,
    as_json: bool,
    failure: str | None = None,
) -> None:
    """Prints the rows as a table of the resource's columns, or as one object.

    `failure` says what is wrong with them.
    """
    conclude(
        as_json,
        {resource.name: [resource.fields_of(row) for row in rows], "total": rows.total},
        lambda: print_rows(resource, rows, filters),
        unreachable=rows.unreachable,
        failure=failure,
        code="unhealthy",
    )


def print_rows(resource: Resource[R], rows: Rows[R], filters: Filters) -> None:
    """What there is, or what to do where there is nothing, and how many are left out."""
    ended = (
        f"{counted(rows.ended, resource.singular)} ended: see `durable get {resource.name} --all`"
    )
    if rows.rows:
        _print_columns(resource, rows)
    elif rows.ended:
        progress.print(f"No {resource.name}; {ended}")
    elif not rows.unreachable:
        results.print(resource.when_empty(filters))
    if rows.total > len(rows):
        # What has ended was not read to its end.
        more = "" if filters.ended else f"{rows.total - len(rows):,} "
        progress.print(f"and {more}more: raise --limit or filter the list")
    if rows.rows and rows.ended:
        progress.print(f"and {ended}")


def _print_columns(resource: Resource[R], rows: Rows[R]) -> None:
    """Leaves out the columns that are empty in every row."""
    columns = [
        column
        for column in resource.columns
        if any(value_in(row, column) is not None for row in rows)
    ]
    cells = [[_cell(value_in(row, column)) for column in columns] for row in rows]
    print_table(list(map(head_of, columns)), cells)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return show_moment(value)
        case Resources():
            return show_rounded(value)
        case _:
            return str(value)


def show_rounded(amount: Resources) -> str:
    """`145.6 cpu, 159.8Gi, 2 gpu`: what is a core or a Gi and more has at most one decimal."""
    if amount.is_zero:
        return "none"
    parts = [_cpu(amount.cpu_millis)]
    if amount.memory_mib:
        parts.append(_memory(amount.memory_mib))
    if amount.gpus:
        parts.append(f"{amount.gpus} gpu")
    return ", ".join(parts)


def _cpu(millis: int) -> str:
    is_short = millis < CORE or millis % CORE == 0
    return show_cpu(millis) if is_short else f"{millis / CORE:.1f} cpu"


def _memory(mib: int) -> str:
    is_short = mib < GI or mib % GI == 0
    return show_memory(mib) if is_short else f"{mib / GI:.1f}Gi"


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

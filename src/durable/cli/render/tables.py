"""Tables that fit: names stay whole, sentences fold, and rows that are too wide become lines."""

import textwrap
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from durable.cli.render.output import results

GAP = 2
# A column of sentences is not folded to less than this.
NARROWEST = 14


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> None:
    """Prints plain cells; nothing of them is cut on a terminal of any width."""
    if title is not None:
        results.print(escape(title))
    widths = _fitting(heads, rows, results.width - GAP * (len(heads) - 1))
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


def _fitting(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The widest columns give way, each until its words would break; None if that is too little."""
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    floors = [_narrowest(column) for column in columns]
    while sum(widths) > room:
        slack = [width - floor for width, floor in zip(widths, floors, strict=True)]
        giving = max(range(len(widths)), key=lambda index: (slack[index] > 0, widths[index]))
        if slack[giving] <= 0:
            return None
        widths[giving] -= 1
    return widths


def _narrowest(column: Sequence[str]) -> int:
    words = max((cell_len(word) for cell in column for word in cell.split()), default=1)
    return max(words, min(NARROWEST, max(map(cell_len, column))))


def _print_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first cell of each row stands alone; below it, every other with its head."""
    for row in rows:
        results.print(f"[bold]{escape(row[0])}[/]")
        told = [
            f"{head.lower()} {cell}" for head, cell in zip(heads[1:], row[1:], strict=True) if cell
        ]
        for line in _lines(told, results.width - GAP):
            results.print(f"{' ' * GAP}{escape(line)}")


def _lines(told: Sequence[str], room: int) -> list[str]:
    """As many to a line as there is room for; only what is longer than a line is folded."""
    lines: list[str] = []
    for one in told:
        if lines and cell_len(lines[-1]) + GAP + cell_len(one) <= room:
            lines[-1] += " " * GAP + one
        else:
            lines += textwrap.wrap(one, room, break_on_hyphens=False)
    return lines

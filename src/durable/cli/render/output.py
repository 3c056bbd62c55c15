"""What every command prints with: streams, JSON, errors, and numbers in sentences."""

import json
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import typer
from pydantic import BaseModel
from rich.markup import escape
from rich.status import Status

from durable.cli.render.visible import VisibleConsole, in_one_cell, visible, visible_json
from durable.model.ids import RegionId

if TYPE_CHECKING:
    from durable.health.findings import HealthFinding

T = TypeVar("T")


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """`Slot 3`, `Slots 0 to 2 and 7`."""
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    runs: list[list[int]] = [[numbers[0]]]
    for before, number in pairwise(numbers):
        if number == before + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        part
        for run in runs
        for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))
    ]
    *most, last = parts
    return f"{noun}s {', '.join(most)} and {last}" if most else f"{noun}s {last}"


def listed(items: Sequence[str], limit: int) -> str:
    """`a, b and 3 more`."""
    more = len(items) - limit
    return f"{', '.join(items[:limit])}{f' and {more:,} more' if more > 0 else ''}"


def grouped(keyed: Iterable[tuple[T, Hashable]]) -> list[list[T]]:
    """Items with the same key, in the order in which the keys first came."""
    groups: dict[Hashable, list[T]] = {}
    for item, key in keyed:
        groups.setdefault(key, []).append(item)
    return list(groups.values())


PIPE_COLUMNS = 200


def _width() -> int | None:
    """A pipe has no edge to fit: tables in it are cut only where people asked for that."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return PIPE_COLUMNS if piped else None


# Not highlighted and not wrapped: a sentence or an address stays one line in a pipe. No emoji: the
# `:100:` of a file's hundredth line is not one.
results = VisibleConsole(highlight=False, soft_wrap=True, emoji=False, width=_width())
progress = VisibleConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def print_lines(lines: Iterable[str], indent: int = 0) -> None:
    """Prints plain sentences, folded below their beginning on a terminal, whole in a pipe."""
    margin = " " * indent
    for line in map(in_one_cell, lines):
        folded = [f"{margin}{line}"]
        if results.is_terminal:
            folded = textwrap.wrap(
                line,
                results.width,
                initial_indent=margin,
                subsequent_indent=f"{margin}  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        for part in folded:
            results.print(escape(part))


def print_json(value: BaseModel | Mapping[str, Any]) -> None:
    """One JSON object for programs; values in it are written as they are dumped."""
    text = json.dumps(_dumped(value), indent=2, ensure_ascii=False, default=_dumped)
    sys.stdout.write(visible_json(text) + "\n")
    sys.stdout.flush()


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else dict(value)


def error_object(code: str, message: str | None) -> dict[str, Any]:
    """What programs read of a failure, beside the results if there are any."""
    return {} if message is None else {"error": {"code": code, "message": message}}


def note_unreachable(regions: Mapping[RegionId, str]) -> None:
    """Says which regions did not answer; what the others said is the result all the same."""
    for region, why in regions.items():
        progress.print(f"[yellow]•[/] {escape(f'{region} is unreachable. {why}')}")


def conclude(
    as_json: bool,
    content: BaseModel | Mapping[str, Any],
    show: Callable[[], object],
    *,
    unreachable: Mapping[RegionId, str] | None = None,
    failure: str | None = None,
    code: str = "failed",
) -> None:
    """Ends a command: one object for programs or what `show` prints, and exit code 1 if it failed.

    The regions that did not answer are said of both.
    """
    note_unreachable(unreachable or {})
    if as_json:
        missing = {"unreachable": dict(unreachable)} if unreachable else {}
        print_json({**_dumped(content), **missing, **error_object(code, failure)})
    else:
        show()
    if failure is not None:
        fail(failure)


def say(sentence: str) -> Callable[[], None]:
    """Prints one plain sentence, when the command concludes."""
    return lambda: results.print(sentence, markup=False)


def print_findings(findings: "Sequence[HealthFinding]") -> None:
    """What is wrong, a sentence each, above everything else."""
    for one in findings:
        results.print(f"[red]✗[/] {escape(str(one))}")


def fail(sentence: str) -> NoReturn:
    """Ends a command whose results are printed already and are not good."""
    print_error(sentence)
    raise typer.Exit(1)


def print_error(sentence: str) -> None:
    """One sentence on what went wrong."""
    progress.print(f"[bold red]Error:[/] {escape(sentence)}")


def print_unknown_error(error: Exception) -> None:
    """An error that was not foreseen: its name and text, and how to see more."""
    print_error(f"{type(error).__name__}: {error}")
    progress.print("Run again with [bold]durable --debug[/] (or DURABLE_DEBUG=1) for the details.")


def print_traceback() -> None:
    sys.stderr.write(visible(traceback.format_exc()))


class Steps:
    """Steps with their times: a spinner for the present one on a terminal, else plain lines."""

    def __init__(self) -> None:
        self._spinner: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rest()

    def begin(self, text: str) -> None:
        self._rest()
        if progress.is_terminal:
            self._spinner = progress.status(f"{escape(text)} ...")
            self._spinner.start()

    def done(self, text: str, seconds: float) -> None:
        self._rest()
        progress.print(f"[green]✓[/] {escape(text)} [dim]({seconds:.1f} s)[/]")

    def note(self, text: str) -> None:
        progress.print(f"[yellow]•[/] {escape(text)}")

    def _rest(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

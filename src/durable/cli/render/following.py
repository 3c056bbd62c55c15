"""What a command shows while it follows something: a line on stderr whenever that changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.markup import escape

from durable.cli.render.output import progress
from durable.model.refusal import RefusalCode, RefusedError


class CanWait(Protocol):
    """What says what it waits for, if it does."""

    @property
    def waits_for(self) -> str | None: ...


T = TypeVar("T", bound=CanWait)


class ChangedLines:
    """Prints a line whenever it differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, line: str) -> None:
        if line != self._last:
            self._last = line
            progress.print(escape(line))


async def follow_lines(
    changes: AsyncIterator[T],
    line: Callable[[T], str],
    *,
    name: str,
    within_seconds: float,
    until: Callable[[T], bool] = lambda _: False,
) -> T:
    """The last of the changes, or the one that is enough; refused if the time is over before it."""
    last: T | None = None
    lines = ChangedLines()
    try:
        async with asyncio.timeout(within_seconds):
            async for last in changes:
                lines.show(line(last))
                if until(last):
                    break
    except TimeoutError:
        why = None if last is None else last.waits_for
        raise RefusedError(
            RefusalCode.TIMED_OUT,
            f"{name} is not done after {within_seconds:.0f} s; it continues."
            f"{f' It waits: {why}' if why else ''}",
        ) from None
    assert last is not None, "what is followed exists"
    return last


@contextmanager
def reassure_when_interrupted(
    what: str = "change", see: str = "durable get workloads"
) -> Generator[None]:
    """Says that the interrupt stopped only the command, and where to look."""
    try:
        yield
    except KeyboardInterrupt:
        progress.print(f"The {what} continues in the background; see `{see}`.")
        raise

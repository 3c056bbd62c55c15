"""Lists that are read page by page: no statement grows with a list, and none is cut in silence.

A page begins after the last key of the one before it, so that what comes or goes meanwhile neither
hides nor repeats anything else.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")

ROWS_PER_PAGE = 1_000


async def read_pages(
    read: Callable[[K], Awaitable[Sequence[T]]], first: K, key_of: Callable[[T], K]
) -> list[T]:
    """Every row, in the order of the keys; `first` comes before all of them."""
    rows: list[T] = []
    after = first
    while True:
        page = await read(after)
        rows += page
        if len(page) < ROWS_PER_PAGE:
            return rows
        after = key_of(page[-1])

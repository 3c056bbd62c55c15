"""Batches cut by weight: a transaction that carries too much would not end in time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def portions(items: Sequence[T], weight: Callable[[T], int], *, most: int) -> Iterator[list[T]]:
    """The items in their order, in runs of at most this weight; one that is heavier goes alone."""
    run: list[T] = []
    carried = 0
    for item in items:
        if run and carried + weight(item) > most:
            yield run
            run, carried = [], 0
        run.append(item)
        carried += weight(item)
    if run:
        yield run

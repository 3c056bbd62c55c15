"""A state machine as data: which state may follow which, and a sentence when it may not."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

State = TypeVar("State", bound=StrEnum)


class IllegalMove(ValueError):  # noqa: N818 - the word is the sentence
    """A move that the state's table does not have."""


class Moves(Generic[State]):
    """One table of legal moves. Staying put is no move."""

    def __init__(self, start: State, table: Mapping[State, tuple[State, ...]]) -> None:
        self.start = start
        self.table = {before: frozenset(after) for before, after in table.items()}

    def allows(self, before: State, after: State) -> bool:
        return after in self.table[before]

    def check(self, before: State, after: State) -> None:
        if self.allows(before, after):
            return
        legal = ", ".join(state for state in type(before) if state in self.table[before])
        raise IllegalMove(
            f"{type(before).__name__} cannot move from {before} to {after}; "
            + (f"legal next states: {legal}" if legal else f"{before} is final")
        )

    @property
    def final(self) -> frozenset[State]:
        """The states that nothing leaves."""
        return frozenset(before for before, after in self.table.items() if not after)

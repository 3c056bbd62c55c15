"""Who was refused and why: each node once, under the first reason that refused it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from durable.scheduling.filters import CANDIDATE, ELIGIBLE, FILTERS, LASTING, SPREAD
from durable.scheduling.filters.filter import Filter
from durable.scheduling.proposal import Rejection
from durable.scheduling.question import EVERY_ROW, Question
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.rows import Rows

# A fleet where every node has a taint of its own must not fill a record with them.
_WORDS_PER_FILTER = 8


@dataclass(frozen=True, slots=True)
class Refused:
    """The nodes of which one filter was the first to say no."""

    by: Filter
    rows: Rows


@dataclass(frozen=True, slots=True)
class Account:
    """What the filters said, in their order, as the question stood when they were asked."""

    remaining: Mask
    refused: tuple[Refused, ...]

    @property
    def feasible(self) -> int:
        return int(np.count_nonzero(self.remaining))

    @property
    def closest(self) -> Refused | None:
        """The refusal of those that came closest to taking the work."""
        return self.refused[-1] if self.refused else None

    def refused_by(self, filters: Iterable[Filter]) -> tuple[Refused, ...]:
        wanted = tuple(filters)
        return tuple(each for each in self.refused if each.by in wanted)

    def rejections(self, question: Question) -> tuple[Rejection, ...]:
        """The account in words, the most frequent first within each reason."""
        return tuple(line for each in self.refused for line in _lines(question, each))


def ask_all(question: Question) -> tuple[Mask, Account]:
    """The candidates, which spread may still close for a while, and the account of every node."""
    eligible = ask(question, ELIGIBLE, question.columns.live)
    question.spread_over(eligible.remaining)
    candidates = ask(question, CANDIDATE, eligible.remaining)
    spread = ask(question, SPREAD, candidates.remaining)
    refused = eligible.refused + candidates.refused + spread.refused
    return candidates.remaining, Account(spread.remaining, refused)


def ask_again(question: Question) -> Account:
    """The account of every node after some slots were placed."""
    return ask(question, FILTERS, question.columns.live)


def ask_lasting(question: Question) -> Account:
    """The account of what no waiting mends."""
    return ask(question, LASTING, question.columns.live)


def ask(question: Question, filters: Iterable[Filter], nodes: Mask) -> Account:
    remaining, refused = nodes, list[Refused]()
    for each in filters:
        says_no = each.refuses(question, EVERY_ROW)
        if says_no is None:
            continue
        newly = remaining & says_no
        if newly.any():
            refused.append(Refused(each, np.flatnonzero(newly)))
            remaining = remaining & ~says_no
    return Account(remaining, tuple(refused))


def _lines(question: Question, refused: Refused) -> Iterable[Rejection]:
    counted = refused.by.words(question, refused.rows)
    # By words where counts are equal: the order in which nodes arrived must not show.
    lines = sorted(counted.items(), key=lambda line: (-line[1], line[0]))
    rest = sum(count for _, count in lines[_WORDS_PER_FILTER:])
    if rest:
        lines = [*lines[:_WORDS_PER_FILTER], (f"{refused.by.code} of other kinds", rest)]
    return (Rejection(code=refused.by.code, nodes=count, words=words) for words, count in lines)

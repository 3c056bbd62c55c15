"""Where slots are and how they ended, in words; what is true of several is said once."""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from durable.cli.render.words import counted
from durable.explain.ends import End, EndAccount
from durable.explain.explanation import SlotAccount
from durable.model.states import BindingState

PLACES_SHOWN = 50
SENTENCES_SHOWN = 50
_ENDS = {
    End.COMPLETED: "completed",
    End.FAILED: "failed",
    End.STOPPED: "stopped before the end",
}

T = TypeVar("T")


def bindings_in_words(bindings: Sequence[SlotAccount]) -> list[str]:
    """A sentence for all slots in the same state for the same reason, then where each is."""
    alike = together((one, (one.state, _gist(one.evidence), one.owner)) for one in bindings)
    lines: list[str] = []
    for some in alike[:SENTENCES_SHOWN]:
        first, is_one = some[0], len(some) == 1
        on = f" on {first.node}" if is_one else ""
        lines.append(
            f"{numbered('Slot', [one.slot for one in some])} {_verb(first.state, is_one)} "
            f"{first.state}{on} {_when('since', [one.since for one in some])}: "
            f"{first.evidence if is_one else _gist(first.evidence)}; next: {first.owner}"
        )
        if not is_one:
            places = [f"{one.slot} on {one.node}{_its_own(one.evidence)}" for one in some]
            lines.append(_places(places))
    return lines + _more(alike)


def ends_in_words(ends: Sequence[EndAccount]) -> list[str]:
    """A sentence for all slots that ended alike after as many tries, then where each was."""
    alike = together((one, (one.end, _gist(one.evidence), one.tries)) for one in ends)
    lines: list[str] = []
    for some in alike[:SENTENCES_SHOWN]:
        first, is_one = some[0], len(some) == 1
        on = f" on {first.node} in attempt {first.attempt}" if is_one else ""
        tries = "at the first try" if first.tries == 1 else f"after {first.tries} tries"
        lines.append(
            f"{numbered('Slot', [one.slot for one in some])} {_ENDS[first.end]}{on} {tries}, "
            f"{_when('at', [one.at for one in some])}: "
            f"{first.evidence if is_one else _gist(first.evidence)}"
        )
        if not is_one:
            places = [
                f"{one.slot} on {one.node} in attempt {one.attempt}{_its_own(one.evidence)}"
                for one in some
            ]
            lines.append(_places(places))
    return lines + _more(alike)


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


def together(keyed: Iterable[tuple[T, Hashable]]) -> list[list[T]]:
    """Those with the same key, in the order in which the keys first came."""
    groups: dict[Hashable, list[T]] = {}
    for one, key in keyed:
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def moment(at: datetime | None) -> str:
    return "none" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _verb(state: BindingState, is_one: bool) -> str:
    if state in (BindingState.FAILED, BindingState.STOPPED):
        return "has" if is_one else "have"
    return "is" if is_one else "are"


def _when(at: str, moments: Sequence[datetime]) -> str:
    first, last = moment(min(moments)), moment(max(moments))
    return f"{at} {first}" if first == last else f"{at} {first}, the last {at} {last}"


def _gist(evidence: str) -> str:
    """What several may have in common; after it stands what is each one's own: a directory."""
    return evidence.partition("; see ")[0]


def _its_own(evidence: str) -> str:
    _, see, where = evidence.partition("; see ")
    return f" (see {where})" if see else ""


def _places(places: Sequence[str]) -> str:
    more = len(places) - PLACES_SHOWN
    return f"  {', '.join(places[:PLACES_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def _more(alike: Sequence[Sequence[object]]) -> list[str]:
    more = sum(map(len, alike[SENTENCES_SHOWN:]))
    return [f"and {counted(more, 'slot')} more: see --json"] if more else []

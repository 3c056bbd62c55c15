"""Numbers, times and groups as sentences name them."""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from durable.model.ids import RegionId, TenantId

T = TypeVar("T")


def counted(count: int, noun: str) -> str:
    """`1 slot`, `2 slots`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


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


def timestamp(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def clock_time(at: datetime) -> str:
    return f"{at:%H:%M:%S}Z"


def scope_of(tenant: TenantId | None, region: RegionId | None = None) -> str:
    """The filters of a list in words, such as ` of risk in us-east`."""
    of = "" if tenant is None else f" of {tenant}"
    return of if region is None else f"{of} in {region}"

"""Reads across regions: all at once, and one database that does not answer holds up no other.

One that does not answer is given up by its breaker within seconds. What the others know is the
answer, together with the regions that are unreachable. Only the global side must answer: without
it nothing is known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.schema_version import SchemaVersionError
from durable.model.ids import RegionId

T = TypeVar("T")

# A database at another release's schema can be used as little as one that does not answer.
_UNREACHABLE = (AuthorityUnreachableError, SchemaVersionError)

# The regions that did not answer, each with the reason in a sentence.
UnreachableRegions = Mapping[RegionId, str]


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What the regions that answered said, in the order in which they were asked."""

    by_region: Mapping[RegionId, T]
    unreachable: UnreachableRegions = field(default_factory=dict[RegionId, str])


async def ask_regions(
    regions: Iterable[RegionId], read: Callable[[RegionId], Awaitable[T]]
) -> Answers[T]:
    """Reads every region at once."""
    asked = tuple(regions)
    answers = await asyncio.gather(*(_answer(read, region) for region in asked))
    pairs = list(zip(asked, answers, strict=True))
    return Answers(
        {region: one for region, one in pairs if not isinstance(one, _UNREACHABLE)},
        {region: str(one) for region, one in pairs if isinstance(one, _UNREACHABLE)},
    )


async def ask_databases(
    databases: Databases, read: Callable[[str], Awaitable[T]]
) -> tuple[list[T], UnreachableRegions]:
    """Reads every database at once; the regions of one that does not answer are unreachable."""
    answers = await asyncio.gather(*(_answer(read, url) for url in databases.urls))
    if isinstance(answers[0], _UNREACHABLE):
        raise answers[0]
    unreachable: dict[RegionId, str] = {}
    found: list[T] = []
    for url, answer in zip(databases.urls, answers, strict=True):
        if isinstance(answer, _UNREACHABLE):
            unreachable |= dict.fromkeys(databases.regions_of(url), str(answer))
        else:
            found.append(answer)
    return found, unreachable


K = TypeVar("K")


async def _answer(
    read: Callable[[K], Awaitable[T]], of: K
) -> T | AuthorityUnreachableError | SchemaVersionError:
    try:
        return await read(of)
    except _UNREACHABLE as error:
        return error

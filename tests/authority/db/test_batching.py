"""Batches: those who come together share one write, and regions do not wait for each other."""

import asyncio
from functools import partial

import pytest

from durable.authority.db.batching import Batcher, RegionalQueues
from durable.authority.db.errors import AuthorityUnreachableError
from durable.model.ids import RegionId

EAST, WEST = RegionId("us-east"), RegionId("us-west")


class Written:
    """What was written, batch by batch; a region that is away refuses."""

    def __init__(self, *away: RegionId) -> None:
        self.batches: list[tuple[RegionId, list[int]]] = []
        self._away = away

    async def write(self, region: RegionId, items: list[int]) -> list[int]:
        self.batches.append((region, items))
        if region in self._away:
            raise AuthorityUnreachableError(f"{region} is away")
        return [10 * item for item in items]

    def queue(self, region: RegionId) -> Batcher[int, int]:
        write = partial(self.write, region)
        return Batcher("queue", "item", write, max_batch=3, gather_seconds=0.0)


async def test_items_that_come_together_share_a_batch_of_limited_size() -> None:
    written = Written()
    async with written.queue(EAST) as queue:
        answers = await asyncio.gather(*(queue.submit(item) for item in range(5)))
    assert answers == [0, 10, 20, 30, 40]
    assert written.batches == [(EAST, [0, 1, 2]), (EAST, [3, 4])]


async def test_a_batch_waits_while_more_items_arrive() -> None:
    written = Written()
    async with written.queue(EAST) as queue:
        first = asyncio.create_task(queue.submit(1))
        await asyncio.sleep(0)  # it gathers
        second = asyncio.create_task(queue.submit(2))
        assert await asyncio.gather(first, second) == [10, 20]
    assert written.batches == [(EAST, [1, 2])]


async def test_a_region_that_is_away_keeps_no_other_region() -> None:
    written = Written(WEST)
    async with RegionalQueues(written.queue) as queues:
        with pytest.raises(AuthorityUnreachableError):
            await queues.submit(WEST, 1)
        assert await queues.submit(EAST, 2) == 20
        assert await queues.submit(EAST, 3) == 30
    assert written.batches == [(WEST, [1]), (EAST, [2]), (EAST, [3])]

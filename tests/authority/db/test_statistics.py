"""Plans follow a region as it grows: its tables are looked at again whenever one has doubled."""

import psycopg

from durable.authority.sides import Regional
from durable.controllers.statistics import MIN_ROWS, StatisticsController
from durable.model.placement.intents import Granted
from durable.model.resources import Resources
from tests.authority.world import EAST, World, node

PATIENCE = 20.0


def rows_known(world: World, table: str) -> int:
    """What the planner believes."""
    with psycopg.connect(world.databases.urls[0]) as owner:
        row = owner.execute(
            "SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [table]
        ).fetchone()
    assert row is not None
    return int(row[0])


async def test_reservations_are_looked_at_however_many_nodes_there_are(world: World) -> None:
    await world.ready(*(node(f"n{at}") for at in range(2 * MIN_ROWS)))
    await world.with_slots(2 * MIN_ROWS)

    async def reserve(slots: range) -> None:
        size = Resources.of(100, 64)
        asked = (world.reserve(at, node=f"n{at}", resources=size) for at in slots)
        assert all(isinstance(outcome, Granted) for outcome in await world.send(*asked))

    async with Regional(world.databases, EAST, max_waiters=1) as regional:
        await regional.cache.wait_ready(PATIENCE)
        controller = StatisticsController(regional)
        assert await controller.once(), "there are nodes"
        assert not await controller.once(), "nothing is new"
        assert rows_known(world, "regional.reservations") == 0

        await reserve(range(MIN_ROWS))
        assert await controller.once()
        assert rows_known(world, "regional.reservations") == MIN_ROWS

        await reserve(range(MIN_ROWS, 2 * MIN_ROWS - 1))
        assert not await controller.once(), "they have not doubled"
        await reserve(range(2 * MIN_ROWS - 1, 2 * MIN_ROWS))
        assert await controller.once()
        assert rows_known(world, "regional.reservations") == 2 * MIN_ROWS

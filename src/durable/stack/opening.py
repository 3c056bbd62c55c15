"""A stack that starts is open once a placement would go through: workers poll, nodes are live."""

import asyncio
import time
from collections.abc import Sequence

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.reads.readiness import RegionReadiness
from durable.health.findings import HealthFinding
from durable.health.regions import read_regions, unserved
from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.temporal.connection import connect

WORKERS_SECONDS = 60.0
NODES_SECONDS = 30.0
POLL_SECONDS = 0.2


async def wait_until_ready(settings: Settings, database_url: str, address: str) -> list[str]:
    """Returns what to note of regions that are not ready; refuses if a worker serves nothing.

    A region whose database is unreachable must not keep the others from starting, nor must nodes
    whose agents run elsewhere.
    """
    client = await connect(settings, address)
    began = time.monotonic()
    # Where the database is not ours, its nodes are not simulated here.
    simulates = settings.database_url is None
    async with Databases(database_url, settings.known_regional_urls()) as databases:
        while True:
            waited = time.monotonic() - began
            try:
                regions, unreachable = await read_regions(databases)
                if idle := await unserved(client, databases, regions):
                    raise StackError(str(idle[0]))
                waiting = [one for one in regions if one.simulated_away] if simulates else []
                if not waiting or waited > NODES_SECONDS:
                    return notes_on(unreachable, waiting)
            except (StackError, AuthorityError) as error:
                # Servers that have just started may also take their time to answer.
                if waited > WORKERS_SECONDS:
                    raise StackError(str(error)) from error
            await asyncio.sleep(POLL_SECONDS)


def notes_on(unreachable: Sequence[HealthFinding], waiting: Sequence[RegionReadiness]) -> list[str]:
    return [
        *(str(one) for one in unreachable),
        *(
            f"{one.region}: {one.simulated_away:,} of {one.nodes:,} nodes are not live yet; "
            "see `durable get nodes`."
            for one in waiting
        ),
    ]

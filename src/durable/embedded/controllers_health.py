"""How our own processes are: what Temporal sees of a worker, what the authority sees of agents."""

from __future__ import annotations

import asyncio

from durable.authority.census import RegionCensus, take_census
from durable.authority.connection import Databases
from durable.authority.errors import AuthorityError
from durable.authority.shapes import list_regions
from durable.cluster_workers import workers_of
from durable.embedded.controllers import AGENT, GLOBAL_WORKER
from durable.embedded.errors import StackError
from durable.settings import Settings
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.stack_record import Part, StackRecord

PROBE_SECONDS = 5.0


def controller_problem(settings: Settings, record: StackRecord, part: Part) -> str:
    """What is wrong with a process of ours that is alive, or nothing."""
    try:
        return asyncio.run(_ask(settings, record, part))
    except (StackError, AuthorityError) as error:
        return f"nobody can tell: {error}"
    except TimeoutError:
        return "nobody can tell: the servers that it works with do not answer"


async def _ask(settings: Settings, record: StackRecord, part: Part) -> str:
    url = settings.database_url or record.database_url
    address = settings.temporal_address or record.temporal_address
    if url is None or address is None or part.process is None:
        return "nobody can tell: the stack does not say where its servers are"
    async with (
        asyncio.timeout(PROBE_SECONDS),
        Databases(url, settings.regional_database_urls) as databases,
    ):
        if part.name == AGENT:
            census = await take_census(databases)
            return _unhosted(census.regions)
        if part.name == GLOBAL_WORKER:
            queues = [GLOBAL_QUEUE]
        else:
            queues = [regional_queue(region) for region in await list_regions(databases)]
        found = await workers_of(settings, address, queues)
    mine = f"{part.process.pid}@"
    idle = [queue for queue, workers in found.items() if not _any_of(workers, mine)]
    return f"it does not serve {', '.join(idle)}" if idle else ""


def _any_of(workers: list[str], prefix: str) -> bool:
    return any(worker.startswith(prefix) for worker in workers)


def _unhosted(regions: tuple[RegionCensus, ...]) -> str:
    """A region of which no node at all is alive has no agent; single nodes may be down."""
    dead = [
        one.region.region
        for one in regions
        if any(pool.nodes for pool in one.pools) and not any(pool.live for pool in one.pools)
    ]
    return f"no node of {', '.join(dead)} has a live lease" if dead else ""

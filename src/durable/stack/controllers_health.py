"""How our own processes are: what Temporal sees of a worker, what the authority sees of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.settings import Settings
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.stack.connections import is_connected, port_of
from durable.stack.errors import StackError
from durable.state_dir.record import Part, StackRecord
from durable.temporal.pollers import workers_of

PROBE_SECONDS = 5.0
GLOBAL_WORKER = "worker-global"
REGIONAL_WORKER = "worker-regions"
AGENT = "agent"


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
    pid = part.process.pid
    if part.name == AGENT:
        # Single nodes may be down for reasons of their own; `durable get regions` counts them.
        return "" if is_connected(pid, port_of(url)) else "it has lost the database"
    queues = [GLOBAL_QUEUE]
    async with asyncio.timeout(PROBE_SECONDS):
        if part.name != GLOBAL_WORKER:
            async with Databases(url, settings.regional_database_urls) as databases:
                queues = [regional_queue(region) for region in await list_regions(databases)]
        idle = await unserved(settings, address, queues, pid)
    return f"it does not serve {', '.join(idle)}" if idle else ""


async def unserved(settings: Settings, address: str, queues: Sequence[str], pid: int) -> list[str]:
    """The queues that this process does not poll, by Temporal's word."""
    found = await workers_of(settings, address, queues)
    mine = f"{pid}@"
    return [
        queue for queue, workers in found.items() if not any(w.startswith(mine) for w in workers)
    ]

"""The parts of the stack: every one is probed, servers and our own processes alike."""

from __future__ import annotations

import asyncio
import socket
import subprocess

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.settings import Settings
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.stack.control_plane import ADDRESSES, AGENT, GLOBAL_WORKER
from durable.stack.ports import is_connected, port_of
from durable.stack.postgres.data import ENVIRONMENT, binary
from durable.state_dir.processes import is_alive
from durable.state_dir.record import (
    Part,
    StackError,
    StackRecord,
)
from durable.temporal.connection import check_namespace
from durable.temporal.running import queues_not_polled_by
from durable.validation.value import Value

SERVER_PROBE_SECONDS = 3
CONTROL_PLANE_PROBE_SECONDS = 5.0


class PartStatus(Value):
    """One part, as it answered just now."""

    name: str
    ours: bool
    pid: int | None
    address: str
    healthy: bool
    detail: str


async def part_statuses(
    settings: Settings, record: StackRecord, databases: Databases | None
) -> tuple[PartStatus, ...]:
    """Probes all parts at once: one that hangs is waited for once."""
    probes = (_part_status(settings, record, databases, part) for part in record.parts)
    return tuple(await asyncio.gather(*probes))


async def _part_status(
    settings: Settings, record: StackRecord, databases: Databases | None, part: Part
) -> PartStatus:
    if part.ours and (part.process is None or not is_alive(part.process)):
        problem = "its process has ended"
    elif part.name.startswith("postgres"):
        problem = await asyncio.to_thread(_postgres_problem, part.address)
    elif part.name in ADDRESSES:
        problem = await _control_plane_problem(settings, record, databases, part)
    else:
        problem = await _temporal_problem(settings, part.address)
    return PartStatus(
        name=part.name,
        ours=part.ours,
        pid=None if part.process is None else part.process.pid,
        address=part.address,
        healthy=not problem,
        detail=problem or ("works" if part.name in ADDRESSES else "answers"),
    )


def _postgres_problem(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        command = [binary("pg_isready"), f"--host={host}", f"--port={port}", "--quiet"]
    except StackError:
        return _connect_problem(host, int(port))
    code = subprocess.run(  # noqa: S603
        [*command, f"--timeout={SERVER_PROBE_SECONDS}"],
        env=ENVIRONMENT,
        check=False,
        timeout=2 * SERVER_PROBE_SECONDS,
    ).returncode
    return ("", "it refuses connections", "it does not answer")[code] if code < 3 else "unknown"


def _connect_problem(host: str, port: int) -> str:
    """All that can be checked of a server that is not ours without the wheel's programs."""
    try:
        socket.create_connection((host, port), timeout=SERVER_PROBE_SECONDS).close()
    except OSError as error:
        return f"it does not answer: {error.strerror or error}"
    return ""


async def _temporal_problem(settings: Settings, address: str) -> str:
    try:
        await check_namespace(settings, address)
    except StackError as error:
        return str(error)
    return ""


async def _control_plane_problem(
    settings: Settings, record: StackRecord, databases: Databases | None, part: Part
) -> str:
    """What is wrong with a process of ours that is alive; empty if nothing is."""
    try:
        return await _ask_servers(settings, record, databases, part)
    except (StackError, AuthorityError) as error:
        return f"unknown: {error}"
    except TimeoutError:
        return "unknown: the servers that it works with do not answer"


async def _ask_servers(
    settings: Settings, record: StackRecord, databases: Databases | None, part: Part
) -> str:
    """Temporal knows what a worker polls, and the kernel what the agent is connected to."""
    address = settings.temporal_address or record.temporal_address
    if databases is None or address is None or part.process is None:
        return "unknown: the stack has not recorded where its servers are"
    pid = part.process.pid
    if part.name == AGENT:
        # Single nodes may be down for reasons of their own; `durable get regions` counts them.
        return "" if is_connected(pid, port_of(databases.urls[0])) else "it has lost the database"
    queues = [GLOBAL_QUEUE]
    async with asyncio.timeout(CONTROL_PLANE_PROBE_SECONDS):
        if part.name != GLOBAL_WORKER:
            queues = [regional_queue(region) for region in await list_regions(databases)]
        unserved = await queues_not_polled_by(pid, settings, address, queues)
    return f"it does not serve {', '.join(unserved)}" if unserved else ""

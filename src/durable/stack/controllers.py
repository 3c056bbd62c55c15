"""Our own processes beside the servers: the workers, and the agent that simulates nodes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from durable.settings import Settings, variable
from durable.signals.names import GLOBAL_QUEUE
from durable.stack.child import Child
from durable.stack.connections import is_connected, port_of
from durable.stack.controllers_health import (
    AGENT,
    GLOBAL_WORKER,
    REGIONAL_WORKER,
    unserved,
)

_COMMANDS = {
    GLOBAL_WORKER: ("worker", "--global"),
    REGIONAL_WORKER: ("worker", "--region", "all"),
    AGENT: ("agent", "--simulated", "--region", "all"),
}
# What the record names instead of an address: nobody connects to them, they connect to others.
ADDRESSES = {
    GLOBAL_WORKER: GLOBAL_QUEUE,
    REGIONAL_WORKER: "all regions",
    AGENT: "all regions, simulated",
}


def controllers(
    directory: Path, settings: Settings, database_url: str, temporal_address: str
) -> list[Child]:
    """How to run them, in the order in which the stack starts them."""
    environment = _environment(settings, directory.parent, database_url, temporal_address)
    database, temporal = port_of(database_url), int(temporal_address.rpartition(":")[2])

    def polls(pid: int) -> bool:
        # Until it is connected there is no use in asking Temporal, which costs more.
        return is_connected(pid, temporal) and not asyncio.run(
            unserved(settings, temporal_address, [GLOBAL_QUEUE], pid)
        )

    # Regions come and go, and one that is out of reach must not keep the stack from starting: who
    # serves them is ready when it has reached what it works with; `durable status` tells the rest.
    ready: dict[str, Callable[[int], bool]] = {
        GLOBAL_WORKER: polls,
        REGIONAL_WORKER: lambda pid: is_connected(pid, temporal) and is_connected(pid, database),
        AGENT: lambda pid: is_connected(pid, database),
    }
    return [
        Child(
            name=name,
            argv=(sys.executable, "-m", "durable.cli", *command),
            environment=environment,
            directory=directory,
            ready=ready[name],
        )
        for name, command in _COMMANDS.items()
    ]


def _environment(
    settings: Settings, state_dir: Path, database_url: str, temporal_address: str
) -> Mapping[str, str]:
    """Ours, with this stack's addresses, and with paths that hold in another directory too."""
    files = ("temporal_tls_ca", "temporal_tls_cert", "temporal_tls_key")
    named = {name: path for name in files if (path := getattr(settings, name)) is not None}
    return {
        **os.environ,
        **{variable(name): str(path.absolute()) for name, path in named.items()},
        variable("state_dir"): str(state_dir),
        variable("database_url"): database_url,
        variable("temporal_address"): temporal_address,
        "PYTHONUNBUFFERED": "1",
    }

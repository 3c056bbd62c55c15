"""Our own processes beside the servers: the workers, and the agent that simulates nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from durable.embedded.child import Child
from durable.embedded.connections import is_connected
from durable.settings import Settings, variable
from durable.signals.names import GLOBAL_QUEUE

GLOBAL_WORKER = "worker-global"
REGIONAL_WORKER = "worker-regions"
AGENT = "agent"
DATABASE_PORT = 5432

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
    database = urlsplit(database_url).port or DATABASE_PORT
    temporal = int(temporal_address.rpartition(":")[2])
    # Before these connections a process has only loaded its code; right after them it takes work.
    needed = {GLOBAL_WORKER: (temporal,), REGIONAL_WORKER: (temporal, database), AGENT: (database,)}
    return [
        Child(
            name=name,
            argv=(sys.executable, "-m", "durable.cli", *command),
            environment=environment,
            directory=directory,
            ready=lambda pid, ports=needed[name]: all(is_connected(pid, port) for port in ports),
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

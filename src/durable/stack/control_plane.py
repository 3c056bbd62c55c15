"""The control plane's own processes: the workers, and the agent that simulates nodes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from durable.settings import Settings, variable
from durable.signals.names import GLOBAL_QUEUE
from durable.stack.child import Child
from durable.stack.ports import is_connected, port_of
from durable.temporal.running import queues_not_polled_by

GLOBAL_WORKER = "worker-global"
REGIONAL_WORKER = "worker-regions"
AGENT = "agent"
# In the state directory: what drills break, and the simulating agent obeys.
FAULTS = "faults.yaml"

_COMMANDS = {
    GLOBAL_WORKER: ("worker", "--global"),
    REGIONAL_WORKER: ("worker", "--region", "all"),
    AGENT: ("agent", "--simulated", "--region", "all"),
}
# What the record shows instead of an address: nothing connects to them.
ADDRESSES = {
    GLOBAL_WORKER: GLOBAL_QUEUE,
    REGIONAL_WORKER: "all regions",
    AGENT: "all regions, simulated",
}


def control_plane(
    directory: Path,
    settings: Settings,
    database_url: str,
    regional_urls: Mapping[str, str],
    temporal_address: str,
) -> list[Child]:
    """How to run them, in the order in which the stack starts them."""
    environment = {
        **_environment(settings, directory.parent, database_url, temporal_address),
        variable("regional_database_urls"): json.dumps(dict(regional_urls)),
    }
    database, temporal = port_of(database_url), int(temporal_address.rpartition(":")[2])

    def polls(pid: int) -> bool:
        # Asking Temporal costs more, and is of no use before it is connected.
        return is_connected(pid, temporal) and not asyncio.run(
            queues_not_polled_by(pid, settings, temporal_address, [GLOBAL_QUEUE])
        )

    # Regions come and go, and one that is unreachable must not keep the stack from starting: what
    # serves them is ready once it has reached its servers; `durable status` shows the rest.
    ready: dict[str, Callable[[int], bool]] = {
        GLOBAL_WORKER: polls,
        REGIONAL_WORKER: lambda pid: is_connected(pid, temporal) and is_connected(pid, database),
        AGENT: lambda pid: is_connected(pid, database),
    }
    more = {AGENT: ("--faults", str(directory.parent.absolute() / FAULTS))}
    return [
        Child(
            name=name,
            argv=(sys.executable, "-m", "durable.cli", *command, *more.get(name, ())),
            environment=environment,
            directory=directory,
            ready=ready[name],
        )
        for name, command in _COMMANDS.items()
    ]


def _environment(
    settings: Settings, state_dir: Path, database_url: str, temporal_address: str
) -> Mapping[str, str]:
    """Our own environment with this stack's addresses, and with absolute paths."""
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

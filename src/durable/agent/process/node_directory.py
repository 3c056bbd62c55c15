"""The directory of one node: it allows one agent at a time, and keeps the lease's deadline."""

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from durable.agent.leases import Leases
from durable.agent.process.watchdog import boot_id
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import DeviceId, NodeId, RegionId
from durable.state_dir.record import StackError


def lease_file(node_directory: Path, region: RegionId) -> Path:
    """Where the deadline of the node's lease is kept, for its next agent and for watchdogs."""
    return node_directory / f"lease-{region}"


# Written by whatever checks this machine's devices: one id in a line, such as gpu-0.
UNHEALTHY_DEVICES = "unhealthy-devices"


class NodeDirectory:
    """Held by one agent at a time: each believes that it alone starts and stops replicas."""

    def __init__(self, state_dir: Path, node: NodeId) -> None:
        self.path = (state_dir / "agents" / node).absolute()
        self._node = node
        self._descriptor: int | None = None
        # Known while it is held.
        self.host = ""

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StackError(
                f"Another agent runs node {self._node} from {self.path}: stop it first, or give "
                "this one another --node or --state-dir."
            ) from None
        self._descriptor = descriptor
        self.host = self._known_host()
        return self

    def _known_host(self) -> str:
        """Names this directory to the authority: whoever runs it next is the same host."""
        file = self.path / "host"
        # A power failure may leave it empty.
        if not file.exists() or not file.read_text():
            aside = file.with_name("host.new")
            aside.write_text(f"the agent on {socket.gethostname()} ({secrets.token_hex(4)})")
            aside.rename(file)
        return file.read_text()

    def unhealthy_devices(self, node: NodeSpec) -> frozenset[DeviceId]:
        """What the machine's own checks have written; nothing if they have not."""
        try:
            lines = (self.path / UNHEALTHY_DEVICES).read_text().split()
        except (OSError, UnicodeDecodeError):
            return frozenset()
        return frozenset(device for device in node.devices if device in lines)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PersistentLeases(Leases):
    """Leases whose deadline the next agent knows as well, so that it fences in time."""

    def __init__(
        self, trusted_seconds: float, directory: NodeDirectory, region: RegionId, node: NodeId
    ) -> None:
        super().__init__(trusted_seconds)
        self._file = lease_file(directory.path, region)
        self._node = node
        known = self._read()
        if known is not None:
            self.trust_until(node, known)

    def _read(self) -> float | None:
        """Only of this boot: with it the clock starts again, and no process survives it."""
        try:
            content = json.loads(self._file.read_bytes())
            return float(content["until"]) if content["boot"] == boot_id() else None
        except (OSError, ValueError, KeyError):
            return None

    def renewed(self, nodes: Collection[NodeId], sent_at: float) -> None:
        super().renewed(nodes, sent_at)
        until = self.stop_at(self._node)
        aside = self._file.with_name(f"{self._file.name}.new")
        # If it cannot be written, the file keeps an earlier deadline, which is safe.
        with suppress(OSError):
            aside.write_text(json.dumps({"boot": boot_id(), "until": until}))
            aside.rename(self._file)

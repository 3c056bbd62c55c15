"""The directory of one node: it allows one agent at a time, and keeps the lease's deadline."""

import fcntl
import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from durable.agent.leases import Leases
from durable.model.ids import NodeId, RegionId
from durable.state_dir.record import StackError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NodeDirectory:
    """Held by one agent at a time: each believes that it alone starts and stops replicas."""

    def __init__(self, state_dir: Path, node: NodeId) -> None:
        self.path = (state_dir / "agents" / node).absolute()
        self._node = node
        self._descriptor: int | None = None

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
        return self

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
        self._file = directory.path / f"lease-{region}"
        self._node = node
        known = self._read()
        if known is not None:
            self.trust_until(node, known)

    def _read(self) -> float | None:
        """Only of this boot: with it the clock starts again, and no process survives it."""
        try:
            content = json.loads(self._file.read_bytes())
            return float(content["until"]) if content["boot"] == _boot() else None
        except (OSError, ValueError, KeyError):
            return None

    def renewed(self, nodes: Collection[NodeId], sent_at: float) -> None:
        super().renewed(nodes, sent_at)
        until = self.deadline_of(self._node)
        aside = self._file.with_name(f"{self._file.name}.new")
        # If it cannot be written, the file keeps an earlier deadline, which is safe.
        with suppress(OSError):
            aside.write_text(json.dumps({"boot": _boot(), "until": until}))
            aside.rename(self._file)


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except FileNotFoundError:
        return ""

"""The directory of one node: one agent at a time, and what it last knew of its lease."""

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
from durable.state_dir.errors import StackError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NodeDirectory:
    """Held by one agent; two would both believe that they alone start and stop."""

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
                f"Another agent runs node {self._node} from {self.path}: end it first, or give "
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


class RememberedLeases(Leases):
    """Leases that an agent after this one knows of, so that it fences in time as well."""

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
        """Of this boot alone: the clock begins anew with the machine, and nothing survives it."""
        try:
            content = json.loads(self._file.read_bytes())
            return float(content["until"]) if content["boot"] == _boot() else None
        except (OSError, ValueError, KeyError):
            return None

    def renewed(self, nodes: Collection[NodeId], sent_at: float) -> None:
        super().renewed(nodes, sent_at)
        until = self.deadline_of(self._node)
        aside = self._file.with_name(f"{self._file.name}.new")
        # What cannot be written stays as it was, which is earlier and so on the safe side.
        with suppress(OSError):
            aside.write_text(json.dumps({"boot": _boot(), "until": until}))
            aside.rename(self._file)


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except FileNotFoundError:
        return ""

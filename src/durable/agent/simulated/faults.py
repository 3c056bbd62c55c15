"""Faults injected into simulated nodes and replicas, from a file that may change at any time."""

from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from durable.agent.log import EventLog, Log
from durable.authority.fleet.assignments import Assignment
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import DeviceId
from durable.validation.value import Value

MAX_BYTES = 256 * 1024
# A workload whose environment has this fails in that way, wherever it is simulated.
ASKED_FOR = "DURABLE_SIMULATED_FAULT"
Pattern = Annotated[str, Field(min_length=1, max_length=256)]


class FaultKind(StrEnum):
    FAIL_TO_START = "fail_to_start"
    CRASH = "crash"
    NEVER_READY = "never_ready"
    HANG_ON_STOP = "hang_on_stop"
    # The node itself is gone, with all that runs there, until the fault is taken away.
    LOST = "lost"
    # The node runs on and reaches nobody: no lease, no order, no report.
    CUT_OFF = "cut_off"
    # Devices of the node are broken: they take no new work.
    UNHEALTHY_DEVICE = "unhealthy_device"


class InjectedFault(Value):
    """What goes wrong, and where: for nodes and workloads (`tenant/name`) that match a pattern."""

    kind: FaultKind
    node: Pattern = "*"
    # Of faults of nodes themselves: only those of these regions and zones, and these devices.
    region: Pattern = "*"
    zone: Pattern = "*"
    device: Pattern = "*"
    workload: Pattern = "*"
    # Only this generation of it, such as a bad version.
    generation: Annotated[int, Field(ge=1)] | None = None
    # A crash comes this long after the replica began to run, or after the fault was added.
    after_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    # Of a crash or a failed start; without one it looks as if a signal had ended it.
    exit_code: Annotated[int, Field(ge=1, le=255)] | None = None

    def matches(self, assignment: Assignment) -> bool:
        workload = f"{assignment.tenant}/{assignment.workload}"
        if self.generation not in (None, assignment.generation):
            return False
        return fnmatchcase(assignment.node, self.node) and fnmatchcase(workload, self.workload)

    def is_of(self, node: NodeSpec) -> bool:
        """Whether it is meant for the node itself."""
        pairs = ((node.id, self.node), (node.region, self.region), (node.zone, self.zone))
        return all(fnmatchcase(*pair) for pair in pairs)

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f" with exit code {self.exit_code}"
        return self.kind.replace("_", " ") + code


_FAULTS = TypeAdapter(Annotated[tuple[InjectedFault, ...], Field(max_length=1_000)])


class FaultsError(ValueError):
    """A faults file that cannot be used; the message is what to show."""


def read_faults(path: Path) -> tuple[InjectedFault, ...]:
    """The list of faults in a YAML or JSON file; empty if the file is empty or missing."""
    try:
        content = path.read_bytes()[: MAX_BYTES + 1]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FaultsError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise FaultsError(f"{path}: larger than {MAX_BYTES // 1024} KiB")
    try:
        return _FAULTS.validate_python(yaml.safe_load(content) or ())
    except yaml.YAMLError:
        raise FaultsError(f"{path}: not YAML or JSON") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        location = ".".join(str(part) for part in problem["loc"])
        raise FaultsError(f"{path}: {location or 'the file'}: {problem['msg']}") from None


class Faults:
    """The faults in force, read again whenever the file has changed."""

    def __init__(self, path: Path | None = None, log: Log | None = None) -> None:
        self._path = path
        self._log = log or EventLog()
        # Called when nodes may have been lost, cut off or found.
        self.on_change: Callable[[], None] = _nobody
        self._stamp: tuple[int, int, int] | None = None
        self._faults: tuple[InjectedFault, ...] = ()

    def find(self, assignment: Assignment, kind: FaultKind) -> InjectedFault | None:
        """The first fault of this kind that matches the replica, or that its spec asks for."""
        run = None if assignment.spec is None else assignment.spec.run
        if run is not None and run.environment.get(ASKED_FOR) == kind:
            return InjectedFault(kind=kind)
        return next((f for f in self._faults if f.kind is kind and f.matches(assignment)), None)

    def is_lost(self, node: NodeSpec) -> bool:
        """Whether the node is gone."""
        return any(one.kind is FaultKind.LOST and one.is_of(node) for one in self._faults)

    def is_cut_off(self, node: NodeSpec) -> bool:
        """Whether the node runs on by itself."""
        return any(one.kind is FaultKind.CUT_OFF and one.is_of(node) for one in self._faults)

    def unhealthy_devices(self, node: NodeSpec) -> frozenset[DeviceId]:
        broken = [
            fault
            for fault in self._faults
            if fault.kind is FaultKind.UNHEALTHY_DEVICE and fault.is_of(node)
        ]
        return frozenset(
            device
            for device in node.devices
            if any(fnmatchcase(device, fault.device) for fault in broken)
        )

    def reread(self) -> bool:
        """Whether the faults in force have changed; an invalid file leaves them as they were."""
        if self._path is None:
            return False
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            faults = read_faults(self._path)
        except FaultsError as error:
            self._log("faults ignored", error=error)
            return False
        if faults == self._faults:
            return False
        self._faults = faults
        self._log("faults changed", count=len(faults))
        self.on_change()
        return True


def _nobody() -> None:
    """Until somebody wants to know."""


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # The inode too: it differs if the file was replaced within one tick of the clock.
    return status.st_mtime_ns, status.st_size, status.st_ino

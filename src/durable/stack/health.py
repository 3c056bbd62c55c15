"""Ask every part of the stack how it is, and say so in one value."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from durable.settings import Settings
from durable.stack.controllers import ADDRESSES
from durable.stack.controllers_health import controller_problem
from durable.stack.errors import StackError
from durable.stack.postgres_data import ENVIRONMENT, binary
from durable.state_dir.leftovers import why_nothing_runs
from durable.state_dir.processes import is_alive
from durable.state_dir.record import Part, StackRecord, is_running, read_record
from durable.temporal.connection import healthy_namespace

PROBE_SECONDS = 3


class PartStatus(BaseModel):
    """One part, as it answered just now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    ours: bool
    pid: int | None
    address: str
    healthy: bool
    detail: str


class StackStatus(BaseModel):
    """The whole stack; healthy when it runs and every part answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: str
    running: bool
    healthy: bool
    detail: str
    supervisor_pid: int | None = None
    temporal_ui_url: str | None = None
    parts: tuple[PartStatus, ...] = ()


def stack_status(settings: Settings) -> StackStatus:
    """Look at the record, then ask each part itself."""
    path = settings.state_dir.absolute()
    record = read_record(path)
    running = is_running(path)
    if record is None:
        detail = why_nothing_runs(path)
        return StackStatus(state_dir=str(path), running=running, healthy=False, detail=detail)
    parts = tuple(_part_status(settings, record, part) for part in record.parts)
    return StackStatus(
        state_dir=str(path),
        running=running,
        healthy=running and record.phase == "running" and all(part.healthy for part in parts),
        detail=_detail(record, running, path),
        supervisor_pid=record.supervisor.pid if running else None,
        temporal_ui_url=record.temporal_ui_url if running else None,
        parts=parts,
    )


def _detail(record: StackRecord, running: bool, path: Path) -> str:
    if running:
        return "The stack runs." if record.phase == "running" else "The stack is starting."
    return why_nothing_runs(path)


def _part_status(settings: Settings, record: StackRecord, part: Part) -> PartStatus:
    if part.ours and (part.process is None or not is_alive(part.process)):
        problem = "its process has ended"
    elif part.name == "postgres":
        problem = _postgres_problem(part.address)
    elif part.name in ADDRESSES:
        problem = controller_problem(settings, record, part)
    else:
        problem = _temporal_problem(settings, part.address)
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
        [*command, f"--timeout={PROBE_SECONDS}"],
        env=ENVIRONMENT,
        check=False,
        timeout=2 * PROBE_SECONDS,
    ).returncode
    return ("", "it refuses connections", "it does not answer")[code] if code < 3 else "unknown"


def _connect_problem(host: str, port: int) -> str:
    """All that can be asked without the wheel's programs, for a server of somebody else."""
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
    except OSError as error:
        return f"it does not answer: {error.strerror or error}"
    return ""


def _temporal_problem(settings: Settings, address: str) -> str:
    try:
        asyncio.run(healthy_namespace(settings, address))
    except StackError as error:
        return str(error)
    return ""

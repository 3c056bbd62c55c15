"""A state directory without a supervisor: what still runs there, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from durable.state_dir.processes import is_alive
from durable.state_dir.record import StackRecord, read_record


def why_nothing_runs(path: Path) -> str:
    """A sentence for a directory whose lock nobody holds."""
    record = read_record(path)
    if record is None:
        return f"No stack runs in {path}: start one with durable up."
    if record.phase == "failed":
        return (
            f"The stack stopped by itself: {record.reason.rstrip('.')}. See the logs in {path}, "
            "then start it again with durable up."
        )
    running = _still_running(record)
    if not running:
        return (
            f"The supervisor of {path} was killed and nothing of its stack runs any more: "
            "durable up starts all again on the same data."
        )
    return (
        f"The supervisor of {path} was killed, so nobody starts again what ends there; still "
        f"running: {', '.join(running)}. durable up stops these and starts all again on the same "
        "data; durable down only stops them."
    )


def _still_running(record: StackRecord) -> list[str]:
    return [
        f"{part.name} (pid {part.process.pid})"
        for part in record.parts
        if part.process is not None and is_alive(part.process)
    ]

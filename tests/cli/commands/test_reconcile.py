"""`durable reconcile` against a real stack."""

import asyncio
import time
from typing import Any

from durable.cli.input.options import load_settings
from durable.temporal.connection import connect

from ..conftest import SEEN, Write
from ..terminal import Terminal


async def run_ids(*names: str, terminate: bool = False) -> list[Any]:
    settings = load_settings(None)
    client = await connect(settings, settings.require_temporal_address())
    found: list[Any] = []
    for name in names:
        handle = client.get_workflow_handle(name)
        if terminate:
            await handle.terminate("by mistake")
        described = await handle.describe()
        found.append(described.run_id if described.close_time is None else None)
    return found


def test_what_somebody_terminated_is_started_again(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(SEEN.replace("seen", "lost")))
    names = ("workload/shop/lost", "placement/shop/lost/g1/north")
    assert None not in asyncio.run(run_ids(*names))
    asyncio.run(run_ids(*names, terminate=True))

    # Temporal lists what runs with some delay, and the stack's own reconciler may come first.
    while None in asyncio.run(run_ids(*names)):
        assert at_plane.run("reconcile") == 0, at_plane.stderr
        time.sleep(0.5)
    assert at_plane.json("scale", "shop/lost", "4")["status"]["serving"] == 4
    assert at_plane.json("delete", "shop/lost")
    assert set(at_plane.json("reconcile")) == {"started"}


def test_a_control_plane_without_temporal_says_what_is_missing(terminal: Terminal) -> None:
    assert "No stack is running" in terminal.refused("reconcile")

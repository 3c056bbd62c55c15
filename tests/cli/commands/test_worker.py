"""`durable worker` on a running control plane."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from ..terminal import Terminal

DEADLINE_SECONDS = 60.0


def test_a_worker_of_an_unknown_region_is_refused(seen: Terminal) -> None:
    message = seen.refused("worker", "--region", "west")
    assert "There is no region west; the regions are north, south." in message
    assert "--global" in seen.wrong("worker")
    seen.wrong("worker", "--region", "No Such")


def test_check_asks_temporal_who_polls(seen: Terminal) -> None:
    found = seen.json("worker", "--global", "--region", "all", "--check")
    assert found["served"] is True
    assert set(found["queues"]) == {
        "durable-global",
        "durable-region-north",
        "durable-region-south",
    }
    assert "durable-region-west" in seen.refused("worker", "--region", "west", "--check")


def test_a_worker_drains_on_sigterm(seen: Terminal, plane: Path) -> None:
    environment = {**os.environ, "DURABLE_STATE_DIR": str(plane)}
    command = [sys.executable, "-m", "durable.cli", "worker", "--region", "north", "--global"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        serving = {worker.stderr.readline().split(" ", 1)[1].strip() for _ in range(2)}
        assert serving == {"serving workloads", "serving placements of north"}
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_SECONDS) == 0
        assert "draining" in worker.stderr.read()


def test_status_reports_the_workers_and_the_agent(seen: Terminal) -> None:
    assert seen.run("status", "--json") == 0, seen.stdout
    parts = {part["name"]: part for part in json.loads(seen.stdout)["parts"]}
    assert parts["worker-global"]["detail"] == "works"
    assert parts["agent"]["healthy"]

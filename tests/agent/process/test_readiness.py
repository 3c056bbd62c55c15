"""When a real process is ready: by port, by HTTP, by command, and when no longer."""

import socket
from pathlib import Path

from tests.agent.commands import FOREVER, directory_of, lives, number_in, python, runs
from tests.agent.region import LiveRegion
from tests.agent.waiting import eventually

# Serves when the file `open` is there, and answers 500 while the file `sick` is.
SERVER = """
import http.server, os, pathlib, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if pathlib.Path('sick').exists() else 204)
        self.end_headers()
    def log_message(self, *ignored): pass
while not pathlib.Path('open').exists(): time.sleep(0.01)
http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler).serve_forever()
"""


async def test_it_is_ready_only_when_its_port_answers(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    for slot, kind in enumerate(("tcp", "http")):
        spec = python(SERVER, readiness={kind: {"port": "auto"}})
        token = await process_region.run(slot, spec, generation=slot + 1)
        await process_region.until(token, "running")
        (directory_of(tmp_path, token) / "work" / "open").touch()
        await process_region.until(token, "serving")


async def test_it_is_running_again_when_its_probe_fails_again(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    token = await process_region.run(
        0, python(SERVER, readiness={"http": {"port": "auto", "path": "/health"}})
    )
    work = directory_of(tmp_path, token) / "work"
    await process_region.until(token, "running")
    (work / "open").touch()
    await process_region.until(token, "serving")
    (work / "sick").touch()
    assert "GET /health answered 500" in await process_region.until(token, "running")
    (work / "sick").unlink()
    await process_region.until(token, "serving")


async def test_a_fixed_port_is_probed_and_a_command_too(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        fixed = {"tcp": {"port": server.getsockname()[1]}}
        token = await process_region.run(0, runs(*FOREVER, readiness=fixed))
        await process_region.until(token, "serving")

    # It sees the environment of its replica, and runs in its directory.
    asked = {"command": {"command": ["/bin/sh", "-c", 'test -e "$DURABLE_TOKEN.ready"']}}
    token = await process_region.run(1, runs(*FOREVER, readiness=asked), generation=2)
    await process_region.until(token, "running")
    (directory_of(tmp_path, token) / "work" / f"{token}.ready").touch()
    await process_region.until(token, "serving")


async def test_a_probe_that_hangs_is_ended_and_counts_as_no(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    script = "echo $$ > probe.pid; exec sleep 1000"
    hangs = {"command": {"command": ["/bin/sh", "-c", script]}, "timeout": "1s"}
    token = await process_region.run(0, runs(*FOREVER, readiness=hangs))
    pid = await number_in(directory_of(tmp_path, token) / "work" / "probe.pid")
    await eventually("the probe is ended", lambda: not lives(pid))
    assert (await process_region.observed(token))[0] == "running"

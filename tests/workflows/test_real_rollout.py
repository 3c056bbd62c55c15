"""Ten real processes roll out to another version while a steady client is always answered."""

import asyncio
import sys
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.workflows.plane import Plane, manifest, small_fleet, until
from tests.workflows.test_exit_codes import MACHINES, are_live, machine

REPLICAS = 10

# Answers its version, says where it can be reached, and finishes what is under way when it is
# asked to stop.
SERVER = """
import http.server, os, pathlib, signal, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ['VERSION'].encode())
    def log_message(self, *ignored): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler)
pathlib.Path('{folder}', os.environ['DURABLE_TOKEN']).write_text(os.environ['PORT'])
def finish(*ignored):
    threading.Thread(target=lambda: (time.sleep(3), os._exit(0))).start()
signal.signal(signal.SIGTERM, finish)
server.serve_forever()
"""

SERVING = """
    SELECT r.token FROM regional.reservations AS r
      JOIN regional.bindings AS b USING (region, token)
      JOIN regional.observations AS o USING (region, token)
     WHERE r.freed_version IS NULL AND o.state = 'serving' AND b.stop_requested_at IS NULL
"""


class Client:
    """Sends one request after the other to what serves, as a load balancer that watches would."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.answers: list[str] = []
        self.failures: list[str] = []

    async def run(self) -> None:
        while True:
            ports = await asyncio.to_thread(self._ports)
            for port in ports:
                await asyncio.to_thread(self._ask, port)
            if not ports:
                self.failures.append("nothing serves")
            await asyncio.sleep(0.01)

    def _ports(self) -> list[int]:
        with psycopg.connect(self._url) as connection:
            tokens = [token for (token,) in connection.execute(SERVING)]
        return [int((self._folder / str(token)).read_text()) for token in tokens]

    def _ask(self, port: int) -> None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                self.answers.append(answer.read().decode())
        except OSError as error:
            self.failures.append(repr(error))


def version(number: int, folder: Path) -> dict[str, Any]:
    return manifest(
        replicas=REPLICAS,
        resources={"cpu": "100m", "memory": "64Mi"},
        requirements={"labels": {"driver": "process"}},
        rollout={"bake": None},
        run={
            "command": [sys.executable, "-c", SERVER.replace("{folder}", str(folder))],
            "environment": {"VERSION": str(number)},
            "readiness": {"http": {"port": "auto"}},
            "stop_grace": "30s",
        },
    )


@pytest.mark.soak
async def test_a_steady_client_is_always_answered_while_real_processes_roll_out(
    plane: Plane, tmp_path: Path
) -> None:
    folder = tmp_path / "ports"
    folder.mkdir()
    await plane.load(small_fleet())
    async with AsyncExitStack() as stack:
        for name in MACHINES:
            await stack.enter_async_context(machine(plane, tmp_path, name))
        await until(lambda: are_live(plane), "the machines are registered")
        await plane.work()
        await plane.durable.place(version(1, folder), request_id="one")
        client = Client(plane.settings.require_database_url(), folder)
        asking = plane.background(client.run())
        await plane.durable.place(version(2, folder), request_id="two")
        await until(lambda: _is_all(client, "2"), "only the new version answers")
        asking.cancel()
        assert client.failures == []
        assert {"1", "2"} == set(client.answers)
        await plane.durable.delete("risk", "api")
        await plane.durable.wait("risk", "api", until="deleted")


async def _is_all(client: Client, answer: str) -> bool:
    return client.answers[-REPLICAS:] == [answer] * REPLICAS

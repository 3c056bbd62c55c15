"""A PostgreSQL and a Temporal that can be killed and keep what they acknowledged."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from durable.signals.search_attributes import SEARCH_ATTRIBUTES
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres
from durable.stack.temporal_server import temporal_child
from durable.temporal.connection import answers

NAMESPACE = "chaos"


class PostgresServer:
    """Keeps its port when it is killed and restarted."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._server = EmbeddedPostgres(directory)
        self._port = free_port()
        self._server.start(self._port)
        self.url = self._server.ensure_database("durable")

    def kill(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Stops every process of the server: it takes connections, and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        server = psutil.Process(self._server.pid)
        for process in (server, *server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def restart(self) -> None:
        self._server.stop()
        self._server.start(self._port)

    def stop(self) -> None:
        self._server.stop()


class TemporalServer:
    """Started as the stack starts it, on a database file."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        child = temporal_child(directory, port, free_port())
        self._command = [
            *child.argv,
            f"--namespace={NAMESPACE}",
            *(f"--search-attribute={key.name}=Keyword" for key in SEARCH_ATTRIBUTES),
        ]
        self._environment = dict(child.environment)
        self._running: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._running = subprocess.Popen(  # noqa: ASYNC220
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not await answers(self.address):
            assert self._running.poll() is None, "Temporal ended before it was ready"
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

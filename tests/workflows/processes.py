"""Workers and agents as processes of their own, so that a test can kill them."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from durable.failpoints import VARIABLE
from durable.settings import Settings

WORKER = ("worker", "--global", "--region", "all")
AGENT = (
    "agent", "--simulated", "--region", "all", "--start-delay", "0", "--ready-delay", "0",
)  # fmt: skip


class Process:
    """One command of `durable`; started again with `again`, killed with `kill`."""

    def __init__(self, settings: Settings, command: tuple[str, ...], log: Path) -> None:
        self._command = [sys.executable, "-m", "durable.cli", *command]
        self._log = log
        assert settings.database_url is not None
        assert settings.temporal_address is not None
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != VARIABLE},
            "DURABLE_STATE_DIR": str(settings.state_dir),
            "DURABLE_DATABASE_URL": settings.database_url,
            "DURABLE_TEMPORAL_ADDRESS": settings.temporal_address,
            "DURABLE_TEMPORAL_NAMESPACE": settings.temporal_namespace,
        }
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, failpoints: str | None = None) -> None:
        armed = {} if failpoints is None else {VARIABLE: failpoints}
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, env={**self._environment, **armed}, stderr=log, stdout=log
            )

    @property
    def exit_code(self) -> int | None:
        assert self._running is not None
        return self._running.poll()

    def kill(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGKILL)
        self._running.wait()

    def end(self) -> None:
        if self._running is not None and self._running.poll() is None:
            self.kill()

    def words(self) -> str:
        return self._log.read_text()[-4000:]


@contextmanager
def process(
    settings: Settings, command: tuple[str, ...], failpoints: str | None = None
) -> Generator[Process]:
    made = Process(settings, command, settings.state_dir / f"{command[0]}.log")
    made.start(failpoints)
    try:
        yield made
    finally:
        made.end()

"""Workers and agents as processes of their own, so that a test can kill them.

They are forked from a process that has imported everything already: a start takes no second of two
busy cores, and a test may afford many.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from durable.cli.main import run
from durable.failpoints import VARIABLE
from durable.settings import Settings

WORKER = ("worker", "--global", "--region", "all")
AGENT = (
    "agent", "--simulated", "--region", "all", "--start-delay", "0", "--ready-delay", "0",
)  # fmt: skip


def run_command(command: tuple[str, ...], environment: Mapping[str, str], log: str) -> None:
    """The life of such a process: the `durable` command, with its words in a file."""
    with Path(log).open("ab") as words:
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
    os.environ.pop(VARIABLE, None)
    os.environ.update(environment)
    sys.argv = ["durable", *command]
    run()


class Process:
    """One command of `durable`; killed, it can be started again."""

    def __init__(self, settings: Settings, command: tuple[str, ...], log: Path) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", __name__])
        self._command = command
        self._log = log
        assert settings.database_url is not None
        assert settings.temporal_address is not None
        self._environment = {
            "DURABLE_STATE_DIR": str(settings.state_dir),
            "DURABLE_DATABASE_URL": settings.database_url,
            "DURABLE_TEMPORAL_ADDRESS": settings.temporal_address,
            "DURABLE_TEMPORAL_NAMESPACE": settings.temporal_namespace,
            "DURABLE_REGIONAL_DATABASE_URLS": json.dumps(dict(settings.regional_database_urls)),
        }
        self._running: ForkServerProcess | None = None

    def start(self, failpoints: str | None = None) -> None:
        armed = {} if failpoints is None else {VARIABLE: failpoints}
        self._running = self._context.Process(
            target=run_command,
            args=(self._command, {**self._environment, **armed}, str(self._log)),
        )
        self._running.start()

    @property
    def exit_code(self) -> int | None:
        assert self._running is not None
        return self._running.exitcode

    def terminate(self) -> None:
        """Asks it to stop, as a supervisor does."""
        assert self._running is not None
        self._running.terminate()

    def kill(self) -> None:
        assert self._running is not None
        self._running.kill()
        self._running.join()


@contextmanager
def process(
    settings: Settings, command: tuple[str, ...], failpoints: str | None = None
) -> Generator[Process]:
    made = Process(settings, command, settings.state_dir / f"{command[0]}.log")
    made.start(failpoints)
    try:
        yield made
    finally:
        made.kill()

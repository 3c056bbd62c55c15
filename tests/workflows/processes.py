"""Workers and agents as processes of their own, so that a test can kill them.

They are forked from a process that has imported everything already: a start takes no second of two
busy cores, and a test may afford many. Only one with another clock is started from nothing.
"""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import files
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from durable.cli.main import run
from durable.failpoints import VARIABLE
from durable.settings import Settings
from tests.conftest import MEMORY

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


def environment_of(settings: Settings) -> dict[str, str]:
    """What a command has to know to work for the same control plane."""
    return {
        "DURABLE_STATE_DIR": str(settings.state_dir),
        "DURABLE_DATABASE_URL": settings.require_database_url(),
        "DURABLE_TEMPORAL_ADDRESS": settings.require_temporal_address(),
        "DURABLE_TEMPORAL_NAMESPACE": settings.temporal_namespace,
        "DURABLE_REGIONAL_DATABASE_URLS": json.dumps(dict(settings.regional_database_urls)),
    }


class Process:
    """One command of `durable`; killed, it can be started again."""

    def __init__(self, settings: Settings, command: tuple[str, ...], log: Path) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", __name__])
        self._command = command
        self._log = log
        self._environment = environment_of(settings)
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

    @property
    def pid(self) -> int:
        assert self._running is not None
        assert self._running.pid is not None
        return self._running.pid

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


def clock(ahead: timedelta) -> dict[str, str]:
    """The environment of a process whose wall clock is that far ahead of everybody's.

    Every reader in it is deceived, also the SDK's core; how long something takes is measured right.
    """
    packed = files("libfaketime") or ()
    library = next(one for one in packed if one.name == "libfaketime.so.1").locate()
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{ahead.total_seconds():+.0f}",
        "DONT_FAKE_MONOTONIC": "1",
    }


@contextmanager
def process_with_clock(
    settings: Settings, command: tuple[str, ...], ahead: timedelta
) -> Generator[Path]:
    """One command of `durable` by such a clock; yields the file with what it says."""
    log = settings.state_dir / f"{command[0]}{ahead.total_seconds():+.0f}.log"
    with log.open("ab") as words:
        running = subprocess.Popen(
            [Path(sys.executable).with_name("durable"), *command],
            env={**os.environ, **environment_of(settings), **clock(ahead)},
            stdout=words,
            stderr=words,
        )
    try:
        yield log
    finally:
        running.kill()
        running.wait()
        # What it shares with those that it starts stays behind when it is killed.
        for name in (f"faketime_shm_{running.pid}", f"sem.faketime_sem_{running.pid}"):
            (MEMORY / name).unlink(missing_ok=True)

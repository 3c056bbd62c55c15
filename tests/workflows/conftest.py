"""One real Temporal server for each worker of the run, and a namespace of its own for each test."""

import asyncio
import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from temporalio import workflow

from durable.settings import Settings
from durable.signals.search_attributes import SEARCH_ATTRIBUTES
from durable.stack.ports import free_port
from durable.stack.temporal_server import DYNAMIC_CONFIG, temporal_binary
from durable.temporal import worker
from durable.temporal.connection import answers
from durable.temporal.updates import PATIENT
from tests.workflows.determinism import guard
from tests.workflows.plane import Plane

NAMESPACES = 350
# No test uses what the server itself runs in every namespace: schedules and batches. For hundreds
# of namespaces that is a tenth of a core.
CONFIG = {**DYNAMIC_CONFIG, "worker.perNamespaceWorkerCount": "0"}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def temporal_address() -> Iterator[str]:
    address, server = _started(tries=3)
    try:
        yield address
    finally:
        server.terminate()
        server.wait()


def _started(tries: int) -> tuple[str, "subprocess.Popen[bytes]"]:
    """A server that answers. It takes more ports than it is told, which others may take first."""
    for _ in range(tries):
        address = f"127.0.0.1:{free_port()}"
        server = subprocess.Popen(
            [
                temporal_binary(), "server", "start-dev", "--headless", "--log-level=error",
                "--ip=127.0.0.1", f"--port={address.partition(':')[2]}",
                *(f"--namespace=test-{number}" for number in range(1, NAMESPACES + 1)),
                *(f"--search-attribute={key.name}=Keyword" for key in SEARCH_ATTRIBUTES),
                *(f"--dynamic-config-value={key}={value}" for key, value in CONFIG.items()),
            ],
            stdout=subprocess.DEVNULL,
            # Memory is plentiful here, and cores are not.
            env={**os.environ, "GOGC": "400"},
        )  # fmt: skip
        while server.poll() is None:
            if asyncio.run(answers(address)):
                return address, server
    raise AssertionError(f"the Temporal server ended while it started, {tries} times")


@pytest.fixture(autouse=True)
def patience_of_a_busy_machine() -> Iterator[None]:
    """Whoever kills workers all the time gets no answer for longer than a person would wait."""
    usual = PATIENT.silence
    object.__setattr__(PATIENT, "silence", timedelta(minutes=5))
    yield
    object.__setattr__(PATIENT, "silence", usual)


@pytest.fixture(autouse=True)
def determinism_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make determinism`: whatever runs a workflow, in production's way or not, is guarded."""
    if os.environ.get("DETERMINISM_GUARD") == "1":
        runner = guard(monkeypatch)
        monkeypatch.setattr(worker, "sandbox", lambda: runner)


@pytest.fixture(autouse=True)
def one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does to them, workflows never have two local activities at once."""
    execute: Any = workflow.execute_local_activity_method
    under_way: WeakSet[Any] = WeakSet()
    overlaps: list[str] = []

    async def alone(*given: Any, **options: Any) -> Any:
        instance = workflow.instance()
        if instance in under_way:
            overlaps.append(f"{workflow.info().workflow_id}: {options.get('summary')}")
        under_way.add(instance)
        try:
            return await execute(*given, **options)
        finally:
            under_way.discard(instance)

    monkeypatch.setattr(workflow, "execute_local_activity_method", alone)
    yield
    assert overlaps == []


MakePlane = Callable[..., Awaitable[Plane]]


@pytest.fixture
async def make_plane(
    temporal_address: str, new_database: Callable[[], str], tmp_path: Path
) -> AsyncIterator[MakePlane]:
    """Makes control planes that know nothing of each other; settings may differ."""
    made: list[Plane] = []

    async def make(**other: Any) -> Plane:
        number = next(_numbers)
        assert number <= NAMESPACES, "more planes are made in one run than there are namespaces"
        state_dir = tmp_path / f"plane-{number}"
        state_dir.mkdir()
        usual = {
            "state_dir": state_dir,
            "temporal_address": temporal_address,
            "temporal_namespace": f"test-{number}",
        }
        database_url = other.pop("database_url", None) or new_database()
        settings = Settings(**usual, database_url=database_url, **other)
        made.append(await Plane.make(settings, state_dir / "faults.yaml"))
        return made[-1]

    try:
        yield make
    finally:
        for plane in made:
            await plane.close()


@pytest.fixture
async def plane(make_plane: MakePlane) -> Plane:
    return await make_plane()

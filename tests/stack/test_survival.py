"""Whatever is killed with -9, running workflows and committed rows survive."""

import asyncio
import secrets
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from durable.settings import Settings
from durable.stack.detached import start_detached
from durable.stack.ports import choose_port
from durable.stack.shutdown import stop_stack
from durable.stack.status import stack_status
from durable.stack.supervisor import StackEvent
from durable.state_dir.directory import StateDirectory
from durable.state_dir.processes import Process, is_alive, send_signal, wait_gone
from durable.state_dir.record import StackRecord, read_record

from .polling import DEADLINE_SECONDS, eventually
from .waiting import Waiting

WORKFLOW_ID = "waiting"
TASK_QUEUE = "survival"
OURS = ("worker-global", "worker-regions", "agent")


@pytest.fixture(scope="module")
def state_dir() -> Iterator[Path]:
    """The stack of both tests: each leaves it running, because a start takes longest."""
    with tempfile.TemporaryDirectory(prefix="durable-test-") as folder:
        path = Path(folder) / "state"
        prefer_quiet_ports(StateDirectory(path))
        try:
            start(path)
            yield path
        finally:
            stop_stack(path)


def prefer_quiet_ports(state: StateDirectory) -> None:
    """Ports that nobody else takes between a kill and a restart.

    Anyone may use the usual ports, and any connection may get an ephemeral one.
    """
    state.prepare()
    ports: dict[str, int] = {}
    for name in ("postgres", "temporal", "temporal-ui"):
        quiet = (20_000 + secrets.randbelow(10_000) for _ in range(20))
        ports[name] = choose_port(quiet, avoid=ports.values())
    state.remember_ports(ports)


def record_of(state_dir: Path) -> StackRecord:
    record = read_record(state_dir)
    assert record is not None
    return record


def process_of(state_dir: Path, name: str) -> Process:
    record = record_of(state_dir)
    if name == "supervisor":
        return record.supervisor
    process = next(part.process for part in record.parts if part.name == name)
    assert process is not None
    return process


def kill(state_dir: Path, *names: str) -> None:
    # The supervisor goes first, so that it cannot bring the others back in between.
    processes = [process_of(state_dir, name) for name in sorted(names, reverse=True)]
    for process in processes:
        assert send_signal(process, signal.SIGKILL)
    for process in processes:
        assert wait_gone(process, DEADLINE_SECONDS)


def start(state_dir: Path) -> list[str]:
    notes: list[str] = []

    def report(event: StackEvent) -> None:
        if event.kind == "note":
            notes.append(event.text)

    start_detached(state_dir, report)
    return notes


def healthy(state_dir: Path) -> bool:
    return stack_status(Settings(state_dir=state_dir)).healthy


def kill_and_wait(state_dir: Path, name: str) -> None:
    killed = process_of(state_dir, name)
    kill(state_dir, name)
    eventually(
        f"{name} is running again",
        lambda: healthy(state_dir) and process_of(state_dir, name) != killed,
    )


def commit_a_row(state_dir: Path) -> None:
    with psycopg.connect(record_of(state_dir).database_url or "") as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('committed')")


def committed_rows(state_dir: Path) -> list[tuple[str]]:
    with psycopg.connect(record_of(state_dir).database_url or "") as connection:
        return connection.execute("SELECT word FROM kept").fetchall()


async def connect(state_dir: Path) -> Client:
    settings = Settings(state_dir=state_dir)
    return await Client.connect(settings.require_temporal_address(), namespace="durable")


async def say_a_word(state_dir: Path) -> None:
    client = await connect(state_dir)
    async with Worker(client, task_queue=TASK_QUEUE, workflows=[Waiting]):
        handle = await client.start_workflow(Waiting.run, id=WORKFLOW_ID, task_queue=TASK_QUEUE)
        await handle.signal(Waiting.say, "before")
        assert await handle.query(Waiting.words) == ["before"]


async def finish(state_dir: Path) -> list[str]:
    client = await connect(state_dir)
    async with Worker(client, task_queue=TASK_QUEUE, workflows=[Waiting]):
        handle = client.get_workflow_handle_for(Waiting.run, WORKFLOW_ID)
        await handle.signal(Waiting.say, "after")
        await handle.signal(Waiting.finish)
        return await handle.result()


def check_survivors(state_dir: Path) -> None:
    assert committed_rows(state_dir) == [("committed",)]
    assert asyncio.run(finish(state_dir)) == ["before", "after"]


def test_the_supervisor_restarts_a_killed_child(state_dir: Path) -> None:
    commit_a_row(state_dir)
    asyncio.run(say_a_word(state_dir))

    for victim in ("postgres", "temporal", "worker-global"):
        kill_and_wait(state_dir, victim)

    check_survivors(state_dir)


def test_up_recovers_a_directory_whose_supervisor_was_killed(state_dir: Path) -> None:
    commit_a_row(state_dir)
    asyncio.run(say_a_word(state_dir))
    before = record_of(state_dir)

    kill(state_dir, "supervisor")
    after_one = start(state_dir)
    orphans = [process for part in before.parts if (process := part.process)]
    kill(state_dir, "supervisor", "postgres", "temporal", *OURS)
    after_all = start(state_dir)
    assert healthy(state_dir), "up returns once a placement would go through"

    first_to_last = (*reversed(OURS), "temporal", "postgres")
    assert any(
        f"Stopped what it left: {' and '.join(first_to_last)}" in note for note in after_one
    ), after_one
    assert len(orphans) == 2 + len(OURS)
    assert not any(is_alive(orphan) for orphan in orphans)
    assert any(
        "Stopped what it left: nothing: all its processes had ended" in note for note in after_all
    ), after_all
    check_survivors(state_dir)

"""Parts are probed at once, so that those that hang are waited for once."""

import threading

import pytest

from durable.settings import Settings
from durable.stack import parts
from durable.stack.parts import part_statuses
from durable.state_dir.processes import Process
from durable.state_dir.record import Part, StackRecord

NAMES = ("postgres", "postgres-us-east", "postgres-us-west")


async def test_servers_that_hang_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(len(NAMES))

    def hang(_: str) -> str:
        together.wait(timeout=20)
        return "it does not answer"

    monkeypatch.setattr(parts, "_postgres_problem", hang)
    servers = tuple(Part(name=name, address="127.0.0.1:5432", ours=False) for name in NAMES)
    record = StackRecord(supervisor=Process(pid=1, started="then"), parts=servers)
    found = await part_statuses(Settings(), record, None)
    assert [one.name for one in found] == list(NAMES)
    assert {one.detail for one in found} == {"it does not answer"}

"""One regional database that does not answer: every command says what the others know."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from durable.authority.db import breaker
from durable.authority.migrations import upgrade
from durable.stack.postgres.server import EmbeddedPostgres
from tests.frozen import frozen

from ..conftest import FLEET
from ..terminal import Terminal

T = TypeVar("T")

# Each took 42 to 62 seconds, and then failed.
SOON_SECONDS = 10.0


@pytest.fixture
def apart(
    terminal: Terminal,
    other_postgres: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Terminal:
    """A fleet whose south has a database of its own, on a server of its own."""
    url = other_postgres.ensure_database(f"south_{tmp_path.name.replace('-', '_')}".lower()[:60])
    upgrade(url, serves_global=False)
    monkeypatch.setenv("DURABLE_REGIONAL_DATABASE_URLS", f'{{"south": "{url}"}}')
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(breaker, "PROBE_SECONDS", 2)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    assert terminal.run("fleet", "load", "-f", str(fleet)) == 0, terminal.stderr
    return terminal


def test_commands_answer_with_what_the_other_regions_know(
    apart: Terminal, other_postgres: EmbeddedPostgres
) -> None:
    with frozen(other_postgres):
        nodes = _soon(lambda: apart.json("get", "nodes"))
        assert {node["region"] for node in nodes["nodes"]} == {"north"}
        assert "PostgreSQL at 127.0.0.1" in nodes["unreachable"]["south"]
        assert "south is missing here" in apart.stderr
        assert _soon(lambda: apart.run("doctor")) == 1
        assert "south could not be checked; every other region was." in apart.stderr


def _soon(command: Callable[[], T]) -> T:
    began = time.monotonic()
    answer = command()
    assert time.monotonic() - began < SOON_SECONDS
    return answer

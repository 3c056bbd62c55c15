"""One regional database that does not answer: every command says what the others know."""

import time
from collections import Counter
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
        assert "south is unreachable" in apart.stderr
        regions = {
            one["region"]: one for one in _soon(lambda: apart.json("get", "regions"))["regions"]
        }
        assert regions["north"]["nodes"] == 6
        known = {name: regions["south"][name] for name in ("state", "epoch", "nodes", "live")}
        assert known == {"state": "open", "epoch": 1, "nodes": None, "live": None}
        assert _soon(lambda: apart.run("doctor")) == 1
        assert "south could not be checked; every other region was." in apart.stderr


def test_a_fleet_is_loaded_into_the_regions_that_answer(
    apart: Terminal, other_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    more = FLEET.replace("count: 3", "count: 4")
    assert more != FLEET
    fleet = tmp_path / "more.yaml"
    fleet.write_text(more)
    with frozen(other_postgres):
        assert apart.run("fleet", "load", "-f", str(fleet)) == 1
        assert "Nothing was loaded into south" in apart.stderr
        assert "Load the same file again when it answers." in apart.stderr
        before = _count(apart)
    assert apart.run("fleet", "load", "-f", str(fleet)) == 0, apart.stderr
    assert set(before) == {"north"}
    assert set(_count(apart)) == {"north", "south"}
    assert _count(apart)["north"] == before["north"]


def _count(apart: Terminal) -> dict[str, int]:
    """The nodes of each region that answers."""
    return dict(Counter(node["region"] for node in apart.json("get", "nodes")["nodes"]))


def _soon(command: Callable[[], T]) -> T:
    began = time.monotonic()
    answer = command()
    assert time.monotonic() - began < SOON_SECONDS
    return answer

"""One whole control plane for the tests that only use it: servers, workers, a simulated agent."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from durable.stack.detached import start_detached
from durable.stack.shutdown import stop_stack

from .terminal import Terminal

FLEET = """
regions:
  - id: north
    zones: [n1, n2]
    pools:
      - {name: one, zone: n1, count: 3, capacity: {cpu: 8, memory: 32Gi}}
      - {name: two, zone: n2, count: 3, capacity: {cpu: 8, memory: 32Gi}}
  - id: south
    zones: [s1]
    pools:
      - {name: one, zone: s1, count: 3, capacity: {cpu: 8, memory: 32Gi}}
      - {name: kept, zone: s1, count: 1, capacity: {cpu: 4, memory: 8Gi},
         taints: [{key: for, value: nobody, effect: no-schedule}]}
tenants:
  - id: shop
    hard: {cpu: 90, memory: 400Gi}
    grants:
      north: {cpu: 44, memory: 180Gi}
      south: {cpu: 24, memory: 90Gi}
"""

SEEN = """
tenant: shop
name: seen
spec:
  replicas: 3
  resources: {cpu: 1, memory: 1Gi}
"""

Write = Callable[[str], str]


# Of the package, not of the run: a stack costs a fifth of a core even when nothing happens.
@pytest.fixture(scope="package")
def plane() -> Iterator[Path]:
    """The state directory of a stack that runs for all tests that ask for it."""
    for name in [name for name in os.environ if name.startswith("DURABLE_")]:
        del os.environ[name]
    # Unlike tmp_path: every pytest that starts closes that one to PostgreSQL's system user.
    with tempfile.TemporaryDirectory(prefix="durable-test-") as folder:
        state_dir = Path(folder) / "state"
        start_detached(state_dir, lambda _: None)
        try:
            yield state_dir
        finally:
            stop_stack(state_dir)


@pytest.fixture(scope="session")
def fleet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    path.write_text(FLEET)
    return path


@pytest.fixture
def at_plane(
    plane: Path,
    fleet_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    """A terminal at that stack, whose fleet is loaded."""
    monkeypatch.setenv("DURABLE_STATE_DIR", str(plane))
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal(capsys)
    loaded = plane / "fleet.loaded"
    if not loaded.exists():
        assert terminal.run("fleet", "load", "-f", str(fleet_file)) == 0, terminal.stderr
        loaded.touch()
    wait_for_nodes(terminal)
    return terminal


def wait_for_nodes(terminal: Terminal) -> None:
    """Until the simulated nodes are registered: before that, nothing can be placed."""
    give_up = time.monotonic() + 240
    while not all(node["live"] for node in simulated_nodes(terminal)):
        assert time.monotonic() < give_up, "the nodes are not registered"
        time.sleep(0.2)


def simulated_nodes(terminal: Terminal) -> list[Any]:
    nodes = terminal.json("get", "nodes")["nodes"]
    return [node for node in nodes if node["labels"].get("driver") != "process"]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a manifest and answers its path."""

    def to_file(text: str) -> str:
        path = tmp_path / "workload.yaml"
        path.write_text(text)
        return str(path)

    return to_file


@pytest.fixture
def terminal(
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    """Commands against a migrated database, without a stack."""
    monkeypatch.setenv("DURABLE_DATABASE_URL", database_url)
    monkeypatch.setenv("DURABLE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(capsys)


@pytest.fixture
def seen(at_plane: Terminal, write: Write) -> Terminal:
    """A terminal at a stack where shop/seen serves."""
    at_plane.json("apply", "-f", write(SEEN))
    return at_plane

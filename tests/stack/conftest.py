"""State directories whose stacks are stopped afterwards, whatever the test did."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.stack.shutdown import stop_stack


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Used instead of tmp_path, which pytest closes to PostgreSQL's system user."""
    with tempfile.TemporaryDirectory(prefix="durable-test-") as path:
        yield Path(path)


@pytest.fixture
def state_dir(scratch: Path) -> Iterator[Path]:
    path = scratch / "state"
    yield path
    stop_stack(path)

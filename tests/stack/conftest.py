"""State directories whose stacks are stopped by their record, whatever the test did."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.stack.shutdown import stop_stack


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Unlike tmp_path: every pytest that starts closes that one to PostgreSQL's system user."""
    with tempfile.TemporaryDirectory(prefix="durable-test-") as path:
        yield Path(path)


@pytest.fixture
def state_dir(scratch: Path) -> Iterator[Path]:
    path = scratch / "state"
    yield path
    stop_stack(path)

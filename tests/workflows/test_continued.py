"""A run believes the memory in its input only if the run before it wrote that."""

from types import SimpleNamespace

import pytest
from temporalio import workflow

from durable.workflows.continued import continued


@pytest.mark.parametrize(
    ("before", "attempt", "cron", "is_believed"),
    [
        ("run-1", 1, None, True),
        (None, 1, None, False),
        ("run-1", 2, None, False),
        ("run-1", 1, "* * * * *", False),
    ],
)
def test_memory_is_believed_after_continue_as_new_alone(
    monkeypatch: pytest.MonkeyPatch,
    before: str | None,
    attempt: int,
    cron: str | None,
    is_believed: bool,
) -> None:
    info = SimpleNamespace(continued_run_id=before, attempt=attempt, cron_schedule=cron)
    monkeypatch.setattr(workflow, "info", lambda: info)
    assert continued("memory") == ("memory" if is_believed else None)
    assert continued(None) is None

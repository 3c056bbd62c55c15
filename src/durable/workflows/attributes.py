"""Search attributes of a workflow: written when they change, and nowhere else."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate


class ShownAttributes:
    """What this run knows to be written; each write is an event of the history."""

    def __init__(self, started: Mapping[SearchAttributeKey[str], str] | None) -> None:
        """What a first run was started with; None if another run before it has written some."""
        self._is_first = started is not None
        self._known: dict[str, str | None] = {
            key.name: value for key, value in (started or {}).items()
        }

    def show(self, wanted: Mapping[SearchAttributeKey[str], str | None]) -> None:
        updates: list[SearchAttributeUpdate[Any]] = []
        for key, value in wanted.items():
            is_known = self._is_first or key.name in self._known
            if not is_known or self._known.get(key.name) != value:
                updates.append(key.value_unset() if value is None else key.value_set(value))
                self._known[key.name] = value
        if updates:
            workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]

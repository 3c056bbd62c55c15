"""Drains for people: rows of a list, and one line for each change."""

from datetime import datetime
from typing import ClassVar

from rich.markup import escape

from durable.cli.render.output import progress
from durable.cli.render.tables import Row
from durable.model.fleet.drain import Drain, DrainProgress, DrainState
from durable.model.ids import ActorId, NodeId
from durable.signals.names import drain_id
from durable.validation.text import counted


class DrainRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset({"request", "nodes", "left", "replicas"})

    drain: str
    state: DrainState
    moved: str
    waits_for: str | None
    by: ActorId
    reason: str
    started_at: datetime
    deadline_at: datetime
    request: str
    nodes: tuple[NodeId, ...]
    replicas: int
    left: int


def drain_row(drain: Drain, now: DrainProgress) -> DrainRow:
    runs = drain.state is DrainState.DRAINING
    return DrainRow(
        drain=drain_id(drain.target),
        state=drain.state,
        moved=f"{max(0, drain.replicas - now.left)} of {drain.replicas}" if runs else "",
        waits_for=now.waits_for if runs else drain.outcome,
        by=drain.actor,
        reason=drain.reason,
        started_at=drain.started_at,
        deadline_at=drain.deadline_at,
        request=drain.request,
        nodes=drain.nodes,
        replicas=drain.replicas,
        left=now.left if runs else 0,
    )


class DrainLines:
    """A line on stderr whenever something changes."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, drain: Drain, now: DrainProgress) -> None:
        line = describe(drain, now)
        if line != self._last:
            self._last = line
            progress.print(escape(line))


def describe(drain: Drain, now: DrainProgress) -> str:
    """`node n1 of east: 3 of 5 replicas left; risk/api (3 replicas): ...`."""
    if drain.state is not DrainState.DRAINING:
        return f"{drain.target}: {drain.state}: {drain.outcome}"
    why = f"; {now.waits_for}" if now.waits_for else ""
    nodes, replicas = counted(len(drain.nodes), "node"), counted(drain.replicas, "replica")
    return f"{drain.target}: {now.left} of {replicas} left on {nodes}{why}"

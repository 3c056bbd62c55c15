"""Drains for people: one line for each change."""

from durable.model.fleet.drain import Drain, DrainProgress, DrainState
from durable.validation.text import counted


def describe(drain: Drain, now: DrainProgress) -> str:
    """`node n1 of east: 3 of 5 replicas left; risk/api (3 replicas): ...`."""
    if drain.state is not DrainState.DRAINING:
        return f"{drain.target}: {drain.state}: {drain.outcome}"
    why = f"; {now.waits_for}" if now.waits_for else ""
    nodes, replicas = counted(len(drain.nodes), "node"), counted(drain.replicas, "replica")
    return f"{drain.target}: {now.left} of {replicas} left on {nodes}{why}"

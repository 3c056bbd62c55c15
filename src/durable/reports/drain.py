"""A drain for people: what is left, and what keeps it."""

from durable.model.fleet.drain import Drain, DrainProgress, DrainState, WorkloadLeft
from durable.reports.report import ITEMS_SHOWN, Offer, Report, line, link, listed, moment, waits
from durable.signals.drains import DrainStatus
from durable.signals.names import DRAIN, workload_id
from durable.validation.text import counted


def describe_drain(status: DrainStatus) -> Report:
    drain, progress = status.drain, status.progress
    lines = ["Nobody has asked for anything yet: send `drain`."]
    if drain is not None:
        replicas = counted(drain.replicas, "replica")
        left = "" if progress is None else f", {progress.left} of {replicas} left"
        ended = f"Ended: {line(drain.outcome)}"
        lines = [
            f"**{drain.state}**: {counted(len(drain.nodes), 'node')}{left}",
            f"By {line(f'{drain.actor}: {drain.reason}')}",
            ended if drain.outcome else f"Gives up at {moment(drain.deadline_at)}",
        ]
    left_there = () if progress is None else progress.workloads
    shown = left_there[:ITEMS_SHOWN]
    return Report(
        title=f"Drain of {status.target}",
        summary="" if drain is None else summary_of_drain(drain, progress),
        lines=(*lines, *waits(status.unreachable)),
        sections=listed("Left", [*map(_left, shown)], len(left_there) - len(shown), _QUERY),
        offer=Offer(DRAIN),
        status=status,
    )


_QUERY = "query `status`"


def _left(left: WorkloadLeft) -> str:
    workload = link(workload_id(left.tenant, left.workload))
    return f"{workload}, {left.replicas}: **{left.code}**: {line(left.sentence)}"


def summary_of_drain(drain: Drain, now: DrainProgress | None) -> str:
    """`node n1 of east: 3 of 5 replicas left; risk/api (3 replicas): ...`."""
    if drain.state is not DrainState.DRAINING:
        return f"{drain.target}: {drain.state}: {drain.outcome}"
    nodes, replicas = counted(len(drain.nodes), "node"), counted(drain.replicas, "replica")
    if now is None:
        return f"{drain.target}: {replicas} on {nodes}"
    why = f"; {now.waits_for}" if now.waits_for else ""
    return f"{drain.target}: {now.left} of {replicas} left on {nodes}{why}"

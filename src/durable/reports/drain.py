"""A drain for people: what is left, and what keeps it."""

from durable.model.fleet.drain import Drain, DrainState, WorkloadLeft
from durable.reports.report import ITEMS_SHOWN, Offer, Report, line, link, listed, moment, waits
from durable.signals.drains import DrainStatus
from durable.signals.names import DRAIN, workload_id
from durable.validation.text import counted


def describe_drain(status: DrainStatus) -> Report:
    drain, progress = status.drain, status.progress
    lines = ["Nothing has been asked for yet: send `drain`."]
    if drain is not None:
        replicas = counted(drain.replicas, "replica")
        count = "" if progress is None else f", {progress.left} of {replicas} left"
        ended = f"Ended: {line(drain.outcome)}"
        lines = [
            f"**{drain.state}**: {counted(len(drain.nodes), 'node')}{count}",
            f"By {line(f'{drain.actor}: {drain.reason}')}",
            ended if drain.outcome else f"Gives up at {moment(drain.deadline_at)}",
        ]
    left_there = () if progress is None else progress.workloads
    left, why = (None, None) if progress is None else (progress.left, progress.waits_for)
    shown = left_there[:ITEMS_SHOWN]
    return Report(
        title=f"Drain of {status.target}",
        summary="" if drain is None else summary_of_drain(drain, left, why),
        lines=(*lines, *waits(status.unreachable)),
        sections=listed("Left", [*map(_left, shown)], len(left_there) - len(shown), _QUERY),
        offer=Offer(DRAIN),
        status=status,
    )


_QUERY = "query `status`"


def _left(left: WorkloadLeft) -> str:
    workload = link(workload_id(left.tenant, left.workload))
    return f"{workload}, {left.replicas}: **{left.code}**: {line(left.sentence)}"


def summary_of_drain(drain: Drain, left: int | None = None, waits_for: str | None = None) -> str:
    """`node n1 of east: 3 of 5 replicas left; risk/api (3 replicas): ...`."""
    if drain.state is not DrainState.DRAINING:
        return f"{drain.target}: {drain.state}: {drain.outcome}"
    nodes, replicas = counted(len(drain.nodes), "node"), counted(drain.replicas, "replica")
    if left is None:
        return f"{drain.target}: {replicas} on {nodes}"
    why = f"; {waits_for}" if waits_for else ""
    return f"{drain.target}: {left} of {replicas} left on {nodes}{why}"

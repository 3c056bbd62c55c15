"""What a deletion waits for: nodes that shall report an end, or whose agents are silent."""

from collections.abc import Sequence
from datetime import datetime

from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.stops import Stop, read_stops
from durable.cli.render.followed import Followed
from durable.cli.render.words import counted
from durable.model.ids import TenantId, WorkloadName
from durable.workflows.timeouts import STOP_TIMEOUT, UNKNOWN_TIMEOUT


async def stops_of(databases: Databases, followed: Followed) -> list[Stop]:
    """What of it is being stopped, in all regions."""
    of = (TenantId(followed.tenant), WorkloadName(followed.name))
    return [
        stop
        for region in await list_regions(databases)
        for stop in await read_stops(databases, region, *of)
    ]


def why_it_stands(stops: Sequence[Stop]) -> str:
    """Who must report, and until when at most that is waited for; empty if nothing is stopping."""
    if not stops:
        return ""
    # The one that is waited for longest stands for the others.
    last = max(stops, key=_at_most)
    others = f", and {counted(len(stops) - 1, 'slot')} more" if len(stops) > 1 else ""
    at_most = _at_most(last)
    by = f"by {at_most:%H:%M:%S}Z" if at_most > last.read_at else "as soon as a worker looks"
    if last.lease_expires_at is None or last.is_silent:
        at = "" if last.lease_expires_at is None else f" at {last.lease_expires_at:%H:%M:%S}Z"
        return (
            f"Slot {last.slot} stands on {last.node}{others}; that node's agent is silent and its "
            f"lease lapsed{at}. What it ran is given up {by}, sooner if an agent comes back "
            "and reports the end."
        )
    return (
        f"Slot {last.slot} waits for the agent of {last.node} to report its end{others}. Is that "
        f"agent dead, the node's lease lapses at {last.lease_expires_at:%H:%M:%S}Z and the slot is "
        f"given up {by}."
    )


def _at_most(stop: Stop) -> datetime:
    """A placement looks when the stop is overdue, and after each look at a node that was alive."""
    overdue = stop.requested_at + STOP_TIMEOUT
    lapse = stop.lease_expires_at
    return overdue if lapse is None or lapse <= overdue else lapse + UNKNOWN_TIMEOUT

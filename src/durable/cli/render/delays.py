"""Why a workload is late, and whether it needs more time or a person to act."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from durable.cli.render.progress import WaitTarget, counts_of
from durable.client import Until
from durable.model.placement.claims import RegionalClaim
from durable.model.work.rollout import RolloutStep
from durable.signals.status import RegionProgress, WorkloadStatus
from durable.validation.text import MAX_LENGTH, counted, shorten, show_clock
from durable.workflows.timeouts import STOP_TIMEOUT, UNKNOWN_TIMEOUT


def describe_delay(
    targets: Sequence[WaitTarget],
    latest: Mapping[WaitTarget, WorkloadStatus],
    within_seconds: float,
    stops: str = "",
) -> str:
    """Which workload is late and why; one that needs a person to act comes first.

    `stops` says what a deletion waits for, if that is known.
    """
    late = [t for t in targets if t not in latest or not _has_reached(latest[t], t.until)]
    late = late or [*targets]
    blocked = [target for target in late if _blocked_by(target, latest.get(target)) is not None]
    target = (blocked or late)[0]
    status = latest.get(target)
    blocked_by = _blocked_by(target, status)
    counts = "no answer" if status is None else counts_of(status, target.until)
    waits = () if status is None else _waits(status)
    wait = blocked_by.waits_for if blocked_by is not None else waits[0] if waits else None
    others = f"; {len(late) - 1} more {'is' if len(late) == 2 else 'are'} late" if late[1:] else ""
    delay = f"{target} is not {target.until} after {within_seconds:.0f} s ({counts}{others})."
    advice = f"{_advice(target, blocked_by, status)}; see `durable explain {target}`."
    # A longer reason is cut here, so that the advice after it is not.
    room = MAX_LENGTH - len(f"{delay} Reason: . {advice}")
    why = f" {stops}" if stops else f" Reason: {_shortened(wait, room)}." if wait else ""
    return shorten(f"{delay}{why} {advice}")


def describe_stops(stops: Sequence[RegionalClaim]) -> str:
    """Which agent must report, and how long that is waited for; empty if nothing is stopping."""
    if not stops:
        return ""
    # The one that may take longest speaks for the others.
    last = max(stops, key=_given_up_at)
    others = f" (and of {counted(len(stops) - 1, 'more slot')})" if len(stops) > 1 else ""
    at = _given_up_at(last)
    by = f"by {show_clock(at)}" if at > last.read_at else "at a worker's next check"
    expiry = last.lease_expires_at
    if expiry is None or last.has_node_lapsed:
        when = "" if expiry is None else f" at {show_clock(expiry)}"
        return (
            f"Waiting for the end of slot {last.slot} on {last.node}{others}: the node's agent is "
            f"silent and its lease expired{when}. The slot is given up {by}, or sooner if an agent "
            "comes back and reports the end."
        )
    return (
        f"Waiting for the agent of {last.node} to report the end of slot {last.slot}{others}. If "
        f"that agent is dead, the node's lease expires at {show_clock(expiry)} and the slot is "
        f"given up {by}."
    )


def _blocked_by(target: WaitTarget, status: WorkloadStatus | None) -> RegionProgress | None:
    """The first region that waiting does not help; none of them keeps a deletion."""
    if status is None or target.until == "deleted":
        return None
    blocked = (one for one in status.regions if one.pending and not one.pending.waiting_helps)
    return next(blocked, None)


def _waits(status: WorkloadStatus) -> tuple[str, ...]:
    """What a rollout waits for comes before what its regions do."""
    own = () if status.progress is None else (status.progress.sentence.rstrip("."),)
    return (*own, *status.waits_for)


def _advice(
    target: WaitTarget, blocked_by: RegionProgress | None, status: WorkloadStatus | None
) -> str:
    step = None if status is None or status.progress is None else status.progress.step
    if step is RolloutStep.PAUSED:
        return f"Resume it with `durable rollout resume {target}`"
    if step is RolloutStep.PAUSE_POINT:
        return f"Promote it with `durable rollout promote {target}`"
    if blocked_by is None:
        return "It continues by itself"
    return "Waiting will not help: change the workload, the fleet or the quota"


def _shortened(reason: str, most: int) -> str:
    return reason if len(reason) <= most else f"{reason[: most - 3]}..."


def _has_reached(status: WorkloadStatus, until: Until) -> bool:
    if until in ("complete", "deleted"):
        return status.phase in ("complete", "failed")
    return status.has_reached(until)


def _given_up_at(stop: RegionalClaim) -> datetime:
    """A placement looks when the stop is overdue, and after each look at a node that was alive."""
    assert stop.stop_requested_at is not None, "one that is being stopped"
    overdue = stop.stop_requested_at + STOP_TIMEOUT
    expiry = stop.lease_expires_at
    return overdue if expiry is None or expiry <= overdue else expiry + UNKNOWN_TIMEOUT

"""What a workload does for a job: divide its parallelism, mind its deadline."""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import RegionId
    from durable.model.placement.pending_reasons import PendingCode
    from durable.model.work.job_end import has_missed
    from durable.model.work.parallelism import RegionUse, divide_parallelism
    from durable.model.work.share import ShareReport
    from durable.workflows import timeouts
    from durable.workflows.workload.state import WorkloadState


def next_parts(state: WorkloadState, now: datetime) -> dict[RegionId, int]:
    """How many slots each region may run at once; empty if nothing limits that."""
    parallelism = None if state.spec is None else state.spec.parallelism
    if parallelism is None:
        return {}
    if any(one.generation != state.generation for one in state.open):
        # What the generation before still runs counts, too: it has to end first.
        return dict.fromkeys(state.share, 0)
    reports = state.current_reports
    _take_from_stuck(state, now)
    # Also what a region still runs of slots that it is to run no more.
    running = [region for region, one in reports.items() if any(one.by_state.values())]
    uses = {
        region: _use(state, region, reports.get(region), parallelism)
        for region in sorted({*state.share, *running})
    }
    parts = divide_parallelism(parallelism, uses)
    state.gave_up_parts = [one for one in state.gave_up_parts if not parts.get(one)]
    return parts


def _take_from_stuck(state: WorkloadState, now: datetime) -> None:
    """Tells regions less that cannot use their part for long, while others could.

    What is taken is free once the region has confirmed it.
    """
    reports = state.current_reports
    stuck = [region for region, report in reports.items() if _is_stuck(state, region, report)]
    state.stuck_since = {region: state.stuck_since.get(region, now) for region in stuck}
    if not is_starved(state):
        return
    for region, since in list(state.stuck_since.items()):
        if now - since >= timeouts.UNUSED_PART:
            state.parts[region] = reports[region].in_use
            state.gave_up_parts.append(region)
            del state.stuck_since[region]


def _is_stuck(state: WorkloadState, region: RegionId, report: ShareReport) -> bool:
    allowed, waits = state.parts.get(region, 0), report.pending
    is_waiting = waits is not None and waits.code not in _PASSING and bool(report.waiting)
    # Only what it has confirmed can be taken: it may be about to use what it has just heard of.
    return is_waiting and report.at_once == allowed and report.in_use < allowed


def is_starved(state: WorkloadState) -> bool:
    """Whether a region that is not stuck itself may run nothing, although it could."""
    return any(
        not state.parts.get(region) and report.held_back and region not in state.stuck_since
        for region, report in state.current_reports.items()
    )


def next_turn_at(state: WorkloadState) -> datetime | None:
    """When a part that is not used is given to another region."""
    if not state.stuck_since or not is_starved(state):
        return None
    return min(state.stuck_since.values()) + timeouts.UNUSED_PART


def _use(
    state: WorkloadState,
    region: RegionId,
    report: ShareReport | None,
    parallelism: int,
) -> RegionUse:
    allowed, wanted = state.parts.get(region), set(state.share.get(region, ()))
    if report is None:
        # A run before this one may have allowed a region anything that does not answer now.
        is_unsure = region in state.unreachable
        return RegionUse(len(wanted), allowed or 0, parallelism if is_unsure else allowed or 0)
    left = wanted - report.completed_slots - report.given_up_slots
    remaining = max(len(left), sum(report.by_state.values()))
    held = report.at_once or 0
    behind = state.gave_up_parts
    turn = 1 + behind.index(region) if region in behind else 0
    return RegionUse(remaining, held if allowed is None else allowed, held, turn)


# Waits that end by themselves before long.
_PASSING = frozenset(
    {
        PendingCode.QUEUED,
        PendingCode.CONFLICTS,
        PendingCode.CRASHED,
        PendingCode.PARALLELISM,
    }
)


def must_check_deadline(state: WorkloadState, now: datetime) -> bool:
    """Whether it looks as if its deadline was missed, and that was not recorded yet."""
    due_at = state.due_at
    if due_at is None or state.deadline_missed_at is not None or state.deleting is not None:
        return False
    reports = state.current_reports
    ends = [reports[one].ended_at if one in reports else None for one in timed_parts(state)]
    return has_missed(due_at, now, ends)


def timed_parts(state: WorkloadState) -> list[RegionId]:
    """The regions whose parts say whether the job was done in time.

    Not one that others have taken from: its part is done, and when that was is not known.
    """
    reports = state.current_reports
    wanted = [region for region, slots in state.share.items() if slots] or list(reports)
    return [
        region
        for region in sorted(wanted)
        if region not in reports
        or reports[region].ended_at is not None
        or not reports[region].covers(state.share.get(region, ()))
    ]

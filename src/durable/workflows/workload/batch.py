"""What a workload does for a job: divide its parallelism, mind its deadline."""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import RegionId
    from durable.model.job_end import has_missed
    from durable.model.parallelism import RegionUse, divide_parallelism
    from durable.model.share import ShareReport
    from durable.workflows.workload.state import WorkloadState


def next_parts(state: WorkloadState) -> dict[RegionId, int]:
    """How many slots each region may run at once; empty if nothing limits that."""
    parallelism = None if state.spec is None else state.spec.parallelism
    if parallelism is None:
        return {}
    if any(not one.has_ended for one in state.placements if one.generation != state.generation):
        # What the generation before still runs counts, too: it has to end first.
        return dict.fromkeys(state.share, 0)
    reports = state.current_reports
    uses = {
        region: _use(state, region, reports.get(region), len(slots), parallelism)
        for region, slots in state.share.items()
    }
    return divide_parallelism(parallelism, uses)


def _use(
    state: WorkloadState,
    region: RegionId,
    report: ShareReport | None,
    slots: int,
    parallelism: int,
) -> RegionUse:
    told = state.parts.get(region)
    if report is None:
        # A run before this one may have told a region anything that does not answer now.
        is_unsure = region in state.unrecalled
        return RegionUse(slots, told or 0, parallelism if is_unsure else told or 0)
    remaining = slots if report.request is None else report.remaining
    held = report.at_once or 0
    return RegionUse(remaining, held if told is None else told, held)


def must_check_deadline(state: WorkloadState, now: datetime) -> bool:
    """Whether it looks as if its deadline was missed, and nobody has recorded that yet."""
    due_at = state.due_at
    if due_at is None or state.deadline_missed_at is not None or state.deleting is not None:
        return False
    reports = state.current_reports
    wanted = [region for region, slots in state.share.items() if slots] or list(reports)
    ends = [reports[one].ended_at if one in reports else None for one in wanted]
    return has_missed(due_at, now, ends)

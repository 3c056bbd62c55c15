"""Workloads and placements for people: the state, the reason, who acts next, what can be sent."""

from durable.model.ids import Generation, RegionId
from durable.model.work.phases import Owner
from durable.model.work.workload import Condition, WorkloadKind
from durable.reports.report import (
    ITEMS_SHOWN,
    SENTENCE_SHOWN,
    Offer,
    Report,
    Section,
    line,
    link,
    listed,
    moment,
)
from durable.reports.rollout import (
    generation_sections,
    messages_for_now,
    rollback_example,
    rollout_sections,
)
from durable.signals.names import PLACEMENT, WORKLOAD, placement_id, workload_id
from durable.signals.status import PlacementStatus, RegionProgress, SlotView, WorkloadStatus
from durable.validation.text import show_clock


def describe_placement(status: PlacementStatus) -> Report:
    lines = [f"**{status.phase}**; {_next(status.owner)}"]
    if status.pending is not None:
        helps = "may resolve on its own" if status.pending.waiting_helps else "a person must act"
        reason = _reason(status.pending.sentence)
        lines.append(f"**Waits** ({status.pending.code}, {helps}): {reason}")
        lines.append(
            f"Next try: {moment(status.next_retry_at)}; overdue from {moment(status.placed_by)}"
        )
    lines.append(f"The workload: {link(workload_id(status.tenant, status.workload))}")
    if status.policy_revision is not None:
        lines.append(f"Last decided under policy revision {status.policy_revision}.")
    slots = [_slot(slot) for slot in status.slots[:ITEMS_SHOWN]]
    more = len(status.slots) - len(slots)
    evict = {"slots": [slot.slot for slot in status.slots[:1]]}
    return Report(
        title=f"{status.tenant}/{status.workload} generation {status.generation} in "
        f"{status.region}",
        lines=tuple(lines),
        sections=listed("Slots", slots, more, "query `status`"),
        offer=Offer(PLACEMENT, own={"evict": evict}),
        status=status,
    )


def _next(owner: Owner) -> str:
    return "in its desired state" if owner is Owner.NONE else f"next: {owner}"


def _slot(slot: SlotView) -> str:
    where = f" on {slot.node}" if slot.node else ""
    says_more = slot.evidence and slot.evidence != f"{slot.phase}{where}"
    evidence = f" ({line(slot.evidence)})" if says_more else ""
    return f"{slot.slot}: **{slot.phase}**{where} since {show_clock(slot.since)}{evidence}"


def describe_workload(status: WorkloadStatus) -> Report:
    spec = status.spec.model_dump(mode="json", exclude_defaults=True)
    manifest = {"tenant": status.tenant, "name": status.workload, "spec": spec}
    own = {
        "apply": {"manifest": manifest},
        "scale": {"replicas": status.wanted},
        "rollback": rollback_example(status),
    }
    return Report(
        title=f"{status.tenant}/{status.workload} generation {status.generation}",
        lines=(
            f"**{status.phase}**: {_counts(status)} of {status.wanted}",
            *(_condition(condition) for condition in status.conditions),
        ),
        sections=(
            *rollout_sections(status),
            *generation_sections(status),
            Section("Regions", tuple(_region(status, one) for one in status.regions)),
            *listed("Waits", [_reason(reason) for reason in status.own_waits]),
        ),
        offer=Offer(WORKLOAD, messages_for_now(status), own),
        status=status,
    )


def _region(status: WorkloadStatus, one: RegionProgress) -> str:
    why = f"; waits: {_reason(str(one.pending))}" if one.pending else ""
    generation = _open_generation(status, one.region)
    placement = placement_id(status.tenant, status.workload, generation, one.region)
    counts = _counts(one, is_job=status.spec.kind is WorkloadKind.JOB)
    return f"- {one.region}: {counts} of {one.wanted}; next: {link(placement)}{why}"


def _open_generation(status: WorkloadStatus, region: RegionId) -> Generation:
    """The generation whose placement to look at: the wanted one, once the region has a share."""
    generations = [one.generation for one in status.shares if one.region == region]
    if status.generation in generations or not generations:
        return status.generation
    return max(generations)


def _counts(status: WorkloadStatus | RegionProgress, *, is_job: bool | None = None) -> str:
    if isinstance(status, WorkloadStatus):
        is_job = status.spec.kind is WorkloadKind.JOB
    if not is_job:
        return f"{status.serving} serving, {status.ready} ready, {status.bound} bound"
    failed = f", {status.failures} failures" if status.failures else ""
    lost = f", {status.given_up} given up" if status.given_up else ""
    return f"{status.completed} completed, {status.bound} running{lost}{failed}"


def _reason(sentence: str) -> str:
    return line(sentence, SENTENCE_SHOWN)


def _condition(condition: Condition) -> str:
    status = {None: "unknown", True: "yes", False: "no"}[condition.status]
    return f"- **{condition.type}** {status}: {condition.sentence}"

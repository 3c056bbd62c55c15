"""A workflow's page in the Temporal UI: its state, the reason, who acts next, what can be sent."""

from durable.model.fleet.drain import WorkloadLeft
from durable.model.work.phases import Owner
from durable.model.work.workload import Condition, WorkloadKind
from durable.signals.drains import DrainStatus
from durable.signals.names import DRAIN, PLACEMENT, WORKLOAD, placement_id, workload_id
from durable.signals.status import PlacementStatus, RegionProgress, SlotView, WorkloadStatus
from durable.validation.text import counted
from durable.workflows.page_parts import (
    examples,
    line,
    link,
    moment,
    paragraphs,
    rejected_lines,
)
from durable.workflows.rollout_page import (
    generation_lines,
    messages_for_now,
    open_generation,
    rollback_example,
    rollout_lines,
)

SLOTS_SHOWN = 20
# All of a reason; of what others wrote, less.
REASON_CHARACTERS_SHOWN = 500


def placement_page(status: PlacementStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation} in {status.region}",
        f"**{status.phase}**; {_next(status.owner)}",
    ]
    if status.pending is not None:
        helps = "may resolve on its own" if status.pending.waiting_helps else "somebody must act"
        reason = _reason(status.pending.sentence)
        lines.append(f"**Waits** ({status.pending.code}, {helps}): {reason}")
        lines.append(
            f"Next try: {moment(status.next_retry_at)}; overdue from {moment(status.placed_by)}"
        )
    lines += ["### Slots", *(_slot(slot) for slot in status.slots[:SLOTS_SHOWN])]
    if len(status.slots) > SLOTS_SHOWN:
        lines.append(f"- and {len(status.slots) - SLOTS_SHOWN} more: query `status`")
    lines.append(f"The workload: {link(workload_id(status.tenant, status.workload))}")
    if status.policy_revision is not None:
        lines.append(f"Last decided under policy revision {status.policy_revision}.")
    evict = {"slots": [slot.slot for slot in status.slots[:1]]}
    shown = examples(PLACEMENT, request_id, {"evict": evict})
    return paragraphs([*lines, *rejected_lines(status), *shown])


def _next(owner: Owner) -> str:
    return "in its desired state" if owner is Owner.NOBODY else f"next: {owner}"


def _slot(slot: SlotView) -> str:
    where = f" on {slot.node}" if slot.node else ""
    says_more = slot.evidence and slot.evidence != f"{slot.phase}{where}"
    evidence = f" ({line(slot.evidence)})" if says_more else ""
    return f"- {slot.slot}: **{slot.phase}**{where} since {slot.since:%H:%M:%S}Z{evidence}"


def workload_page(status: WorkloadStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation}",
        f"**{status.phase}**: {_counts(status)} of {status.wanted}",
        *(_condition(condition) for condition in status.conditions),
        *rollout_lines(status, line),
        *generation_lines(status, link),
        "### Regions",
    ]
    for one in status.regions:
        waits = f"; waits: {_reason(str(one.pending))}" if one.pending else ""
        generation = open_generation(status, one.region)
        placement = placement_id(status.tenant, status.workload, generation, one.region)
        counts = _counts(one, is_job=status.spec.kind is WorkloadKind.JOB)
        lines.append(f"- {one.region}: {counts} of {one.wanted}; next: {link(placement)}{waits}")
    if status.own_waits:
        lines += ["### Waits", *(f"- {_reason(reason)}" for reason in status.own_waits)]
    spec = status.spec.model_dump(mode="json", exclude_defaults=True)
    manifest = {"tenant": status.tenant, "name": status.workload, "spec": spec}
    own = {
        "apply": {"manifest": manifest},
        "scale": {"replicas": status.wanted},
        "rollback": rollback_example(status),
    }
    shown = examples(WORKLOAD, request_id, own, messages_for_now(status))
    return paragraphs([*lines, *rejected_lines(status), *shown])


def _counts(status: WorkloadStatus | RegionProgress, *, is_job: bool | None = None) -> str:
    if isinstance(status, WorkloadStatus):
        is_job = status.spec.kind is WorkloadKind.JOB
    if not is_job:
        return f"{status.serving} serving, {status.ready} ready, {status.bound} bound"
    failed = f", {status.failures} failures" if status.failures else ""
    lost = f", {status.given_up} given up" if status.given_up else ""
    return f"{status.completed} completed, {status.bound} running{lost}{failed}"


def drain_page(status: DrainStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [f"## Drain of {status.target}"]
    drain, progress = status.drain, status.progress
    if drain is None:
        lines.append("Nobody has asked for anything yet: send `drain`.")
    else:
        replicas = counted(drain.replicas, "replica")
        left = "" if progress is None else f", {progress.left} of {replicas} left"
        lines.append(f"**{drain.state}**: {counted(len(drain.nodes), 'node')}{left}")
        lines.append(f"By {line(f'{drain.actor}: {drain.reason}')}")
        ended = f"Ended: {line(drain.outcome)}"
        lines.append(ended if drain.outcome else f"Gives up at {moment(drain.deadline_at)}")
    if status.unreachable:
        lines.append(f"**Waits**: {line(status.unreachable)}")
    if progress is not None and progress.workloads:
        shown = progress.workloads[:SLOTS_SHOWN]
        lines += ["### Left", *(_left(one) for one in shown)]
        more = len(progress.workloads) - len(shown)
        lines += [f"- and {more} more: query `status`"] if more else []
    return paragraphs([*lines, *rejected_lines(status), *examples(DRAIN, request_id, {})])


def _left(left: WorkloadLeft) -> str:
    workload = link(workload_id(left.tenant, left.workload))
    return f"- {workload}, {left.replicas}: **{left.code}**: {line(left.sentence)}"


def _reason(sentence: str) -> str:
    return line(sentence, REASON_CHARACTERS_SHOWN)


def _condition(condition: Condition) -> str:
    status = {None: "unknown", True: "yes", False: "no"}[condition.status]
    return f"- **{condition.type}** {status}: {condition.sentence}"

"""What an operator reads in the Temporal UI: state, reason, next owner, and what can be sent."""

import json

from durable.signals import messages
from durable.signals.messages import Message
from durable.signals.status import PlacementStatus, WorkloadStatus

SLOTS_SHOWN = 20
_FOR_PLACEMENTS: dict[str, type[Message]] = {
    "hold": messages.Hold,
    "resume": messages.Resume,
    "retry_now": messages.RetryNow,
    "evict": messages.Evict,
}
_FOR_WORKLOADS: dict[str, type[Message]] = {"scale": messages.Scale, "delete": messages.Delete}


def placement_details(status: PlacementStatus) -> str:
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation} in {status.region}",
        f"**{status.phase}**; next: {status.owner}",
    ]
    if status.pending is not None:
        helps = "it can pass by itself" if status.pending.waiting_helps else "somebody must act"
        lines.append(f"**Waits** ({status.pending.code}, {helps}): {status.pending.sentence}")
        lines.append(
            f"Next look: {_moment(status.next_retry_at)}; overdue from {_moment(status.placed_by)}"
        )
    lines += [
        "",
        "| slot | phase | node | attempt | since | evidence |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {slot.slot} | {slot.phase} | {slot.node or ''} | {slot.attempt} "
        f"| {_moment(slot.since)} | {_cell(slot.evidence)} |"
        for slot in status.slots[:SLOTS_SHOWN]
    ]
    if len(status.slots) > SLOTS_SHOWN:
        lines.append(f"\nand {len(status.slots) - SLOTS_SHOWN} more slots: query `status`")
    return "\n".join([*lines, *_rejected(status), *_accepted(_FOR_PLACEMENTS)])


def workload_details(status: WorkloadStatus) -> str:
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation}",
        f"**{status.phase}**: {status.serving} serving, {status.ready} ready, {status.bound} bound "
        f"of {status.wanted}",
        *(f"- waits: {reason}" for reason in status.waits_for),
        "",
        "| region | wanted | bound | ready | serving | waits for |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.region} | {one.wanted} | {one.bound} | {one.ready} | {one.serving} "
        f"| {_cell(one.pending_reason or '')} |"
        for one in status.regions
    ]
    lines += ["", *(f"- **{c.type}** {_said(c.status)}: {c.sentence}" for c in status.conditions)]
    return "\n".join([*lines, *_rejected(status), *_accepted(_FOR_WORKLOADS)])


def _rejected(status: PlacementStatus | WorkloadStatus) -> list[str]:
    if not status.rejected:
        return []
    kept = [f"- {_moment(one.at)} `{one.name}`: {_cell(one.why)}" for one in status.rejected[-5:]]
    return ["", f"### Messages that changed nothing ({status.rejected_in_all})", *kept]


def _accepted(kinds: dict[str, type[Message]]) -> list[str]:
    sent = [f"- `{name}`: `{json.dumps(kind.example)}`" for name, kind in kinds.items()]
    return ["", "### What can be sent (as update or signal)", *sent]


def _moment(at: object) -> str:
    return "none" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:200]


def _said(status: bool | None) -> str:
    return "unknown" if status is None else "yes" if status else "no"

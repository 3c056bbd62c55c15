"""What an operator reads in the Temporal UI: state, reason, next owner, and what can be sent."""

import json
from collections.abc import Sequence
from itertools import pairwise

from durable.signals import messages, sentences
from durable.signals.messages import Message
from durable.signals.names import placement_id, workload_id
from durable.signals.status import PlacementStatus, SlotView, WorkloadStatus

SLOTS_SHOWN = 20
_FOR_PLACEMENTS: dict[str, tuple[type[Message], str]] = {
    "hold": (messages.Hold, sentences.HOLD),
    "resume": (messages.Resume, sentences.RESUME),
    "retry_now": (messages.RetryNow, sentences.RETRY_NOW),
    "evict": (messages.Evict, sentences.EVICT),
}
_FOR_WORKLOADS: dict[str, tuple[type[Message], str]] = {
    "scale": (messages.Scale, sentences.SCALE),
    "delete": (messages.Delete, sentences.DELETE),
}


def placement_details(status: PlacementStatus) -> str:
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation} in {status.region}",
        f"**{status.phase}**; next: {status.owner}",
    ]
    if status.held_by is not None:
        lines.append(f"**Held** by {_line(status.held_by)}; nothing new is placed until `resume`.")
    elif status.pending is not None:
        helps = "it can pass by itself" if status.pending.waiting_helps else "somebody must act"
        lines.append(f"**Waits** ({status.pending.code}, {helps}): {status.pending.sentence}")
        lines.append(
            f"Next look: {_moment(status.next_retry_at)}; overdue from {_moment(status.placed_by)}"
        )
    lines += ["### Slots", *(_slot(slot) for slot in status.slots[:SLOTS_SHOWN])]
    if len(status.slots) > SLOTS_SHOWN:
        lines.append(f"- and {len(status.slots) - SLOTS_SHOWN} more: query `status`")
    lines.append(f"The workload: `{workload_id(status.tenant, status.workload)}`")
    return _paragraphs([*lines, *_rejected(status), *_accepted(_FOR_PLACEMENTS)])


def _slot(slot: SlotView) -> str:
    where = f" on {slot.node}" if slot.node else ""
    says_more = slot.evidence and slot.evidence != f"{slot.phase}{where}"
    evidence = f" ({_line(slot.evidence)})" if says_more else ""
    return f"- {slot.slot}: **{slot.phase}**{where} since {slot.since:%H:%M:%S}Z{evidence}"


def workload_details(status: WorkloadStatus) -> str:
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation}",
        f"**{status.phase}**: {status.serving} serving, {status.ready} ready, {status.bound} bound "
        f"of {status.wanted}",
        *(f"- **{one.type}** {_said(one.status)}: {one.sentence}" for one in status.conditions),
        "### Regions",
    ]
    for one in status.regions:
        waits = f"; waits: {_line(str(one.pending))}" if one.pending else ""
        placement = placement_id(status.tenant, status.workload, status.generation, one.region)
        lines.append(
            f"- {one.region}: {one.serving} serving, {one.ready} ready, {one.bound} bound of "
            f"{one.wanted}; next: `{placement}`{waits}"
        )
    theirs = {one.waits for one in status.regions}
    ours = [reason for reason in status.waits_for if reason not in theirs]
    lines += ["### Waits", *(f"- {_line(reason)}" for reason in ours)] if ours else []
    return _paragraphs([*lines, *_rejected(status), *_accepted(_FOR_WORKLOADS)])


def _paragraphs(lines: Sequence[str]) -> str:
    """Lines of a list together, everything else apart, or Markdown would run it together."""
    text = lines[0]
    for before, line in pairwise(lines):
        text += "\n" if before.startswith("- ") and line.startswith("- ") else "\n\n"
        text += line
    return text


def _rejected(status: PlacementStatus | WorkloadStatus) -> list[str]:
    if not status.rejected:
        return []
    kept = [f"- {_moment(one.at)} `{one.name}`: {_line(one.why)}" for one in status.rejected[-5:]]
    return [f"### Messages that changed nothing ({status.rejected_in_all})", *kept]


def _accepted(kinds: dict[str, tuple[type[Message], str]]) -> list[str]:
    sent = [
        f"- `{name}`: {sentence} `{json.dumps(kind.example)}`"
        for name, (kind, sentence) in kinds.items()
    ]
    return ["### What can be sent, as update or signal, each under a request_id of its own", *sent]


def _moment(at: object) -> str:
    return "none" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _line(text: str) -> str:
    return text.replace("\n", " ")[:200]


def _said(status: bool | None) -> str:
    return "unknown" if status is None else "yes" if status else "no"

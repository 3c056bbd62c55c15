"""A workflow's page in the Temporal UI: its state, the reason, who acts next, what can be sent."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from durable.model.drain import WorkloadLeft
from durable.model.phases import Owner
from durable.model.workload import Condition
from durable.signals.drains import DrainStatus
from durable.signals.names import DRAIN, PLACEMENT, WORKLOAD, placement_id, workload_id
from durable.signals.registry import Sender, messages_to
from durable.signals.status import PlacementStatus, SlotView, WorkloadStatus

SLOTS_SHOWN = 20
REJECTED_SHOWN = 5
EXAMPLE_CHARACTERS_SHOWN = 2_000


# What Markdown would take for a link, an emphasis, code or a tag.
_MARKUP = re.compile(r"([\\`*_\[\]<>|])")


def placement_page(status: PlacementStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation} in {status.region}",
        f"**{status.phase}**; {_next(status.owner)}",
    ]
    if status.hold is not None:
        held = _line(f"{status.hold.actor}: {status.hold.reason}")
        lines.append(f"**Held** by {held}; nothing new is placed until `resume`.")
    elif status.pending is not None:
        helps = "may resolve on its own" if status.pending.waiting_helps else "somebody must act"
        lines.append(
            f"**Waits** ({status.pending.code}, {helps}): {_line(status.pending.sentence)}"
        )
        lines.append(
            f"Next try: {_moment(status.next_retry_at)}; overdue from {_moment(status.placed_by)}"
        )
    lines += ["### Slots", *(_slot(slot) for slot in status.slots[:SLOTS_SHOWN])]
    if len(status.slots) > SLOTS_SHOWN:
        lines.append(f"- and {len(status.slots) - SLOTS_SHOWN} more: query `status`")
    lines.append(f"The workload: {_link(workload_id(status.tenant, status.workload))}")
    if status.policy_revision is not None:
        lines.append(f"Last decided under policy revision {status.policy_revision}.")
    evict = {"slots": [slot.slot for slot in status.slots[:1]]}
    examples = _examples(PLACEMENT, request_id, {"evict": evict})
    return _paragraphs([*lines, *_rejected(status), *examples])


def _next(owner: Owner) -> str:
    return "in its desired state" if owner is Owner.NOBODY else f"next: {owner}"


def _slot(slot: SlotView) -> str:
    where = f" on {slot.node}" if slot.node else ""
    says_more = slot.evidence and slot.evidence != f"{slot.phase}{where}"
    evidence = f" ({_line(slot.evidence)})" if says_more else ""
    return f"- {slot.slot}: **{slot.phase}**{where} since {slot.since:%H:%M:%S}Z{evidence}"


def workload_page(status: WorkloadStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [
        f"## {status.tenant}/{status.workload} generation {status.generation}",
        f"**{status.phase}**: {status.serving} serving, {status.ready} ready, {status.bound} bound "
        f"of {status.wanted}",
        *(_condition(condition) for condition in status.conditions),
        "### Regions",
    ]
    for one in status.regions:
        waits = f"; waits: {_line(str(one.pending))}" if one.pending else ""
        placement = placement_id(status.tenant, status.workload, status.generation, one.region)
        lines.append(
            f"- {one.region}: {one.serving} serving, {one.ready} ready, {one.bound} bound of "
            f"{one.wanted}; next: {_link(placement)}{waits}"
        )
    if status.own_waits:
        lines += ["### Waits", *(f"- {_line(reason)}" for reason in status.own_waits)]
    spec = status.spec.model_dump(mode="json", exclude_defaults=True)
    manifest = {"tenant": status.tenant, "name": status.workload, "spec": spec}
    own = {"apply": {"manifest": manifest}, "scale": {"replicas": status.wanted}}
    return _paragraphs([*lines, *_rejected(status), *_examples(WORKLOAD, request_id, own)])


def drain_page(status: DrainStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [f"## Drain of {status.target}"]
    drain, progress = status.drain, status.progress
    if drain is None:
        lines.append("Nobody has asked for anything yet: send `drain`.")
    else:
        left = "" if progress is None else f", {progress.left} of {drain.replicas} replicas left"
        lines.append(f"**{drain.state}**: {len(drain.nodes)} nodes{left}")
        lines.append(f"By {_line(f'{drain.actor}: {drain.reason}')}")
        ended = f"Ended: {_line(drain.outcome)}"
        lines.append(ended if drain.outcome else f"Gives up at {_moment(drain.deadline_at)}")
    if status.unreachable:
        lines.append(f"**Waits**: {_line(status.unreachable)}")
    if progress is not None and progress.workloads:
        shown = progress.workloads[:SLOTS_SHOWN]
        lines += ["### Left", *(_left(one) for one in shown)]
        more = len(progress.workloads) - len(shown)
        lines += [f"- and {more} more: query `status`"] if more else []
    return _paragraphs([*lines, *_rejected(status), *_examples(DRAIN, request_id, {})])


def _left(left: WorkloadLeft) -> str:
    workload = _link(workload_id(left.tenant, left.workload))
    return f"- {workload}, {left.replicas}: **{left.code}**: {_line(left.sentence)}"


def _link(workflow: str) -> str:
    """To the page of another workflow, wherever the UI is served and whatever the namespace."""
    return f"[{workflow}](/namespaces/{{namespace}}/workflows/{quote(workflow, safe='')})"


def _paragraphs(lines: Sequence[str]) -> str:
    """Lines of a list together, everything else apart, or Markdown would join it."""
    text = lines[0]
    for before, line in pairwise(lines):
        text += "\n" if before.startswith("- ") and line.startswith("- ") else "\n\n"
        text += line
    return text


def _rejected(status: PlacementStatus | WorkloadStatus | DrainStatus) -> list[str]:
    if not status.rejected:
        return []
    last = status.rejected[-REJECTED_SHOWN:]
    shown = [f"- {_moment(one.at)} `{one.name}`: {_line(one.answer)}" for one in last]
    return [f"### Messages that changed nothing ({status.rejected_count})", *shown]


def _examples(workflow: str, request_id: str, own: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Every message with a payload that would be accepted now; `own` has this workflow's fields."""
    shown: list[str] = []
    for message in messages_to(workflow, sender=Sender.PERSON):
        fresh = {"request_id": f"{request_id}-{message.name}"}
        example = {**message.example, **fresh, **own.get(message.name, {})}
        payload = json.dumps(example)
        can_show = len(payload) <= EXAMPLE_CHARACTERS_SHOWN
        pasted = f" `{payload}`" if can_show else ""
        shown.append(f"- `{message.name}`: {message.sentence}{pasted}")
    return ["### Messages: send as update or signal, each under its own request_id", *shown]


def _moment(at: object) -> str:
    return "none" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _line(text: str) -> str:
    """What others wrote, on one line, without effect on the page."""
    return _MARKUP.sub(r"\\\1", text.replace("\n", " ")[:200])


def _condition(condition: Condition) -> str:
    status = {None: "unknown", True: "yes", False: "no"}[condition.status]
    return f"- **{condition.type}** {status}: {condition.sentence}"

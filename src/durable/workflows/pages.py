"""A workflow's page in the Temporal UI: its state, the reason, who acts next, what can be sent."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from durable.model.drain import WorkloadLeft
from durable.model.phases import Owner
from durable.model.workload import Condition, WorkloadKind
from durable.signals.drains import DrainStatus
from durable.signals.names import DRAIN, PLACEMENT, WORKLOAD, placement_id, workload_id
from durable.signals.registry import Sender, messages_to
from durable.signals.status import PlacementStatus, RegionProgress, SlotView, WorkloadStatus
from durable.workflows.rollout_page import (
    generation_lines,
    messages_for_now,
    open_generation,
    rollback_example,
    rollout_lines,
)

SLOTS_SHOWN = 20
REJECTED_SHOWN = 5
EXAMPLE_CHARACTERS_SHOWN = 2_000
# All of a reason; of what others wrote, less.
REASON_CHARACTERS_SHOWN, CHARACTERS_SHOWN = 500, 200


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
        reason = _reason(status.pending.sentence)
        lines.append(f"**Waits** ({status.pending.code}, {helps}): {reason}")
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
        f"**{status.phase}**: {_counts(status)} of {status.wanted}",
        *(_condition(condition) for condition in status.conditions),
        *rollout_lines(status, _line),
        *generation_lines(status, _link),
        "### Regions",
    ]
    for one in status.regions:
        waits = f"; waits: {_reason(str(one.pending))}" if one.pending else ""
        generation = open_generation(status, one.region)
        placement = placement_id(status.tenant, status.workload, generation, one.region)
        counts = _counts(one, is_job=status.spec.kind is WorkloadKind.JOB)
        lines.append(f"- {one.region}: {counts} of {one.wanted}; next: {_link(placement)}{waits}")
    if status.own_waits:
        lines += ["### Waits", *(f"- {_reason(reason)}" for reason in status.own_waits)]
    spec = status.spec.model_dump(mode="json", exclude_defaults=True)
    manifest = {"tenant": status.tenant, "name": status.workload, "spec": spec}
    own = {
        "apply": {"manifest": manifest},
        "scale": {"replicas": status.wanted},
        "rollback": rollback_example(status),
    }
    examples = _examples(WORKLOAD, request_id, own, messages_for_now(status))
    return _paragraphs([*lines, *_rejected(status), *examples])


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


def _examples(
    workflow: str,
    request_id: str,
    own: Mapping[str, Mapping[str, Any]],
    for_now: Sequence[str] = (),
) -> list[str]:
    """Every message with a payload that can be pasted; `own` has this workflow's fields.

    Those that make sense now come first, if anybody knows which these are.
    """
    shown: list[str] = []
    order = {name: place for place, name in enumerate(for_now)}
    messages = messages_to(workflow, sender=Sender.PERSON)
    for message in sorted(messages, key=lambda one: order.get(one.name, len(order))):
        fresh = {"request_id": f"{request_id}-{message.name}"}
        example = {**message.example, **fresh, **own.get(message.name, {})}
        payload = json.dumps(example)
        can_show = len(payload) <= EXAMPLE_CHARACTERS_SHOWN
        pasted = f" `{payload}`" if can_show else ""
        shown.append(f"- `{message.name}`: {message.sentence}{pasted}")
    head = "### Messages: send as update or signal, each under its own request_id"
    if not for_now:
        return [head, *shown]
    now, later = shown[: len(for_now)], shown[len(for_now) :]
    return [head, *now, "### Other messages", *later]


def _moment(at: object) -> str:
    return "none" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _line(text: str, most: int = CHARACTERS_SHOWN) -> str:
    """What others wrote, on one line, without effect on the page."""
    return _MARKUP.sub(r"\\\1", text.replace("\n", " ")[:most])


def _reason(sentence: str) -> str:
    return _line(sentence, REASON_CHARACTERS_SHOWN)


def _condition(condition: Condition) -> str:
    status = {None: "unknown", True: "yes", False: "no"}[condition.status]
    return f"- **{condition.type}** {status}: {condition.sentence}"

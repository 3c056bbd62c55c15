"""An explanation as people read it: what is true of several slots is said once."""

from collections.abc import Sequence
from datetime import datetime

from durable.cli.render.attempts import AttemptDescriber
from durable.cli.render.output import (
    grouped,
    listed,
    note_unreachable,
    numbered,
    print_lines,
    results,
)
from durable.explain.explanation import Explanation, RegionExplanation
from durable.explain.queue import QueueExplanation
from durable.explain.slots import EndedSlot, SlotEnd
from durable.model.placement.claims import ObservedSlot
from durable.model.states import BindingState, RequestState
from durable.model.work.phases import Owner, slot_owner
from durable.validation.text import counted, show_moment

PLACES_SHOWN = 50
SENTENCES_SHOWN = 50
_WORKLOAD_ENDS = {"complete": "completed", "failed": "failed", "deleted": "was deleted"}
_SLOT_ENDS = {
    SlotEnd.COMPLETED: "completed",
    SlotEnd.FAILED: "failed",
    SlotEnd.STOPPED: "stopped early",
}


def print_explanation(explanation: Explanation) -> None:
    spec = explanation.spec
    name = f"{explanation.tenant}/{explanation.workload}"
    results.print(
        f"[bold]{name}[/] generation {explanation.generation} {_state(explanation)}: {spec.kind}, "
        f"{counted(spec.replicas, 'replica')} of {spec.resources}, priority {spec.priority}"
    )
    if explanation.deadline is not None:
        results.print(_deadline(explanation.deadline, explanation.deadline_missed_at))
    print_lines(_rollout(explanation), indent=2)
    note_unreachable(explanation.unreachable)
    if not explanation.regions and not explanation.unreachable:
        results.print("No region has a share of it.")
    to_come = _to_come(explanation)
    for region in explanation.regions:
        if region.region not in to_come:
            _print_region(region)


def _rollout(explanation: Explanation) -> list[str]:
    """That it rolls, from what to what, and what it waits for."""
    rollout = explanation.rollout
    if rollout is None:
        return []
    current = explanation.current_generation
    counts = "; ".join(
        f"generation {generation}: {one.bound} bound, {one.ready} ready, {one.serving} serving"
        for generation, one in rollout.by_generation.items()
    )
    is_back = rollout.state.goes_back(current, rollout.stable_generation)
    going = "Going back to" if is_back else "Rolling out"
    lines = [
        f"{going} generation {current} since {show_moment(rollout.state.started_at)}: {counts}",
        f"Waits for {rollout.waits_for}",
    ]
    if to_come := _to_come(explanation):
        before = rollout.stable_generation
        see = "" if before is None else f"; see --generation {before}"
        lines.append(f"Still to come: {', '.join(sorted(to_come))}{see}")
    return lines


def _to_come(explanation: Explanation) -> set[str]:
    """Regions of which there is nothing to say yet: their turn has not come."""
    is_current = explanation.generation == explanation.current_generation
    if explanation.rollout is None or not is_current:
        return set()
    return {str(region) for region in explanation.rollout.regions_to_come}


def _deadline(deadline: datetime, missed_at: datetime | None) -> str:
    missed = "" if missed_at is None else ": [bold]missed[/], and the job goes on until it ends"
    return f"Due at {show_moment(deadline)}{missed}"


def _state(explanation: Explanation) -> str:
    current = explanation.current_generation
    if explanation.generation != current:
        rollout = explanation.rollout
        if rollout is not None and explanation.generation in rollout.by_generation:
            return f"is being replaced by generation {current}"
        became = explanation.outcome or "superseded"
        return f"was {became}; generation {current} is current"
    if explanation.end is not None:
        counts = f" ({explanation.end_sentence})" if explanation.end_sentence else ""
        return f"{_WORKLOAD_ENDS[explanation.end]}{counts}"
    return "is being deleted" if explanation.deleting else "is current"


def _print_region(region: RegionExplanation) -> None:
    next_owner = _next_owner(region.owner) or "; in its desired state"
    results.print(f"\n[bold]{region.region}[/]: {region.condition}{next_owner}")
    request = None if region.queue is None else region.queue.request
    lines = [] if region.queue is None else _queue(region.queue)
    lines += [*describe_slots(region.observed), *describe_ended(region.ended)]
    lines += [
        f"{numbered('Slot', slots)}: placed under policy revision {revision}, which was rolled back"
        for revision, slots in region.withdrawn.items()
    ]
    if region.attempts_omitted:
        omitted = counted(region.attempts_omitted, "earlier attempt")
        lines.append(f"{omitted} not shown; --attempt N shows one")
    print_lines(lines, indent=2)
    pending = None if request is None else request.pending
    for described in AttemptDescriber(pending).describe(region.attempts):
        results.print(f"  [bold]{described.title}[/], {described.decided}")
        print_lines(described.lines, indent=4)


def _queue(queue: QueueExplanation) -> list[str]:
    request = queue.request
    is_pending = request.state is RequestState.PENDING
    state = f"{request.state.replace('_', ' ')} {'for' if is_pending else 'after'}"
    deadline = f", deadline {show_moment(request.deadline)}" if request.pending else ""
    lines = [
        f"Queue: {state} {queue.queue_seconds:.1f} s, enqueued {show_moment(request.enqueued_at)}, "
        f"{counted(request.attempts, 'attempt')}{deadline}"
    ]
    if request.pending:
        position = f"position {queue.position}, " if queue.position else ""
        retry_at = request.next_retry_at
        retry = f"next attempt {show_moment(retry_at)}" if retry_at else "no next attempt"
        lines.append(f"Waiting ({position}{retry}): {request.pending}")
    return lines


def describe_slots(slots: Sequence[ObservedSlot]) -> list[str]:
    """A line for all slots in the same state for the same reason, then where each is."""
    groups = grouped((one, (one.state, one.evidence, _owner(one))) for one in slots)
    lines: list[str] = []
    for some in groups[:SENTENCES_SHOWN]:
        first, is_one = some[0], len(some) == 1
        on = f" on {first.node}" if is_one else ""
        lines.append(
            f"{numbered('Slot', [one.slot for one in some])}{on}: {first.state or 'reserved'}"
            f"{_when('since', [one.since for one in some if one.since])}: "
            f"{first.evidence}{_logs(first) if is_one else ''}{_next_owner(_owner(first))}"
        )
        if not is_one:
            places = [f"{one.slot} on {one.node}{_logs(one)}" for one in some]
            lines.append(f"  {listed(places, PLACES_SHOWN)}")
    return lines + _omitted(groups)


def describe_ended(ended: Sequence[EndedSlot]) -> list[str]:
    """A line for all slots that ended alike after as many tries, then where each was."""
    groups = grouped((one, (one.end, one.evidence, one.tries)) for one in ended)
    lines: list[str] = []
    for some in groups[:SENTENCES_SHOWN]:
        first, is_one = some[0], len(some) == 1
        on = f" on {first.node} in attempt {first.attempt}" if is_one else ""
        tries = "on the first try" if first.tries == 1 else f"after {first.tries} tries"
        lines.append(
            f"{numbered('Slot', [one.slot for one in some])} {_SLOT_ENDS[first.end]}{on} {tries}"
            f"{_when('at', [one.at for one in some])}: "
            f"{first.evidence}{_logs(first) if is_one else ''}"
        )
        if not is_one:
            places = [
                f"{one.slot} on {one.node} in attempt {one.attempt}{_logs(one)}" for one in some
            ]
            lines.append(f"  {listed(places, PLACES_SHOWN)}")
    return lines + _omitted(groups)


def _next_owner(owner: Owner) -> str:
    return "" if owner is Owner.NONE else f"; next to act: {owner}"


def _owner(slot: ObservedSlot) -> Owner:
    return slot_owner(slot.state, stop_requested=slot.stop_requested)


def _when(preposition: str, times: Sequence[datetime]) -> str:
    if not times:
        return ""
    first, last = show_moment(min(times)), show_moment(max(times))
    if first == last:
        return f" {preposition} {first}"
    return f" {preposition} {first} (the last {preposition} {last})"


def _logs(slot: ObservedSlot | EndedSlot) -> str:
    """Where to read why a slot failed; nothing for one that did not."""
    failed = (
        slot.end is SlotEnd.FAILED
        if isinstance(slot, EndedSlot)
        else slot.state is BindingState.FAILED
    )
    return f" (see {slot.log_directory})" if failed and slot.log_directory else ""


def _omitted(groups: Sequence[Sequence[object]]) -> list[str]:
    more = sum(map(len, groups[SENTENCES_SHOWN:]))
    return [f"and {counted(more, 'more slot')}: see --json"] if more else []

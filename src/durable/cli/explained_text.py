"""An explanation as people read it."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from rich.markup import escape

from durable.cli.holds import Hold
from durable.cli.output import results
from durable.cli.words import counted
from durable.explained_attempt import AttemptAccount, StepAccount
from durable.explained_values import Explanation, QueueAccount, RegionAccount
from durable.model.ids import RegionId

NODES_SHOWN = 6
_HELD = "nothing new is placed until somebody resumes it with durable send"
_NOT_ASKED = "there was no answer through Temporal"


def print_explanation(
    found: Explanation, holds: Mapping[RegionId, Hold] = MappingProxyType({})
) -> None:
    """The account as people read it."""
    state = "is being deleted" if found.deleting else "has ended" if found.ended else "is wanted"
    newest = "" if found.generation == found.current_generation else (
        f" (the newest is {found.current_generation})"
    )  # fmt: skip
    spec = found.spec
    results.print(
        f"[bold]{found.tenant}/{found.workload}[/] generation {found.generation}{newest} {state}: "
        f"{counted(spec.replicas, 'replica')} of {spec.resources}, priority {spec.priority}, "
        f"{spec.kind}"
    )
    if not found.regions:
        results.print("No region has a part in it.")
    for region in found.regions:
        _print_region(region, holds.get(region.region))


def _print_region(region: RegionAccount, hold: Hold | None) -> None:
    results.print(f"\n[bold]{region.region}[/]: {region.condition}; next: {region.owner}")
    if hold is not None and hold.held is not False:
        by = f"Held by {hold.held_by}" if hold.held else "Whether it is held could not be asked"
        results.print(f"  {escape(by)}: {_HELD if hold.held else _NOT_ASKED}")
    if region.queue is not None:
        for line in _queue(region.queue):
            results.print(f"  {escape(line)}")
    if region.attempts_left_out:
        results.print(f"  {_left_out(region.attempts_left_out)}")
    for attempt in region.attempts:
        results.print(f"  [bold]Attempt {attempt.attempt}[/], decided at {_at(attempt.decided_at)}")
        for line in _attempt(attempt):
            results.print(f"    {escape(line)}")
    for slot in region.bindings:
        line = (
            f"Slot {slot.slot} is {slot.state} on {slot.node} since {_at(slot.since)}: "
            f"{slot.evidence}; next: {slot.owner}"
        )
        results.print(f"  {escape(line)}")


def _left_out(count: int) -> str:
    are = "is" if count == 1 else "are"
    return f"{counted(count, 'earlier attempt')} {are} left out; --attempt N shows one"


def _queue(queue: QueueAccount) -> list[str]:
    overdue = f", overdue from {_at(queue.deadline)}" if queue.pending_reason else ""
    lines = [
        f"Queue: {queue.state}, {queue.queue_seconds:.1f} s from {_at(queue.enqueued_at)}, "
        f"{counted(queue.attempts, 'attempt')}{overdue}"
    ]
    if queue.pending_reason:
        position = f"position {queue.position}, " if queue.position else ""
        look = f"next look {_at(queue.next_retry_at)}" if queue.next_retry_at else "no next look"
        lines.append(f"Waits ({position}{look}): {queue.pending_reason}")
    return lines


def _attempt(attempt: AttemptAccount) -> list[str]:
    sampled = f", {attempt.sampled:,} of them looked at" if attempt.sampled is not None else ""
    lines = [
        f"Policy revision {attempt.policy_revision}; cache version {attempt.cache_version}, "
        f"{attempt.cache_age_seconds:.1f} s old",
        f"Grant: {attempt.grant_before or 'none'} left before, {attempt.grant_after or 'none'} "
        f"after; room beside recovery: {attempt.room_before or 'none'}",
        f"Filters: {attempt.feasible:,} of {attempt.nodes:,} nodes could take it{sampled}",
    ]
    if attempt.rejections:
        lines.append(f"Refused: {attempt.filtered}")
    for candidate in attempt.candidates:
        scores = ", ".join(f"{name} {value:g}" for name, value in candidate.scores.items())
        lines.append(f"Candidate {candidate.node}: {candidate.total:g} ({scores})")
    if attempt.placed:
        shown = [f"{one.slot} on {one.node}" for one in attempt.placed[:NODES_SHOWN]]
        more = len(attempt.placed) - NODES_SHOWN
        lines.append(f"Placed: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}")
    if attempt.pending is not None and attempt.unplaced:
        lines.append(f"Left waiting {len(attempt.unplaced)}: {attempt.pending}")
    return lines + _steps(attempt.steps)


def _steps(steps: tuple[StepAccount, ...]) -> list[str]:
    """How many slots each step was taken for; a refusal is told in full."""
    taken: dict[str, list[StepAccount]] = {}
    for step in steps:
        if step.taken:
            taken.setdefault(step.step, []).append(step)
    lines = [
        f"{step_words(name)}: taken for {counted(len(done), 'slot')}, at version "
        f"{max(step.version for step in done)}"
        for name, done in taken.items()
    ]
    refused = [step for step in steps if not step.taken]
    lines += [
        f"{step_words(step.step)} of slot {step.slot}: refused, {step.said}"
        for step in refused[:NODES_SHOWN]
    ]
    if len(refused) > NODES_SHOWN:
        lines.append(f"and refused {len(refused) - NODES_SHOWN} times more: see --json")
    return lines


def step_words(step: str) -> str:
    """`release-node_lost.2`, as the key of an intent has it, in words."""
    verb, _, cause = step.partition(".")[0].partition("-")
    return f"{verb.capitalize()} ({cause.replace('_', ' ')})" if cause else verb.capitalize()


def _at(moment: datetime | None) -> str:
    return "none" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"

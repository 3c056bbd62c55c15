"""An explanation as people read it."""

from collections.abc import Mapping
from types import MappingProxyType

from rich.markup import escape

from durable.cli.render.explain_attempts import Attempts
from durable.cli.render.explain_slots import bindings_in_words, ends_in_words, moment
from durable.cli.render.holds import Hold
from durable.cli.render.output import results
from durable.cli.render.words import counted
from durable.explain.explanation import Explanation, RegionAccount
from durable.explain.queue import QueueAccount
from durable.model.ids import RegionId

_HELD = "nothing new is placed until somebody resumes it with durable send"
_NOT_ASKED = "there was no answer through Temporal"
_ENDS = {"complete": "has completed", "failed": "has failed", "deleted": "was deleted"}


def print_explanation(
    found: Explanation, holds: Mapping[RegionId, Hold] = MappingProxyType({})
) -> None:
    """The account as people read it."""
    newest = "" if found.generation == found.current_generation else (
        f" (the newest is {found.current_generation})"
    )  # fmt: skip
    spec = found.spec
    results.print(
        f"[bold]{found.tenant}/{found.workload}[/] generation {found.generation}{newest} "
        f"{_state(found)}: {counted(spec.replicas, 'replica')} of {spec.resources}, priority "
        f"{spec.priority}, {spec.kind}"
    )
    if not found.regions:
        results.print("No region has a part in it.")
    for region in found.regions:
        _print_region(region, holds.get(region.region))


def _state(found: Explanation) -> str:
    if found.generation != found.current_generation:
        return "is no longer wanted"
    if found.end is not None:
        how_far = f" ({found.end_sentence})" if found.end_sentence else ""
        return f"{_ENDS[found.end]}{how_far}"
    return "is being deleted" if found.deleting else "is wanted"


def _print_region(region: RegionAccount, hold: Hold | None) -> None:
    results.print(f"\n[bold]{region.region}[/]: {region.condition}; next: {region.owner}")
    is_held = hold is not None and hold.held is True
    if hold is not None and hold.held is not False:
        by = f"Held by {hold.held_by}" if hold.held else "Whether it is held could not be asked"
        results.print(f"  {escape(by)}: {_HELD if hold.held else _NOT_ASKED}")
    for line in ends_in_words(region.ends):
        results.print(f"  {escape(line)}")
    if region.queue is not None:
        for line in _queue(region.queue, is_told=is_held and region.queue.is_held):
            results.print(f"  {escape(line)}")
    if region.attempts_left_out:
        results.print(f"  {_left_out(region.attempts_left_out)}")
    waits_for = None if region.queue is None else region.queue.pending_reason
    for heading, lines in Attempts(waits_for).in_words(region.attempts):
        name, _, when = heading.partition(",")
        results.print(f"  [bold]{name}[/],{when}")
        for line in lines:
            results.print(f"    {escape(line)}")
    for line in bindings_in_words(region.bindings):
        results.print(f"  {escape(line)}")


def _left_out(count: int) -> str:
    are = "is" if count == 1 else "are"
    return f"{counted(count, 'earlier attempt')} {are} left out; --attempt N shows one"


def _queue(queue: QueueAccount, *, is_told: bool) -> list[str]:
    """The wait, and what for unless that was told."""
    overdue = f", overdue from {moment(queue.deadline)}" if queue.pending_reason else ""
    lines = [
        f"Queue: {queue.state}, {queue.queue_seconds:.1f} s from {moment(queue.enqueued_at)}, "
        f"{counted(queue.attempts, 'attempt')}{overdue}"
    ]
    if queue.pending_reason and not is_told:
        position = f"position {queue.position}, " if queue.position else ""
        at = queue.next_retry_at
        look = f"next look {moment(at)}" if at else "no next look"
        lines.append(f"Waits ({position}{look}): {queue.pending_reason}")
    return lines

"""Attempts at a placement in words; what several have in common is said once."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from durable.cli.render.explain_slots import moment, numbered, together
from durable.cli.render.words import counted
from durable.explain.attempt import AttemptAccount, StepAccount

NODES_SHOWN = 6


class Attempts:
    """The attempts of one region, told in turn; a sentence that stands above is not repeated."""

    def __init__(self, waits_for: str | None) -> None:
        self._said = {} if waits_for is None else {waits_for: "as above"}

    def in_words(self, attempts: Iterable[AttemptAccount]) -> Iterable[tuple[str, list[str]]]:
        """Each attempt, or those in a row that found the same: a heading and its lines."""
        for _, alike in groupby(attempts, _found):
            some = list(alike)
            yield _heading(some), [*_known(some), *self._lines(some[-1])]

    def _lines(self, attempt: AttemptAccount) -> list[str]:
        sampled = f", {attempt.sampled:,} of them looked at" if attempt.sampled is not None else ""
        lines = [f"Filters: {attempt.feasible:,} of {attempt.nodes:,} nodes could take it{sampled}"]
        left = str(attempt.pending) if attempt.pending is not None and attempt.unplaced else ""
        if attempt.rejections and attempt.filtered not in left:
            lines.append(f"Refused: {self._once(attempt.filtered, attempt)}")
        lines += self._liked(attempt)
        if attempt.placed:
            shown = [f"{one.slot} on {one.node}" for one in attempt.placed[:NODES_SHOWN]]
            more = len(attempt.placed) - NODES_SHOWN
            lines.append(f"Placed: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}")
        if left:
            lines.append(f"Left waiting {len(attempt.unplaced)}: {self._once(left, attempt)}")
        return lines + _steps(attempt.steps)

    def _liked(self, attempt: AttemptAccount) -> list[str]:
        liked = _candidates(attempt)
        all_of_them = "\n".join(liked)
        is_new = not liked or self._once(all_of_them, attempt) == all_of_them
        return liked if is_new else [f"Candidates: {self._said[all_of_them]}"]

    def _once(self, sentence: str, attempt: AttemptAccount) -> str:
        here = f"as in attempt {attempt.attempt}"
        said = self._said.setdefault(sentence, here)
        return sentence if said == here else said


def _found(attempt: AttemptAccount) -> object:
    """What was found, without what was known; what had consequences is like nothing else."""
    if attempt.steps:
        return attempt.attempt
    return (
        attempt.nodes, attempt.feasible, attempt.sampled, attempt.filtered, attempt.candidates,
        attempt.placed, attempt.unplaced, attempt.pending,
    )  # fmt: skip


def _heading(some: Sequence[AttemptAccount]) -> str:
    first, last = moment(some[0].decided_at), moment(some[-1].decided_at)
    when = f"at {first}" if first == last else f"from {first} to {last}"
    return f"{numbered('Attempt', [one.attempt for one in some])}, decided {when}"


def _known(some: Sequence[AttemptAccount]) -> list[str]:
    last = some[-1]
    of = f"Attempt {last.attempt}: " if len(some) > 1 else ""
    return [
        f"{of}Policy revision {last.policy_revision}; cache version {last.cache_version}, "
        f"{last.cache_age_seconds:.1f} s old",
        f"{of}Grant: {last.grant_before or 'none'} left before, {last.grant_after or 'none'} "
        f"after; room beside recovery: {last.room_before or 'none'}",
    ]


def _candidates(attempt: AttemptAccount) -> list[str]:
    """A line for all that have the same scores."""
    keyed = [(one, (one.total, tuple(one.scores.items()))) for one in attempt.candidates]
    lines: list[str] = []
    for some in together(keyed):
        scores = ", ".join(f"{name} {value:g}" for name, value in some[0].scores.items())
        nodes = ", ".join(str(one.node) for one in some)
        plural = "" if len(some) == 1 else "s"
        lines.append(f"Candidate{plural} {nodes}: {some[0].total:g} ({scores})")
    return lines


def _steps(steps: Sequence[StepAccount]) -> list[str]:
    """How many slots each step was taken for; a refusal is told in full, once."""
    taken = together((step, step.step) for step in steps if step.taken)
    lines = [
        f"{step_words(done[0].step)}: taken for {counted(len(done), 'slot')}, at version "
        f"{max(step.version for step in done)}"
        for done in taken
    ]
    refused = together((step, (step.step, step.said)) for step in steps if not step.taken)
    lines += [
        f"{step_words(some[0].step)} of {numbered('slot', [step.slot for step in some])}: refused, "
        f"{some[0].said}"
        for some in refused[:NODES_SHOWN]
    ]
    more = sum(map(len, refused[NODES_SHOWN:]))
    if more:
        lines.append(f"and refused {more} times more: see --json")
    return lines


def step_words(step: str) -> str:
    """`release-node_lost.2`, as the key of an intent has it, in words."""
    verb, _, cause = step.partition(".")[0].partition("-")
    return f"{verb.capitalize()} ({cause.replace('_', ' ')})" if cause else verb.capitalize()

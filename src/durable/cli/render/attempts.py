"""Attempts at a placement in words; what several have in common is said once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from durable.cli.render.phrases import counted, grouped, listed, numbered, timestamp
from durable.explain.attempts import AttemptExplanation, StepOutcome

NODES_SHOWN = 6
REFUSALS_SHOWN = 6


@dataclass(frozen=True)
class DescribedAttempts:
    """Attempts in a row that found the same."""

    title: str
    decided: str
    lines: list[str]


class AttemptDescriber:
    """Describes the attempts of one region in turn; a sentence is not repeated."""

    def __init__(self, waits_for: str | None) -> None:
        self._said = {} if waits_for is None else {waits_for: "as above"}

    def describe(self, attempts: Iterable[AttemptExplanation]) -> Iterable[DescribedAttempts]:
        for _, alike in groupby(attempts, _findings):
            some = list(alike)
            title = numbered("Attempt", [one.attempt for one in some])
            lines = [*_inputs(some), *self._lines(some[-1])]
            yield DescribedAttempts(title, _decided(some), lines)

    def _lines(self, attempt: AttemptExplanation) -> list[str]:
        sampled = f", {attempt.sampled:,} of them scored" if attempt.sampled is not None else ""
        lines = [f"Filters: {attempt.feasible:,} of {attempt.nodes:,} nodes feasible{sampled}"]
        wait = str(attempt.pending) if attempt.pending is not None and attempt.unplaced else ""
        if attempt.rejections and attempt.rejected not in wait:
            lines.append(f"Rejected: {self._once(attempt.rejected, attempt)}")
        lines += self._candidates(attempt)
        if attempt.placed:
            placed = [f"{one.slot} on {one.node}" for one in attempt.placed]
            lines.append(f"Placed: {listed(placed, NODES_SHOWN)}")
        if wait:
            unplaced = counted(len(attempt.unplaced), "slot")
            lines.append(f"Not placed, {unplaced}: {self._once(wait, attempt)}")
        return lines + _steps(attempt.steps)

    def _candidates(self, attempt: AttemptExplanation) -> list[str]:
        candidates = _candidates(attempt)
        text = "\n".join(candidates)
        is_new = not candidates or self._once(text, attempt) == text
        return candidates if is_new else [f"Candidates: {self._said[text]}"]

    def _once(self, sentence: str, attempt: AttemptExplanation) -> str:
        here = f"as in attempt {attempt.attempt}"
        said = self._said.setdefault(sentence, here)
        return sentence if said == here else said


def _findings(attempt: AttemptExplanation) -> object:
    """What was found, whatever was known; an attempt with commits is like no other."""
    if attempt.steps:
        return attempt.attempt
    return (
        attempt.nodes, attempt.feasible, attempt.sampled, attempt.rejected, attempt.candidates,
        attempt.placed, attempt.unplaced, attempt.pending,
    )  # fmt: skip


def _decided(some: Sequence[AttemptExplanation]) -> str:
    first, last = timestamp(some[0].decided_at), timestamp(some[-1].decided_at)
    return f"decided at {first}" if first == last else f"decided from {first} to {last}"


def _inputs(some: Sequence[AttemptExplanation]) -> list[str]:
    last = some[-1]
    of = f" of attempt {last.attempt}" if len(some) > 1 else ""
    return [
        f"Inputs{of}: policy revision {last.policy_revision}, cache version {last.cache_version} "
        f"({last.cache_age_seconds:.1f} s old)",
        f"Grant{of}: {last.grant_before or 'none'} left before, {last.grant_after or 'none'} "
        f"after; room outside the recovery reserve: {last.room_before or 'none'}",
    ]


def _candidates(attempt: AttemptExplanation) -> list[str]:
    """A line for all nodes that have the same scores."""
    keyed = [(one, (one.total, tuple(one.scores.items()))) for one in attempt.candidates]
    lines: list[str] = []
    for some in grouped(keyed):
        scores = ", ".join(f"{name} {value:g}" for name, value in some[0].scores.items())
        nodes = ", ".join(str(one.node) for one in some)
        plural = "" if len(some) == 1 else "s"
        lines.append(f"Candidate{plural} {nodes}: score {some[0].total:g} ({scores})")
    return lines


def _steps(steps: Sequence[StepOutcome]) -> list[str]:
    """How many slots each step was committed for; a refusal is given in full, once."""
    committed = grouped((one, (one.step, one.cause)) for one in steps if one.refusal is None)
    lines = [
        f"{_step(done[0])}: committed for {counted(len(done), 'slot')} at version "
        f"{max(step.version for step in done)}"
        for done in committed
    ]
    refused = grouped(
        (one, (one.step, one.cause, one.refusal)) for one in steps if one.refusal is not None
    )
    lines += [
        f"{_step(some[0])}: refused for {numbered('slot', [one.slot for one in some])}: "
        f"{some[0].refusal}"
        for some in refused[:REFUSALS_SHOWN]
    ]
    more = sum(map(len, refused[REFUSALS_SHOWN:]))
    if more:
        lines.append(f"and {counted(more, 'more refusal')}: see --json")
    return lines


def _step(outcome: StepOutcome) -> str:
    verb, cause = outcome.step.capitalize(), outcome.cause
    return verb if cause is None else f"{verb} ({cause.replace('_', ' ')})"

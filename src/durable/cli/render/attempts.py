"""Attempts at a placement in words; what several have in common is said once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from durable.cli.render.output import grouped, listed, numbered
from durable.explain.attempts import AttemptExplanation, StepOutcome
from durable.model.placement.pending import Pending
from durable.validation.text import counted, show_moment

CANDIDATES_SHOWN = 3
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

    def __init__(self, pending: Pending | None) -> None:
        self._said = {} if pending is None else {str(pending): "as above"}

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
    first, last = show_moment(some[0].decided_at), show_moment(some[-1].decided_at)
    decided = f"decided at {first}" if first == last else f"decided from {first} to {last}"
    repeated = [one for one in some if one.repeated_at is not None]
    if not repeated:
        return decided
    times = counted(sum(one.repeats for one in repeated), "time")
    when = show_moment(max(one.repeated_at for one in repeated if one.repeated_at is not None))
    return f"{decided}, and {times} more with the same findings, last at {when}"


def _inputs(some: Sequence[AttemptExplanation]) -> list[str]:
    last = some[-1]
    of = f" of attempt {last.attempt}" if len(some) > 1 else ""
    raised = f", priority raised by {last.urgency} for its deadline" if last.urgency else ""
    return [
        f"Inputs{of}: policy revision {last.policy_revision}, cache version {last.cache_version} "
        f"({last.cache_age_seconds:.1f} s old){raised}",
        f"Grant{of}: {last.grant_before or 'none'} before, {last.grant_after or 'none'} after; "
        f"free outside the recovery reserve: {last.room_before or 'none'}",
    ]


def _candidates(attempt: AttemptExplanation) -> list[str]:
    """A line for all nodes that have the same scores."""
    keyed = [(one, (one.total, tuple(one.scores.items()))) for one in attempt.candidates]
    lines: list[str] = []
    for some in grouped(keyed):
        scores = _scores(some[0].scores, attempt.candidates[0].scores)
        nodes = listed([str(one.node) for one in some], CANDIDATES_SHOWN)
        plural = "" if len(some) == 1 else "s"
        lines.append(f"Candidate{plural} {nodes}: score {some[0].total:.4g} ({scores})")
    return lines


def _scores(scores: Mapping[str, float], first: Mapping[str, float]) -> str:
    """All that count of the first candidate, which was chosen; of others, what differs from it."""
    if scores == first:
        return ", ".join(f"{name} {value:.4g}" for name, value in scores.items() if value)
    differing = {name: value for name, value in scores.items() if value != first.get(name)}
    differences = ", ".join(f"{name} {value:.4g}" for name, value in differing.items())
    return f"like the first, except {differences}"


def _steps(steps: Sequence[StepOutcome]) -> list[str]:
    """One line for steps that were committed for as many slots; each refusal once, in full."""
    committed = grouped((one, (one.step, one.cause)) for one in steps if one.refusal is None)
    lines = [
        f"Committed for {counted(len(alike[0]), 'slot')}: {', '.join(map(_committed, alike))}"
        for alike in grouped((same, len(same)) for same in committed)
    ]
    refused = grouped(
        (one, (one.step, one.cause, one.refusal)) for one in steps if one.refusal is not None
    )
    lines += [
        f"{_step(same[0]).capitalize()} refused for "
        f"{numbered('slot', [one.slot for one in same])}: {same[0].refusal}"
        for same in refused[:REFUSALS_SHOWN]
    ]
    more = sum(map(len, refused[REFUSALS_SHOWN:]))
    if more:
        lines.append(f"and {counted(more, 'more refusal')}: see --json")
    return lines


def _committed(same: Sequence[StepOutcome]) -> str:
    return f"{_step(same[0])} at version {max(one.version for one in same)}"


def _step(outcome: StepOutcome) -> str:
    cause = "" if outcome.cause is None else f" ({outcome.cause.replace('_', ' ')})"
    return f"{outcome.step}{cause}"

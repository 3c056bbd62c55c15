"""Why a decision is what it is: who was rejected for which reason, and who scored best."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from durable.model.ids import NodeId, PolicyRevision
from durable.model.placement.pending_reasons import Rejection
from durable.model.policy.policy import Policy
from durable.model.resources import minus, times
from durable.scheduling.candidates import Candidates, largest
from durable.scheduling.filters import CANDIDATE, ELIGIBLE, FILTERS, LASTING, SPREAD
from durable.scheduling.filters.filter import Filter
from durable.scheduling.filters.lease import LEASE
from durable.scheduling.request import Candidate, Evidence
from durable.scheduling.snapshot.columns import NEVER, Mask, Rows
from durable.scheduling.working_set import ALL_ROWS, WorkingSet

# A fleet where every node has a taint of its own must not fill a record with them.
_WORDS_PER_FILTER = 8


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The nodes that one filter was the first to reject."""

    by: Filter
    rows: Rows


@dataclass(frozen=True, slots=True)
class Rejections:
    """What the filters rejected, in their order, and which nodes remain."""

    remaining: Mask
    rejected: tuple[RejectedRows, ...]

    @property
    def feasible(self) -> int:
        return int(np.count_nonzero(self.remaining))

    @property
    def closest(self) -> RejectedRows | None:
        """The nodes that came closest to taking the work."""
        return self.rejected[-1] if self.rejected else None

    def by(self, filter: Filter) -> Rows:
        """The nodes that this filter rejected."""
        rows = [each.rows for each in self.rejected if each.by is filter]
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)

    def counted(self, working: WorkingSet) -> tuple[Rejection, ...]:
        """The rejections in words, the most frequent first within each filter."""
        return tuple(line for each in self.rejected for line in _lines(working, each))


def filter_nodes(working: WorkingSet) -> tuple[Mask, Rejections]:
    """The candidates, which spread may still close for a while, and every node's rejection."""
    eligible = _apply(working, ELIGIBLE, working.columns.live)
    working.spread_over(eligible.remaining)
    candidates = _apply(working, CANDIDATE, eligible.remaining)
    spread = _apply(working, SPREAD, candidates.remaining)
    rejected = eligible.rejected + candidates.rejected + spread.rejected
    return candidates.remaining, Rejections(spread.remaining, rejected)


def eligible_nodes(working: WorkingSet) -> Mask:
    """The nodes that could take the work now, if only they had room."""
    return _apply(working, ELIGIBLE, working.columns.live).remaining


def filter_again(working: WorkingSet) -> Rejections:
    """Every node's rejection after some slots were placed."""
    return _apply(working, FILTERS, working.columns.live)


def filter_lasting(working: WorkingSet) -> Rejections:
    """The rejections that no waiting mends."""
    return _apply(working, LASTING, working.columns.live)


def _apply(working: WorkingSet, filters: Iterable[Filter], nodes: Mask) -> Rejections:
    remaining, rejected = nodes, list[RejectedRows]()
    for each in filters:
        rejects = each.rejects(working, ALL_ROWS)
        if rejects is None:
            continue
        newly = remaining & rejects
        if newly.any():
            rejected.append(RejectedRows(each, np.flatnonzero(newly)))
            remaining = remaining & ~rejects
    return Rejections(remaining, tuple(rejected))


def _lines(working: WorkingSet, rejected: RejectedRows) -> Iterable[Rejection]:
    counted = rejected.by.words(working, rejected.rows)
    # By words where counts are equal: the order in which nodes arrived must not show.
    lines = sorted(counted.items(), key=lambda line: (-line[1], line[0]))
    rest = sum(count for _, count in lines[_WORDS_PER_FILTER:])
    if rest:
        lines = [*lines[:_WORDS_PER_FILTER], (f"{rejected.by.code} of other kinds", rest)]
    return (Rejection(code=rejected.by.code, nodes=count, words=words) for words, count in lines)


_STALE_AT_MOST = 10_000
# What is below this decides nothing, and would only be noise to a reader.
_DIGITS = 6


def first_evidence(
    working: WorkingSet, rejections: Rejections, revision: PolicyRevision
) -> Evidence:
    """What is known before the first slot is placed."""
    snapshot, grant = working.snapshot, working.snapshot.grants.get(working.request.tenant)
    before = None if grant is None else minus(*grant)
    return Evidence(
        policy_revision=revision,
        cache_version=snapshot.version,
        cache_age_seconds=snapshot.age_seconds,
        nodes=len(snapshot),
        feasible=rejections.feasible,
        rejections=rejections.counted(working),
        grant_before=before,
        grant_after=before,
        room_before=snapshot.room,
        stale_nodes=_stale(working, rejections),
    )


def after_placing(
    working: WorkingSet,
    evidence: Evidence,
    sampled: int | None,
    candidates: tuple[Candidate, ...],
    placed: int,
) -> Evidence:
    """The same with what was liked, and with what so many replicas would leave of the grant."""
    changed: dict[str, object] = {"sampled": sampled, "candidates": candidates}
    if evidence.grant_before is not None:
        changed["grant_after"] = minus(evidence.grant_before, times(working.requested, placed))
    return evidence.model_copy(update=changed)


def best_candidates(
    working: WorkingSet, candidates: Candidates, policy: Policy
) -> tuple[Candidate, ...]:
    """The one that the first slot would take, then the best of the others, with their scores."""
    chosen = candidates.best()
    if chosen is None:
        return ()
    totals = candidates.totals()
    ordered = largest(totals, policy.candidates_kept + 1)
    others = [position for position in ordered.tolist() if position != chosen]
    shown = np.array([chosen, *others][: policy.candidates_kept])
    shown = shown[totals[shown] > NEVER]
    points = candidates.points_by_score(shown)
    return tuple(
        Candidate(
            node=NodeId(working.snapshot.name(int(candidates.rows[position]))),
            total=round(float(totals[position]), _DIGITS),
            scores={name: round(float(given[index]), _DIGITS) for name, given in points.items()},
        )
        for index, position in enumerate(shown)
    )


def _stale(working: WorkingSet, rejections: Rejections) -> tuple[NodeId, ...]:
    """Leases have no version: which nodes were rejected for one cannot be found out later."""
    names = sorted(working.snapshot.name(int(row)) for row in rejections.by(LEASE))
    return tuple(NodeId(name) for name in names[:_STALE_AT_MOST])

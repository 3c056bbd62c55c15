"""Why a decision is what it is: enough to explain it, and with the request to make it again."""

import numpy as np

from durable.model.amounts import minus, times
from durable.model.ids import NodeId, PolicyRevision
from durable.model.policy import Policy
from durable.scheduling.candidates import Candidates
from durable.scheduling.filters.lease import LEASE
from durable.scheduling.proposal import Candidate, Evidence
from durable.scheduling.rejections import Rejections
from durable.scheduling.snapshot.columns import NEVER
from durable.scheduling.working_set import WorkingSet

_STALE_AT_MOST = 10_000
# What is below this decides only between equals, and would only be noise to a reader.
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
    """The best candidates of the first slot, with what each score gave them."""
    totals = candidates.totals()
    kept = min(policy.candidates_kept, len(totals))
    if not kept:
        return ()
    best = np.argpartition(-totals, kept - 1)[:kept]
    best = best[np.argsort(-totals[best], kind="stable")]
    best = best[totals[best] > NEVER]
    points = candidates.points_by_score(best)
    return tuple(
        Candidate(
            node=NodeId(working.snapshot.name(int(candidates.rows[position]))),
            total=round(float(totals[position]), _DIGITS),
            scores={name: round(float(given[index]), _DIGITS) for name, given in points.items()},
        )
        for index, position in enumerate(best)
    )


def _stale(working: WorkingSet, rejections: Rejections) -> tuple[NodeId, ...]:
    """Leases have no version: which nodes were rejected for one cannot be found out later."""
    names = sorted(working.snapshot.name(int(row)) for row in rejections.by(LEASE))
    return tuple(NodeId(name) for name in names[:_STALE_AT_MOST])

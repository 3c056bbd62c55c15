"""Why a decision is what it is: enough to explain it, and with the wish to make it again."""

import numpy as np

from durable.model.amounts import minus, times
from durable.model.ids import NodeId, PolicyRevision
from durable.model.policy import Policy
from durable.scheduling.account import Account
from durable.scheduling.filters import health
from durable.scheduling.placing import Pool
from durable.scheduling.proposal import Candidate, Evidence
from durable.scheduling.question import Question
from durable.scheduling.snapshot.columns import NEVER

_STALE_AT_MOST = 10_000
# What is below this decides only between equals, and would only be noise to a reader.
_DIGITS = 6


def first_evidence(question: Question, account: Account, revision: PolicyRevision) -> Evidence:
    """What is known before the first slot is placed."""
    snapshot, grant = question.snapshot, question.snapshot.grants.get(question.wish.tenant)
    before = None if grant is None else minus(*grant)
    return Evidence(
        policy_revision=revision,
        cache_version=snapshot.version,
        cache_age_seconds=snapshot.age_seconds,
        nodes=len(snapshot),
        feasible=account.feasible,
        rejections=account.rejections(question),
        grant_before=before,
        grant_after=before,
        room_before=snapshot.room,
        stale_nodes=_stale(question, account),
    )


def after_placing(
    question: Question,
    evidence: Evidence,
    sampled: int | None,
    candidates: tuple[Candidate, ...],
    placed: int,
) -> Evidence:
    """The same with what was liked, and with what so many replicas would leave of the grant."""
    changed: dict[str, object] = {"sampled": sampled, "candidates": candidates}
    if evidence.grant_before is not None:
        changed["grant_after"] = minus(evidence.grant_before, times(question.asked, placed))
    return evidence.model_copy(update=changed)


def best_candidates(question: Question, pool: Pool, policy: Policy) -> tuple[Candidate, ...]:
    """The best candidates of the first slot, with what each score gave them."""
    totals = pool.totals()
    kept = min(policy.candidates_kept, len(totals))
    if not kept:
        return ()
    best = np.argpartition(-totals, kept - 1)[:kept]
    best = best[np.argsort(-totals[best], kind="stable")]
    best = best[totals[best] > NEVER]
    points = pool.points_by_score(best)
    return tuple(
        Candidate(
            node=NodeId(question.snapshot.name(int(pool.rows[position]))),
            total=round(float(totals[position]), _DIGITS),
            scores={name: round(float(given[index]), _DIGITS) for name, given in points.items()},
        )
        for index, position in enumerate(best)
    )


def _stale(question: Question, account: Account) -> tuple[NodeId, ...]:
    """Leases have no version: who was refused for one cannot be found out later."""
    rows = [row for refused in account.refused_by((health.LEASE,)) for row in refused.rows]
    names = sorted(question.snapshot.name(int(row)) for row in rows)
    return tuple(NodeId(name) for name in names[:_STALE_AT_MOST])

"""The decision: which node each slot should go to, or what it waits for.

Pure: the same snapshot, wish and policy give the same proposal, in any process and for ever.
"""

from collections.abc import Mapping

import numpy as np

from durable.model.ids import NodeId, PolicyRevision
from durable.model.pending import Pending
from durable.model.placement import SlotOnNode
from durable.model.policy import Policy
from durable.scheduling.account import ask_again, ask_all
from durable.scheduling.evidence import after_placing, best_candidates, first_evidence
from durable.scheduling.gates import Limit, tightest
from durable.scheduling.placing import Pool, place
from durable.scheduling.proposal import Evidence, Proposal
from durable.scheduling.question import Question
from durable.scheduling.seed import numbers_for
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.waiting import why_gang_waits, why_unplaced
from durable.scheduling.wish import Wish


def decide(
    snapshot: Snapshot, wish: Wish, policy: Policy, policy_revision: PolicyRevision
) -> Proposal:
    """Proposes a node for as many slots as may be placed; the authority has the last word."""
    question = Question(snapshot, wish, policy)

    # 1. Gates: how many slots the grant and the room let through.
    limit = tightest(question)

    # 2. Filters: which nodes may take the work, and why the others may not.
    candidates, account = ask_all(question)
    evidence = first_evidence(question, account, policy_revision)

    # 3. Scores: how much each candidate is liked, or each of a sample for best-effort work.
    everyone = _Everyone(question, candidates, policy)
    pool, sampled = everyone.look()
    liked = best_candidates(question, pool, policy)

    # 4. Places, slot by slot; a sample that has run out is no reason to wait.
    placed = place(question, pool, wish.slots, limit.slots)
    if sampled is not None and len(placed) < limit.slots:
        rest = [slot for slot in wish.slots if slot not in placed]
        placed |= place(question, everyone.pool(), rest, limit.slots - len(placed))

    # 5. What waits, and for what; too few of a gang is none of it.
    pending = _why_not_all(question, limit, placed)
    if len(placed) + len(wish.standing) < wish.spec.gang_size:
        pending = why_gang_waits(question, len(placed), pending)
        placed = {}
    evidence = after_placing(question, evidence, sampled, liked, len(placed))
    return _proposal(question, placed, pending, evidence)


class _Everyone:
    """All candidates in the order of their names, with the numbers that decide between equals."""

    def __init__(self, question: Question, candidates: Mask, policy: Policy) -> None:
        self._question, self._policy = question, policy
        by_name = question.snapshot.rows_by_name()
        self._rows = by_name[candidates[by_name]]
        self._ties = numbers_for(question.wish, len(self._rows))

    def pool(self) -> Pool:
        return Pool(self._question, self._rows, self._ties, self._policy)

    def look(self) -> tuple[Pool, int | None]:
        """The pool to begin with, and of how many candidates it is a sample, if it is one."""
        sampling, count = self._policy.sampling, self._policy.sampling.candidates
        is_best_effort = self._question.wish.spec.priority < sampling.below_priority
        if not is_best_effort or len(self._rows) <= count:
            return self.pool(), None
        drawn = np.sort(np.argpartition(self._ties, count)[:count])
        return Pool(self._question, self._rows[drawn], self._ties[drawn], self._policy), count


def _why_not_all(question: Question, limit: Limit, placed: Mapping[int, int]) -> Pending | None:
    unplaced = [slot for slot in question.wish.slots if slot not in placed]
    if not unplaced:
        return None
    question.bar(unplaced[:1])
    return why_unplaced(question, limit, len(placed), ask_again(question))


def _proposal(
    question: Question, placed: Mapping[int, int], pending: Pending | None, evidence: Evidence
) -> Proposal:
    wish, name = question.wish, question.snapshot.name
    return Proposal(
        assignments=tuple(
            SlotOnNode(slot=slot, node=NodeId(name(row))) for slot, row in sorted(placed.items())
        ),
        unplaced=tuple(sorted(slot for slot in wish.slots if slot not in placed)),
        pending=pending,
        evidence=evidence,
    )

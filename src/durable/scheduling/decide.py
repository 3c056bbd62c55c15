"""The decision: which node each slot should go to, or what it waits for.

Pure: the same snapshot, request and policy give the same proposal, in any process and for ever.
"""

from collections.abc import Mapping

from durable.model.ids import NodeId, PolicyRevision
from durable.model.placement.claims import SlotOnNode
from durable.model.placement.pending import Pending
from durable.model.policy.policy import Policy
from durable.scheduling.candidates import Candidates
from durable.scheduling.evidence import (
    after_placing,
    best_candidates,
    filter_again,
    filter_nodes,
    first_evidence,
)
from durable.scheduling.limits import SlotLimit, tightest_limit
from durable.scheduling.pending import why_gang_waits, why_unplaced
from durable.scheduling.placing import place
from durable.scheduling.request import Evidence, PlacementRequest, Proposal
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.working_set import WorkingSet


def decide(
    snapshot: Snapshot, request: PlacementRequest, policy: Policy, policy_revision: PolicyRevision
) -> Proposal:
    """Proposes a node for as many slots as may be placed; the authority has the last word."""
    working = WorkingSet(snapshot, request, policy)

    # 1. Limits: how many slots the grant and the headroom let through.
    limit = tightest_limit(working)

    # 2. Filters: which nodes may take the work, and why the others may not.
    feasible, rejections = filter_nodes(working)
    evidence = first_evidence(working, rejections, policy_revision)

    # 3. Scores: the points of every candidate, or of a sample of them for best-effort work.
    everyone = Candidates.all_of(working, feasible, policy)
    sampled = _sample_size(request, len(everyone), policy)
    candidates = everyone if sampled is None else everyone.sample(sampled)
    best = best_candidates(working, candidates, policy)

    # 4. Places, slot by slot; a sample that has run out is no reason to wait.
    placed: dict[int, int] = {}
    place(working, candidates, request.slots, limit.slots, placed)
    if sampled is not None:
        place(working, everyone, request.slots, limit.slots, placed)

    # 5. What waits, and for what; too few of a gang is none of it.
    pending = _why_not_all(working, limit, placed)
    if len(placed) + len(request.live) < request.spec.gang_size:
        pending = why_gang_waits(working, len(placed), pending)
        placed = {}
    evidence = after_placing(working, evidence, sampled, best, len(placed))
    return _proposal(working, placed, pending, evidence)


def _sample_size(request: PlacementRequest, candidates: int, policy: Policy) -> int | None:
    sampling = policy.sampling
    is_best_effort = request.priority < sampling.below_priority
    return sampling.candidates if is_best_effort and candidates > sampling.candidates else None


def _why_not_all(
    working: WorkingSet, limit: SlotLimit, placed: Mapping[int, int]
) -> Pending | None:
    unplaced = [slot for slot in working.request.slots if slot not in placed]
    if not unplaced:
        return None
    working.consider(unplaced[:1])
    return why_unplaced(working, limit, len(placed), filter_again(working))


def _proposal(
    working: WorkingSet, placed: Mapping[int, int], pending: Pending | None, evidence: Evidence
) -> Proposal:
    name = working.snapshot.name
    return Proposal(
        assignments=tuple(
            SlotOnNode(slot=slot, node=NodeId(name(row))) for slot, row in sorted(placed.items())
        ),
        unplaced=tuple(sorted(slot for slot in working.request.slots if slot not in placed)),
        pending=pending,
        evidence=evidence,
    )

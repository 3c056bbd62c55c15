"""A recorded decision, made again on what it saw, under the same revision or another; pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from durable.model.ids import TenantId, WorkloadName
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.records import Decision
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import ShadowedWorkload, ShadowReport
from durable.model.resources import NOTHING
from durable.scheduling.decide import decide
from durable.scheduling.request import PlacementRequest, Proposal
from durable.scheduling.snapshot.region import NodeFacts, Snapshot

_EPOCH, _FOREVER = 1, float("inf")


@dataclass(frozen=True)
class ReplayedDecision:
    """One decision under two revisions, unless the first did not give what was recorded."""

    decision: Decision
    after: Proposal | None
    before: Proposal


def replay(
    decision: Decision,
    nodes: Sequence[NodeFacts],
    policy: Policy,
    other: Policy,
    revision: int,
) -> ReplayedDecision:
    """Decides again as it was decided; if that gives the same, also under the other revision."""
    recorded = Proposal.read(decision.evidence["proposal"])
    request = PlacementRequest.read(decision.evidence["request"])
    snapshot = rebuild(decision, recorded, nodes)
    again = decide(snapshot, request, policy, decision.policy_revision)
    if again.assignments != recorded.assignments:
        # Something that has no version was in force then, such as an override.
        return ReplayedDecision(decision, None, recorded)
    return ReplayedDecision(decision, decide(snapshot, request, other, revision), recorded)


def rebuild(decision: Decision, recorded: Proposal, nodes: Sequence[NodeFacts]) -> Snapshot:
    """The region as the decision saw it; what has no version was written down.

    That is leases, room, and what was left of the grant: of an emergency quota that ends by itself,
    and of what a lowered quota wants back, no version knows.
    """
    evidence = recorded.evidence
    snapshot = Snapshot.empty(decision.region)
    snapshot.epoch, snapshot.version = _EPOCH, decision.cache_version
    snapshot.now = decision.decided_at.timestamp()
    snapshot.age_seconds = evidence.cache_age_seconds
    snapshot.is_open = all(one.code != PendingCode.REGION_FENCED for one in evidence.rejections)
    snapshot.room = evidence.room_before or NOTHING
    if evidence.grant_before is not None:
        snapshot.grants = {decision.tenant: (evidence.grant_before, NOTHING)}
    stale = set(evidence.stale_nodes)
    snapshot.put(
        one if one.node in stale else replace(one, lease_epoch=_EPOCH, lease_expires_at=_FOREVER)
        for one in nodes
    )
    return snapshot


def summarize(replayed: Iterable[ReplayedDecision]) -> tuple[ShadowedWorkload, ...]:
    """What would have changed, workload by workload; those that change most come first."""
    by_workload: dict[tuple[TenantId, WorkloadName], list[ReplayedDecision]] = defaultdict(list)
    for one in replayed:
        by_workload[one.decision.tenant, one.decision.workload].append(one)
    found = [_compared(*key, those) for key, those in by_workload.items()]
    return tuple(
        sorted(
            found,
            key=lambda one: (-one.lost, -one.moved, -one.gained, one.tenant, one.workload),
        )
    )


def _compared(
    tenant: TenantId, workload: WorkloadName, replayed: Sequence[ReplayedDecision]
) -> ShadowedWorkload:
    placed = moved = gained = lost = 0
    for one in replayed:
        assert one.after is not None, "only what could be repeated is compared"
        before = {given.slot: given.node for given in one.before.assignments}
        after = {given.slot: given.node for given in one.after.assignments}
        both = before.keys() & after.keys()
        placed += len(both)
        moved += sum(before[slot] != after[slot] for slot in both)
        gained += len(after.keys() - before.keys())
        lost += len(before.keys() - after.keys())
    return ShadowedWorkload(
        tenant=tenant,
        workload=workload,
        decisions=len(replayed),
        placed=placed,
        moved=moved,
        gained=gained,
        lost=lost,
    )


def admits_nothing(reports: Iterable[ShadowReport]) -> bool:
    """Whether it would place none of what was placed: then it is no policy for this fleet."""
    workloads = [one for report in reports for one in report.workloads]
    lost = sum(one.lost for one in workloads)
    return lost > 0 and not any(one.placed or one.gained for one in workloads)

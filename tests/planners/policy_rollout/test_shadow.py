"""A recorded decision is made again on what it saw, and compared workload by workload."""

from dataclasses import replace
from typing import Any

import pytest

from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import SlotOnNode
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.records import Decision
from durable.model.policy.rollout import ShadowedWorkload, ShadowReport
from durable.model.work.workload import WorkloadSpec
from durable.planners.policy_rollout.shadow import (
    ReplayedDecision,
    admits_nothing,
    replay,
    summarize,
)
from durable.scheduling.decide import decide
from durable.scheduling.policies import first_policy
from durable.scheduling.request import Evidence, PlacementRequest, Proposal
from durable.scheduling.snapshot.region import NodeFacts, Snapshot
from tests.planners.policy_rollout.rollouts import EAST, T0

RISK, API = TenantId("risk"), WorkloadName("api")
EVIDENCE = Evidence(policy_revision=1, cache_version=1, cache_age_seconds=0, nodes=2, feasible=2)
GRANTS = {"risk": ((100_000, 100_000, 0), (0, 0, 0))}


def proposal(**nodes: str) -> Proposal:
    """By slot: `s0="n1"`."""
    given = [SlotOnNode(slot=int(slot[1:]), node=NodeId(node)) for slot, node in nodes.items()]
    return Proposal(assignments=tuple(given), unplaced=(), pending=None, evidence=EVIDENCE)


def decision(workload: WorkloadName = API, **evidence: Any) -> Decision:
    return Decision(
        region=RegionId(EAST),
        tenant=RISK,
        workload=workload,
        generation=1,
        attempt=1,
        policy_revision=1,
        cache_version=1,
        evidence=evidence,
        decided_at=T0,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"s0": "a", "s1": "b"}, {"s0": "a", "s1": "b"}, {"placed": 2}),
        ({"s0": "a", "s1": "b"}, {"s0": "a", "s1": "c"}, {"placed": 2, "moved": 1}),
        ({"s0": "a"}, {"s0": "a", "s1": "b"}, {"placed": 1, "gained": 1}),
        ({"s0": "a", "s1": "b"}, {"s1": "b"}, {"placed": 1, "lost": 1}),
        ({"s0": "a"}, {}, {"lost": 1}),
    ],
)
def test_what_changes_is_counted(
    before: dict[str, str], after: dict[str, str], expected: dict[str, int]
) -> None:
    replayed = ReplayedDecision(decision(), proposal(**after), proposal(**before))
    one = ShadowedWorkload(tenant=RISK, workload=API, decisions=1, **expected)
    assert summarize([replayed]) == (one,)
    assert one.is_same is (set(expected) == {"placed"})


def test_what_loses_most_is_shown_first() -> None:
    worse = WorkloadName("worse")
    found = summarize(
        [
            ReplayedDecision(decision(), proposal(s0="b"), proposal(s0="a")),
            ReplayedDecision(decision(worse), proposal(), proposal(s0="a")),
        ]
    )
    assert [one.workload for one in found] == [worse, API]


def report(*workloads: ShadowedWorkload) -> ShadowReport:
    return ShadowReport(region=EAST, at=T0, decisions=len(workloads), workloads=workloads)


def counted(**fields: int) -> ShadowedWorkload:
    return ShadowedWorkload(tenant=RISK, workload=API, decisions=1, **fields)


@pytest.mark.parametrize(
    ("workloads", "refused"),
    [
        ((), False),
        ((counted(lost=3),), True),
        ((counted(lost=3), counted(placed=1)), False),
        ((counted(lost=3), counted(gained=1)), False),
        ((counted(),), False),
    ],
)
def test_a_policy_that_places_nothing_of_what_runs_is_no_policy(
    workloads: tuple[ShadowedWorkload, ...], refused: bool
) -> None:
    assert admits_nothing([report(), report(*workloads)]) is refused


# ── on what it saw ──────────────────────────────────────────────────────────────────────────────


def node(name: str, **fields: Any) -> NodeFacts:
    given: dict[str, Any] = {
        "zone": "a", "pool": "general", "capacity": (8_000, 8_000, 0), "used": (0, 0, 0),
        "labels": {}, "taints": (), "dedicated_to": None, "state": "ready",
        "cordon_reason": None, "lease_epoch": 3, "lease_expires_at": T0.timestamp() + 60,
    }  # fmt: skip
    return NodeFacts(node=name, **{**given, **fields})


def recorded(nodes: list[NodeFacts]) -> Decision:
    """Decided on a region of another epoch, as it is recorded."""
    snapshot = Snapshot.empty(EAST)
    snapshot.epoch, snapshot.version, snapshot.now = 3, 1, T0.timestamp()
    snapshot.room, snapshot.grants = (50_000, 50_000, 0), dict(GRANTS)
    snapshot.put(nodes)
    request = PlacementRequest(
        region=EAST,
        tenant=RISK,
        workload=API,
        generation=1,
        attempt=1,
        slots=(0, 1),
        spec=WorkloadSpec.model_validate(
            {"replicas": 2, "resources": {"cpu": "1", "memory": "64Mi"}}
        ),
    )
    made = decide(snapshot, request, first_policy(), 1)
    return decision(
        request=request.model_dump(mode="json", exclude_defaults=True),
        proposal=made.model_dump(mode="json"),
    )


def without_leases(nodes: list[NodeFacts]) -> list[NodeFacts]:
    """As they are rebuilt: leases have no version."""
    return [replace(one, lease_epoch=None, lease_expires_at=None) for one in nodes]


def test_under_the_same_policy_it_gives_the_same_also_with_a_stale_node() -> None:
    nodes = [node("n1"), node("n2"), node("stale", lease_expires_at=T0.timestamp() - 1)]
    first = first_policy()
    again = replay(recorded(nodes), without_leases(nodes), first, first, 2)
    assert again.after is not None
    assert again.after.assignments == again.before.assignments
    assert {one.node for one in again.before.assignments} <= {"n1", "n2"}


def test_what_cannot_be_repeated_is_not_compared() -> None:
    nodes = [node("n1"), node("n2")]
    first = first_policy()
    gone = replay(recorded(nodes), [], first, first, 2)
    assert gone.after is None


def test_another_policy_gives_another_answer() -> None:
    nodes = [node("n1", used=(4_000, 4_000, 0)), node("n2")]
    packs = first_policy().model_copy(update={"weights": {"packing": 10.0}, "choice_band": 0.0})
    again = replay(recorded(nodes), without_leases(nodes), first_policy(), packs, 2)
    assert again.after is not None
    assert {one.node for one in again.before.assignments} == {"n1", "n2"}, "it spreads"
    assert {one.node for one in again.after.assignments} == {"n1"}, "it packs"
    assert again.after.evidence.policy_revision == 2
    assert PendingCode.REGION_FENCED not in {one.code for one in again.after.evidence.rejections}

"""Builds small regions and requests in which a case shows only what matters to it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from durable.model.ids import ActorId, OverrideId
from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.in_force import RegionalOverride
from durable.model.policy.policy import Policy
from durable.model.resources import NOTHING, Amounts
from durable.model.states import NodeState
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.decide import decide
from durable.scheduling.policies import first_policy
from durable.scheduling.request import PlacementRequest, Proposal
from durable.scheduling.snapshot.region import NodeFacts, Snapshot

NOW = 1_000_000.0
PLENTY: Amounts = (10**9, 10**9, 10**6)
EPOCH = 3
REGION, TENANT = "us-east", "risk"
POLICY = first_policy()


def node(name: str = "n1", **facts: Any) -> NodeFacts:
    """A healthy, empty node of 8 cpu and 32Gi in zone a, unless said otherwise."""
    cpu, memory, gpus = facts.pop("cpu", 8), facts.pop("memory", 32), facts.pop("gpus", 0)
    is_ready, is_cordoned = facts.pop("ready", True), facts.pop("cordoned", False)
    values: dict[str, Any] = {
        "zone": "a",
        "pool": "general",
        "capacity": (cpu * 1000, memory * 1024, gpus),
        "used": NOTHING,
        "labels": {},
        "taints": (),
        "dedicated_to": None,
        "state": NodeState.READY if is_ready else NodeState.UNKNOWN,
        "cordon_reason": "a fan" if is_cordoned else None,
        "lease_epoch": EPOCH,
        "lease_expires_at": NOW + 30,
    }
    return NodeFacts(node=name, **{**values, **facts})


def used(cpu: int = 0, memory: int = 0, gpus: int = 0) -> Amounts:
    """An amount in whole cores, GiB and gpus."""
    return (cpu * 1000, memory * 1024, gpus)


FULL = used(cpu=8, memory=32)


def taint(key: str, value: str, effect: str = "no-schedule") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def spec(**wanted: Any) -> WorkloadSpec:
    """One replica of 1 cpu and 1Gi that goes anywhere, unless said otherwise."""
    resources = {
        "cpu": wanted.pop("cpu", 1),
        "memory": f"{wanted.pop('memory', 1)}Gi",
        "gpu": wanted.pop("gpus", 0),
    }
    return WorkloadSpec.model_validate({"replicas": 1, "resources": resources, **wanted})


def override(name: str = "o-1", **effects: Any) -> RegionalOverride:
    """One that is in force for an hour, for everybody."""
    return RegionalOverride(
        override=OverrideId(name),
        kind="avoid-zone",
        scope=OverrideScope(),
        effects=Effects.model_validate(effects),
        actor=ActorId("ann"),
        reason="INC-1",
        expires_at=datetime.fromtimestamp(NOW + 3_600, UTC),
    )


def avoiding(*zones: str) -> RegionalOverride:
    return override(avoid_zones=zones)


def request(slots: int | Sequence[int] = 1, **wanted: Any) -> PlacementRequest:
    """Slots of risk/api; what a request has itself is taken out, the rest is its spec's."""
    own = (
        "live", "crashes", "overrides", "draws", "overdrawn", "attempt", "region", "tenant", "draw",
        "urgency",
    )  # fmt: skip
    values = {name: wanted.pop(name) for name in own if name in wanted}
    numbers = tuple(range(slots)) if isinstance(slots, int) else tuple(slots)
    wanted.setdefault("replicas", len(numbers))
    for name in ("live", "crashes"):
        # By slot, or as pairs where a slot has more than one.
        given: Any = values.get(name, {})
        pairs: Iterable[tuple[int, str]] = given.items() if hasattr(given, "items") else given
        at = {"at": datetime.fromtimestamp(NOW, UTC)} if name == "crashes" else {}
        values[name] = tuple({"slot": slot, "node": where, **at} for slot, where in pairs)
    defaults: dict[str, Any] = {"region": REGION, "tenant": TENANT, "attempt": 1}
    return PlacementRequest.model_validate(
        {
            **defaults,
            "workload": "api",
            "generation": 1,
            "slots": numbers,
            "spec": spec(**wanted),
            **values,
        }
    )


@dataclass(frozen=True)
class Region:
    """An open region with these nodes and plenty of grant and room, unless said otherwise."""

    nodes: tuple[NodeFacts, ...] = ()
    grant: Amounts | None = PLENTY
    in_use: Amounts = NOTHING
    room: Amounts = PLENTY
    is_open: bool = True
    policy: Policy = POLICY

    def but(self, **changes: Any) -> "Region":
        return replace(self, **changes)

    def weighing(self, **weights: float) -> "Region":
        """The same with these scores alone."""
        return self.but(policy=self.policy.model_copy(update={"weights": weights}))

    def sampling(self, candidates: int) -> "Region":
        changed = self.policy.sampling.model_copy(update={"candidates": candidates})
        return self.but(policy=self.policy.model_copy(update={"sampling": changed}))

    def snapshot(self) -> Snapshot:
        return self.settle(Snapshot.empty(REGION), self.nodes)

    def settle(self, snapshot: Snapshot, nodes: Sequence[NodeFacts]) -> Snapshot:
        """Puts the nodes and everything else of the region into a snapshot."""
        snapshot.epoch, snapshot.now, snapshot.version = EPOCH, NOW, 7
        snapshot.is_open, snapshot.room = self.is_open, self.room
        snapshot.grants = {} if self.grant is None else {TENANT: (self.grant, self.in_use)}
        snapshot.put(nodes)
        return snapshot

    def decide(self, asked: PlacementRequest) -> Proposal:
        return decide(self.snapshot(), asked, self.policy, policy_revision=1)


def region(*nodes: NodeFacts, **values: Any) -> Region:
    return Region(nodes=nodes, **values)


def places(proposal: Proposal) -> dict[int, str]:
    return {assignment.slot: str(assignment.node) for assignment in proposal.assignments}


def said(proposal: Proposal) -> str:
    """The sentence of what waits."""
    assert proposal.pending is not None
    return proposal.pending.sentence


def rejected(proposal: Proposal) -> dict[str, int]:
    """The account of the decision: nodes by words."""
    return {line.words: line.nodes for line in proposal.evidence.rejections}

"""Builds small authorities in which a test shows only what matters to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from durable.authority.commit.regional_commit import commit_intents
from durable.authority.db.connection import Databases
from durable.authority.fleet.node_sessions import register_nodes
from durable.authority.fleet.policies import publish_policy, set_policy_state
from durable.authority.fleet.regions import add_region
from durable.authority.quota.budgets import set_budget
from durable.authority.quota.quotas import set_quota
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.slots.assignment import Division
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.workloads.admission import AdmissionRequest, Divide
from durable.authority.workloads.admission_queue import admit_workloads
from durable.model.fleet.labels import LabelKey, LabelValue
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import (
    ActorId,
    BudgetId,
    DeviceId,
    NodeId,
    PoolId,
    RegionId,
    TenantId,
    WorkloadName,
    ZoneId,
)
from durable.model.operators.rights import OperatorMessage
from durable.model.placement.intents import (
    AnyIntent,
    Bind,
    Evict,
    Expire,
    Granted,
    Refused,
    Release,
    ReleaseCause,
    Reserve,
    Start,
)
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import Capacity, Resources
from durable.model.states import PolicyState
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest
from durable.scheduling.policies import first_policy

EAST, WEST = RegionId("us-east"), RegionId("us-west")
RISK, BILLING = TenantId("risk"), TenantId("billing")
API = WorkloadName("api")
TEST = ActorId("test")
FIRST_DIVISION = Division(revision=1, generation=1)
T0 = datetime(2030, 1, 1, tzinfo=UTC)


_MOVED = text("""
    INSERT INTO regional.shares
           (region, tenant, workload, generation, revision, slots, spec, incident, moved)
    VALUES (:region, 'risk', 'api', 1, 1, :slots, '{}', :incident, :slots)
        ON CONFLICT (region, tenant, workload, generation) DO UPDATE
       SET incident = excluded.incident, moved = excluded.moved
""")


def seconds(count: float) -> datetime:
    """A moment of the test's own clock."""
    return T0 + timedelta(seconds=count)


def node(name: str = "n1", **overrides: Any) -> NodeSpec:
    gpus = overrides.pop("gpus", 0)
    values: dict[str, Any] = {
        "region": EAST,
        "zone": ZoneId("a"),
        "pool": PoolId("general"),
        "capacity": Capacity(cpu_millis=8000, memory_mib=32_768, gpus=gpus),
        "devices": tuple(DeviceId(f"gpu-{number}") for number in range(gpus)),
        "labels": {},
        "taints": (),
        "dedicated_to": None,
    }
    return NodeSpec(id=NodeId(name), **{**values, **overrides})


def labels(**pairs: str) -> Mapping[LabelKey, LabelValue]:
    return {LabelKey(key): LabelValue(value) for key, value in pairs.items()}


def workload_message(
    name: str,
    request: str,
    actor: ActorId = TEST,
    *,
    workload: str = "risk/api",
    reason: str = "a test",
    **content: Any,
) -> OperatorMessage:
    """What somebody sends to a workload, without a signature."""
    return OperatorMessage.unsigned(
        f"workload/{workload}", name, actor=actor, reason=reason, request_id=request, **content
    )


def apply_message(
    manifest: WorkloadManifest, request: str, actor: ActorId = TEST
) -> OperatorMessage:
    name, content = f"{manifest.tenant}/{manifest.name}", manifest.model_dump(mode="json")
    return workload_message("apply", request, actor, workload=name, manifest=content)


async def admit_workload(
    databases: Databases,
    manifest: WorkloadManifest,
    *,
    request: str,
    actor: ActorId,
    divide: Divide,
) -> AdmittedWorkload:
    """Admits one manifest; raises its refusal."""
    message = apply_message(manifest, request, actor)
    admission = AdmissionRequest(manifest, message, divide)
    (result,) = await admit_workloads(databases, [admission])
    if isinstance(result, Refusal):
        raise RefusedError(result.code, result.sentence)
    return result.answer


@dataclass
class World:
    """An authority with one open region, one ready node and one tenant, unless stated otherwise."""

    databases: Databases
    region: RegionId = EAST
    now: datetime = T0
    epoch: int = 1
    sessions: dict[str, int] = field(default_factory=dict[str, int])

    async def with_region(self, region: RegionId = EAST) -> "World":
        await add_region(self.databases, region, TEST)
        first = first_policy().model_dump(mode="json")
        await publish_policy(self.databases, 1, first, TEST, phase=PolicyPhase.EVERYWHERE)
        await set_policy_state(self.databases, region, 1, PolicyState.ACTIVE, TEST)
        return self

    async def with_nodes(
        self, *nodes: NodeSpec, lease_seconds: int = 600, region: RegionId = EAST
    ) -> "World":
        begun = await register_nodes(
            self.databases,
            region,
            nodes or (node(),),
            epoch=self.epoch,
            lease_ttl_seconds=lease_seconds,
            now=self.now,
        )
        self.sessions.update({str(name): session for name, session in begun.items()})
        return self

    async def with_tenant(
        self,
        tenant: TenantId = RISK,
        grant: Resources | None = None,
        region: RegionId = EAST,
    ) -> "World":
        amount = grant or Resources.of(100_000, 1_000_000, 100)
        await set_quota(self.databases, tenant, hard=amount * 2, actor=TEST)
        await transfer_grant(
            self.databases,
            GrantTransfer(
                id=f"seed/{tenant}/{region}",
                tenant=tenant,
                amount=amount,
                to_region=region,
                actor=TEST,
            ),
        )
        return self

    async def with_slots(
        self, count: int = 8, tenant: TenantId = RISK, region: RegionId = EAST
    ) -> "World":
        registry = SlotRegistry(self.databases, tenant, API, FIRST_DIVISION)
        await registry.assign(range(count), region, transfer=f"seed/{tenant}")
        return self

    async def with_headroom(self, amount: Resources, expires_in: int = 600) -> "World":
        await set_budget(
            self.databases,
            self.region,
            BudgetId("headroom"),
            amount,
            expires_at=self.now + timedelta(seconds=expires_in),
            actor=TEST,
        )
        return self

    async def with_moved(
        self, incident: str, slots: Sequence[int] = range(8), region: RegionId = EAST
    ) -> "World":
        """A share of risk/api whose slots this incident's recovery moved to the region."""
        async with self.databases.at_region(region, "durable_workload").begin() as connection:
            await connection.execute(
                _MOVED, {"region": region, "incident": incident, "slots": list(slots)}
            )
        return self

    async def ready(self, *nodes: NodeSpec) -> "World":
        """The usual world: a region, its nodes, one tenant with room, eight slots."""
        await self.with_region()
        await self.with_nodes(*nodes)
        await self.with_tenant()
        return await self.with_slots()

    async def with_two_regions(self) -> "World":
        """us-east with node e1 and us-west with node w1, and one tenant with grants in both."""
        for region, name in ((EAST, "e1"), (WEST, "w1")):
            await self.with_region(region)
            await self.with_nodes(node(name, region=region), region=region)
            await self.with_tenant(region=region)
        return self

    def at(self, region: RegionId, epoch: int = 1) -> "World":
        """The same world, with intents that go to this region."""
        return replace(self, region=region, epoch=epoch)

    # ── intents ─────────────────────────────────────────────────────────────────────────────────

    def _base(self, slot: int, overrides: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "region": self.region,
            "tenant": RISK,
            "workload": API,
            "generation": 1,
            "slot": slot,
            "attempt": 1,
            "epoch": self.epoch,
            "actor": TEST,
            "evidence": "asked by a test",
            **overrides,
        }

    def reserve(self, slot: int = 0, node: str = "n1", **overrides: Any) -> Reserve:
        values: dict[str, Any] = {
            "node": NodeId(node),
            "resources": Resources.of(1000, 1024),
            "priority": 100,
            "policy_revision": 1,
            "lease_ttl_seconds": 30,
        }
        return Reserve(**self._base(slot, {**values, **overrides}))

    def bind(self, token: int, slot: int = 0, **overrides: Any) -> Bind:
        return Bind(**self._base(slot, {"token": token, **overrides}))

    def start(self, token: int, slot: int = 0, **overrides: Any) -> Start:
        return Start(**self._base(slot, {"token": token, **overrides}))

    def evict(self, token: int, slot: int = 0, **overrides: Any) -> Evict:
        return Evict(**self._base(slot, {"token": token, **overrides}))

    def expire(self, token: int, slot: int = 0, **overrides: Any) -> Expire:
        return Expire(**self._base(slot, {"token": token, **overrides}))

    def release(
        self,
        token: int,
        slot: int = 0,
        cause: ReleaseCause = ReleaseCause.WITHDRAWN,
        **overrides: Any,
    ) -> Release:
        return Release(**self._base(slot, {"token": token, "cause": cause, **overrides}))

    # ── sending them ────────────────────────────────────────────────────────────────────────────

    async def send(self, *intents: AnyIntent) -> list[Granted | Refused]:
        engine = self.databases.at_region(self.region, "durable_commit")
        return await commit_intents(engine, self.region, intents, now=self.now)

    async def granted(self, intent: AnyIntent) -> Granted:
        (outcome,) = await self.send(intent)
        assert isinstance(outcome, Granted), outcome
        return outcome

    async def refused(self, intent: AnyIntent) -> RefusalCode:
        (outcome,) = await self.send(intent)
        assert isinstance(outcome, Refused), outcome
        return outcome.refusal.code

    async def running(self, slot: int = 0, **overrides: Any) -> int:
        """A slot that was reserved, bound and started; answers its token."""
        token = (await self.granted(self.reserve(slot, **overrides))).token
        identity = {k: v for k, v in overrides.items() if k in ("tenant", "attempt", "generation")}
        await self.granted(self.bind(token, slot, **identity))
        await self.granted(self.start(token, slot, **identity))
        return token

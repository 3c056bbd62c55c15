"""Everything that a control plane does again and again, as one life of a workload after the other.

Each step is the function that workers, controllers and agents call, on a real authority.
"""

import time
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from durable.authority.audit import chain as audit
from durable.authority.cache.region_read import read_changes, read_whole
from durable.authority.commit.regional_commit import commit_intents
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.assignments import read_assignments
from durable.authority.fleet.node_life import judge_nodes
from durable.authority.fleet.node_sessions import (
    read_region_lease,
    register_nodes,
    renew_leases,
)
from durable.authority.fleet.observations import Observation, observe
from durable.authority.fleet.policies import publish_policy, set_policy_state
from durable.authority.fleet.regions import add_region, read_region
from durable.authority.overrides.reads import obeyed_overrides
from durable.authority.overrides.rows import read_overrides
from durable.authority.policies.rows import unfinished_policies
from durable.authority.queue.decisions import record_decisions
from durable.authority.queue.requests import read_queue, write_requests
from durable.authority.quota.quotas import set_quota
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.claims import ClaimFilter, read_claims, read_lapsed_reservations
from durable.authority.reads.placements import PlacementRead, PlacementReader
from durable.authority.reads.replicas import read_replicas
from durable.authority.reads.share_feed import ShareFeed
from durable.authority.recovery.readiness import read_recoverable
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.recovery.region_leases import renew
from durable.authority.recovery.signs import read_node_signs
from durable.authority.slots.assignment import Division
from durable.authority.slots.reconciliation import SlotQueue, reconcile_slots
from durable.authority.slots.shares import Publication, PublishedShare, open_shares, publish
from durable.authority.workloads.admission import AdmissionRequest
from durable.authority.workloads.admission_queue import admit_workloads
from durable.authority.workloads.deletion import finish_delete, request_delete
from durable.authority.workloads.rollouts import read_to_divide
from durable.authority.workloads.rows import live_workloads
from durable.controllers.quota import QuotaController
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import ActorId, NodeId, PoolId, RegionId, TenantId, WorkloadName, ZoneId
from durable.model.operators.rights import OperatorMessage
from durable.model.placement.intents import (
    AnyIntent,
    Bind,
    Evict,
    Granted,
    Release,
    ReleaseCause,
    Reserve,
    Start,
)
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.records import Decision
from durable.model.placement.request import SchedulingRequest
from durable.model.resources import Capacity, Resources
from durable.model.states import ObservedState, PolicyState, RequestState
from durable.model.work.share import DesiredShare
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from durable.signals.names import workload_id

T = TypeVar("T")

REGION, TENANT, ACTOR = RegionId("us-east"), TenantId("bench"), ActorId("bench")
# Lives through all of it, and owns a tenth of the past.
LIVING = WorkloadName("living")
NODES, SLOTS = 100, 50
SIZE = Resources.of(100, 128)
QUOTA = Resources.of(2_000_000, 4_000_000)
SPEC = WorkloadSpec(replicas=SLOTS, resources=SIZE)


async def build(databases: Databases) -> None:
    """A region with nodes, a tenant with room, and one workload that runs."""
    await add_region(databases, REGION, ACTOR)
    await publish_policy(databases, 1, {}, ACTOR)
    await set_policy_state(databases, REGION, 1, PolicyState.ACTIVE, ACTOR)
    await set_quota(databases, TENANT, hard=QUOTA, actor=ACTOR)
    first = GrantTransfer(id="seed", tenant=TENANT, amount=QUOTA, to_region=REGION, actor=ACTOR)
    await transfer_grant(databases, first)
    await Lives(databases).begin(LIVING)


class Lives:
    """Lives of workloads, one after the other; `seconds` has what each kind of step took."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._feed = ShareFeed(databases, REGION)
        self._quota = QuotaController(databases)
        self._sessions: dict[NodeId, int] = {}
        self._version = 0
        self.seconds: dict[str, list[float]] = {}

    async def _timed(self, what: str, step: Awaitable[T]) -> T:
        began = time.perf_counter()
        result = await step
        self.seconds.setdefault(what, []).append(time.perf_counter() - began)
        return result

    async def whole(self, workload: WorkloadName) -> None:
        """From the first apply to nothing."""
        claims = await self.begin(workload)
        await self._follow(workload)
        await self._end(workload, claims)

    async def begin(self, workload: WorkloadName) -> list[Granted]:
        """Applied, divided, decided, reserved, bound, started and serving."""
        databases = self._databases
        if not self._sessions:
            await self._register()
        await self._feed.changed()
        await self._timed("admission", self._admit(workload))
        await self._timed("division", self._divide(workload, range(SLOTS), revision=1))
        share = DesiredShare(revision=1, slots=tuple(range(SLOTS)), spec=SPEC)
        published = PublishedShare(TENANT, workload, 1, share)
        await publish(databases, REGION, [Publication(TENANT, workload, 1, 0, (published,))])
        waiting = _request(workload, RequestState.PENDING, waiting=SLOTS)
        await write_requests(databases, REGION, [waiting])
        await self._timed("wakeup", read_queue(databases, REGION))
        await self._timed("quota controller", self._quota.once(time.monotonic()))
        await record_decisions(databases, REGION, [_decision(workload)])
        region = await read_region(databases, REGION)
        self._version = region.version
        claims = await self._timed("commit", self._commit(workload))
        placed = _request(workload, RequestState.PLACED, waiting=0)
        await write_requests(databases, REGION, [placed])
        await self._report(claims, ObservedState.SERVING, sequence=1)
        return claims

    async def _follow(self, workload: WorkloadName) -> None:
        databases = self._databases
        await self._timed("status feed", self._feed.changed())
        await self._timed("status sweep", self._feed.everything())
        await self._timed("cache", read_changes(databases, REGION, self._version))
        await read_whole(databases, REGION)
        look = read_assignments(databases, REGION, None, since=self._version)
        await self._timed("agent's look", look)
        nodes = list(self._sessions)[:3]
        await self._timed("agent's resync", read_assignments(databases, REGION, nodes))
        await read_assignments(databases, REGION, None)
        await renew_leases(databases, REGION, self._sessions, lease_ttl_seconds=3600)
        async with PlacementReader(databases, REGION) as placements:
            read = PlacementRead(TENANT, workload, 1, known_revision=0, with_past=True)
            await self._timed("placement's look", placements.facts(read))
        division = read_replicas(databases, REGION, TENANT, workload, failures_of=1, also=1)
        await self._timed("division's look", division)
        await read_to_divide(databases, TENANT, workload)
        await self._timed("reconciler", self._look_for_missing())
        await self._timed("audit", self._audit(workload))
        reaped = read_lapsed_reservations(databases, REGION, grace_seconds=0, most=100)
        assert await self._timed("reaper", reaped) == []
        await self._timed("node life", judge_nodes(databases, REGION, grace_seconds=30))
        await self._timed("region lease", renew(databases, REGION, "bench", lease_seconds=3600))
        await read_region_lease(databases, REGION)

    async def _look_for_missing(self) -> None:
        await live_workloads(self._databases)
        await open_shares(self._databases, REGION)
        await read_overrides(self._databases)
        await obeyed_overrides(self._databases, REGION)
        await unfinished_policies(self._databases)
        await list_recoveries(self._databases)
        await read_facts(self._databases)
        await read_node_signs(self._databases, REGION, 300.0)
        await read_recoverable(self._databases, [(TENANT, WorkloadName("any"))])

    async def _end(self, workload: WorkloadName, claims: Sequence[Granted]) -> None:
        """Deleted: every slot is stopped, released and given up."""
        await self._timed(f"delete of {SLOTS} slots", self._delete(workload, claims))
        await self._feed.changed()

    async def _delete(self, workload: WorkloadName, claims: Sequence[Granted]) -> None:
        databases, of = self._databases, (TENANT, workload)
        await request_delete(databases, *of, _message(workload, "delete"))
        await self._send(
            [Evict(**_step(workload, claim, slot)) for slot, claim in _by_slot(claims)]
        )
        await read_claims(databases, REGION, ClaimFilter(tenant=TENANT, workload=workload))
        await self._report(claims, ObservedState.STOPPED, sequence=2)
        cause = ReleaseCause.STOPPED
        await self._send(
            [
                Release(**_step(workload, claim, slot), cause=cause)
                for slot, claim in _by_slot(claims)
            ]
        )
        await self._divide(workload, (), revision=2)
        await write_requests(databases, REGION, [_request(workload, RequestState.WITHDRAWN)])
        await finish_delete(databases, *of, generation=1, actor=ACTOR)

    async def _register(self) -> None:
        epoch = (await read_region(self._databases, REGION)).epoch
        nodes = [_node(number) for number in range(NODES)]
        self._sessions = await register_nodes(
            self._databases, REGION, nodes, epoch=epoch, lease_ttl_seconds=3600
        )

    async def _admit(self, workload: WorkloadName) -> None:
        manifest = WorkloadManifest(tenant=TENANT, name=workload, spec=SPEC)
        share = {REGION: tuple(range(SLOTS))}
        request = AdmissionRequest(manifest, _message(workload, "apply"), lambda _: share)
        await admit_workloads(self._databases, [request])

    async def _divide(self, workload: WorkloadName, slots: Sequence[int], *, revision: int) -> None:
        async with SlotQueue(self._databases) as queue:
            waits = await reconcile_slots(
                queue,
                TENANT,
                workload,
                {REGION: tuple(slots)},
                transfer=f"r{revision}",
                division=Division(revision, 1),
                actor=ACTOR,
            )
        assert waits == [], waits

    async def _commit(self, workload: WorkloadName) -> list[Granted]:
        """Reserve, bind and start, each for all slots in one transaction."""
        claims = await self._send([_reserve(workload, slot) for slot in range(SLOTS)])
        for kind in (Bind, Start):
            await self._send([kind(**_step(workload, claim, s)) for s, claim in _by_slot(claims)])
        return claims

    async def _send(self, intents: Sequence[AnyIntent]) -> list[Granted]:
        engine = self._databases.at_region(REGION, "durable_commit")
        outcomes = await commit_intents(engine, REGION, intents)
        granted = [outcome for outcome in outcomes if isinstance(outcome, Granted)]
        assert len(granted) == len(intents), outcomes
        return granted

    async def _report(
        self, claims: Sequence[Granted], state: ObservedState, *, sequence: int
    ) -> None:
        reports = [
            Observation(
                token=claim.token,
                node=claim.node,
                session=self._sessions[claim.node],
                sequence=sequence,
                state=state,
                evidence="bench",
            )
            for claim in claims
        ]
        refusals = await observe(self._databases, REGION, reports, observer=ACTOR)
        assert not any(refusals), refusals

    async def _audit(self, workload: WorkloadName) -> None:
        event = audit.Event(
            actor=ACTOR, action="accept message hold", target=f"placement/{workload}", after={}
        )
        engine = self._databases.at_region(REGION, "durable_placement")
        append = partial(audit.append_all, chain=REGION, events=[event])
        await transact(engine, append, doing="audit")


def _message(workload: WorkloadName, name: str) -> OperatorMessage:
    to = workload_id(TENANT, workload)
    return OperatorMessage.unsigned(to, name, actor=ACTOR, reason="over", request_id=name)


def _by_slot(claims: Sequence[Granted]) -> list[tuple[int, Granted]]:
    return list(enumerate(claims))


def _step(workload: WorkloadName, claim: Granted, slot: int) -> dict[str, Any]:
    return {**_intent(workload, slot), "token": claim.token}


def _intent(workload: WorkloadName, slot: int) -> dict[str, Any]:
    return {
        "region": REGION, "tenant": TENANT, "workload": workload, "generation": 1, "slot": slot,
        "attempt": 1_000_000, "epoch": 1, "actor": ACTOR, "evidence": "bench",
    }  # fmt: skip


def _reserve(workload: WorkloadName, slot: int) -> Reserve:
    return Reserve.model_validate(
        {
            **_intent(workload, slot),
            "node": f"node-{slot % NODES:03}",
            "resources": SIZE,
            "priority": 100,
            "policy_revision": 1,
            "lease_ttl_seconds": 3600,
        }
    )


def _node(number: int) -> NodeSpec:
    return NodeSpec(
        id=NodeId(f"node-{number:03}"),
        region=REGION,
        zone=ZoneId(f"z{number % 3}"),
        pool=PoolId("general"),
        capacity=Capacity(cpu_millis=64_000, memory_mib=262_144),
        devices=(),
        labels={},
        taints=(),
        dedicated_to=None,
    )


def _request(workload: WorkloadName, state: RequestState, waiting: int = 0) -> SchedulingRequest:
    now = datetime.now(UTC)
    return SchedulingRequest(
        region=REGION,
        tenant=TENANT,
        workload=workload,
        generation=1,
        slots=tuple(range(SLOTS)),
        priority=100,
        state=state,
        pending=Pending(code=PendingCode.QUEUED) if waiting else None,
        enqueued_at=now,
        deadline=now + timedelta(hours=1),
        spec=SPEC,
        waiting=waiting,
    )


def _decision(workload: WorkloadName) -> Decision:
    return Decision(
        region=REGION,
        tenant=TENANT,
        workload=workload,
        generation=1,
        attempt=1_000_000,
        policy_revision=1,
        cache_version=1,
        evidence={},
        decided_at=datetime.now(UTC),
    )

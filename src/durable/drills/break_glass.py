"""Opens a gate: work passes a cordon, capacity holds as ever, and the gate closes again."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

from durable.authority.cache.region_read import read_whole
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.overrides.rows import read_override
from durable.client import Durable
from durable.drills.checks import audit_tells, becomes, invariants_hold, is_refused
from durable.drills.drill import Expectation
from durable.drills.people import (
    OF_TWO_PEOPLE,
    revoke,
    signed,
    temporary_person,
    two_approve,
    without_key,
)
from durable.drills.world import World, busiest_region, small_workload
from durable.explain.attempts import AttemptExplanation
from durable.explain.explanation import RegionExplanation
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId, OverrideId, RegionId, TenantId
from durable.model.operators.rights import Right, Scope, Verb
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import BindingState
from durable.scheduling.snapshot.region import NodeFacts
from durable.signals.names import override_id
from durable.state_dir.record import StackError
from durable.temporal.overrides import new_id
from durable.validation.value import Value

WORKLOAD = "break-glass-drill"
WHY = "drill: break glass"
# If the drill is killed, its overrides end by themselves.
LASTS = timedelta(minutes=15)
WITHIN_SECONDS = 120.0
KIND, GATES = "break-glass", {"gates": ["cordon"]}
CORDON = (PendingCode.NODES_UNAVAILABLE,)
# Whichever is found first: the node, the quota and what is kept for recovery hold as ever.
SAFETY = (PendingCode.CAPACITY, PendingCode.GRANT, PendingCode.HEADROOM)
MEMORY_MIB, LEAST_CPU_MILLIS = 64, 100
REPLICAS = 2
TOLD = ("reject message propose", *OF_TWO_PEOPLE)


class Site(Value):
    """The only node on which the drill's work may run, of which one replica takes most."""

    tenant: TenantId
    region: RegionId
    node: NodeId
    cpu_millis: int

    @property
    def target(self) -> NodesTarget:
        return NodesTarget.of_node(self.region, self.node)

    @property
    def work(self) -> dict[str, str]:
        return {"tenant": self.tenant, "workload": WORKLOAD, "region": self.region}

    @property
    def manifest(self) -> dict[str, object]:
        """Nothing yet: only what exists can be pinned to a node."""
        return small_workload(
            self.tenant, WORKLOAD, replicas=0, cpu_millis=self.cpu_millis, regions=[self.region]
        )


async def run(world: World) -> AsyncIterator[Expectation]:
    """Two replicas wait for a cordoned node that has room for one of them."""
    durable = world.durable
    site = await _find_site(world)
    approver = Right(verb=Verb.APPROVE, scope=Scope(region=site.region))
    async with (
        signed(durable),
        temporary_person(durable, approver) as second,
        _kept_waiting(world, site),
    ):
        waits = f"{REPLICAS} replicas of {site.tenant}/{WORKLOAD} wait: {site.node} is cordoned"
        yield await _waits(world, site, waits, REPLICAS, CORDON)
        glass = new_id(KIND)
        yield await is_refused(
            "break-glass without a signature is refused",
            RefusalCode.SIGNATURE_MISSING,
            _propose(without_key(durable), site, glass),
        )
        if await read_override(durable.databases, glass) is None:  # as it has to be
            await _propose(durable, site, glass)
        override = await durable.overrides.read(glass)
        async for expectation in two_approve(world, second, override, reason=WHY):
            yield expectation
        yield await _serves(world, site, "one replica passes the cordon and serves")
        full = "the other still waits: no gate makes room where there is none"
        yield await _waits(world, site, full, 1, SAFETY)
        yield await revoke(world, override, reason=WHY)
        yield await _serves(world, site, "the replica that passed goes on")
        closed = "the gate is closed: the other waits for the cordon again"
        yield await _waits(world, site, closed, 1, CORDON)
        yield await audit_tells(world, override_id(glass), TOLD)
        yield await invariants_hold(world)


async def _propose(person: Durable, site: Site, name: OverrideId) -> None:
    await person.overrides.create(KIND, site.work, effect=GATES, ttl=LASTS, reason=WHY, id=name)


async def _find_site(world: World) -> Site:
    """The fullest node that still takes work, where most of the most important service runs."""
    subject = await world.subject()
    region = busiest_region(subject)
    nodes = [
        node
        for node in (await read_whole(world.databases, region)).nodes
        if _takes_work(node, subject.tenant)
    ]
    if not nodes:
        raise StackError(
            f"No node of {region} has room for the drill's work, so nothing could pass a gate: "
            "see durable get nodes."
        )
    node = min(nodes, key=lambda each: (_free(each), each.node))
    return Site(
        tenant=subject.tenant,
        region=region,
        node=NodeId(node.node),
        # More than half: the node has room for one, and never for two.
        cpu_millis=_free(node) * 3 // 5,
    )


def _takes_work(node: NodeFacts, tenant: TenantId) -> bool:
    is_open = node.ready and not node.cordoned and not node.taints
    has_room = _free(node) >= 2 * LEAST_CPU_MILLIS and _free(node, 1) >= REPLICAS * MEMORY_MIB
    return is_open and has_room and node.dedicated_to in (None, tenant)


def _free(node: NodeFacts, dimension: int = 0) -> int:
    return node.capacity[dimension] - node.used[dimension]


@asynccontextmanager
async def _kept_waiting(world: World, site: Site) -> AsyncGenerator[None]:
    """Work that may run on one node only, which is cordoned; afterwards there is no trace of it."""
    durable, pin = world.durable, new_id("pin")
    async with AsyncExitStack() as after:
        # All of it first: an interruption may come after a step was made.
        after.push_async_callback(
            uncordon_nodes, world.databases, site.target, actor=durable.actor, reason=WHY
        )
        after.push_async_callback(_revoke, durable, pin)
        await after.enter_async_context(world.removed_afterwards(site.tenant, WORKLOAD, reason=WHY))
        await durable.apply(site.manifest, reason=WHY)
        where = {**site.work, "node": site.node}
        await durable.overrides.create("pin", where, ttl=LASTS, reason=WHY, id=pin)
        await cordon_nodes(world.databases, site.target, actor=durable.actor, reason=WHY)
        await durable.scale(site.tenant, WORKLOAD, REPLICAS, reason=WHY)
        yield


async def _revoke(durable: Durable, pin: OverrideId) -> None:
    with suppress(RefusedError):
        await durable.overrides.revoke(pin, reason=WHY)


async def _waits(
    world: World, site: Site, what: str, replicas: int, codes: Collection[PendingCode]
) -> Expectation:
    """By the newest decision that was recorded, which says what so many replicas wait for."""

    async def last() -> AttemptExplanation | None:
        return next(reversed((await _explained(world, site)).attempts), None)

    def is_so(decision: AttemptExplanation | None) -> bool:
        if decision is None or decision.pending is None:
            return False
        return len(decision.unplaced) == replicas and decision.pending.code in codes

    def seen(decision: AttemptExplanation | None) -> str:
        pending = None if decision is None else decision.pending
        if pending is None:
            return "nothing is known to wait"
        return pending.code if is_so(decision) else str(pending)

    return await becomes(what, last, is_so, WITHIN_SECONDS, seen)


async def _serves(world: World, site: Site, what: str) -> Expectation:
    async def serving() -> list[NodeId]:
        observed = (await _explained(world, site)).observed
        return [slot.node for slot in observed if slot.state is BindingState.SERVING]

    return await becomes(
        what, serving, lambda nodes: nodes == [site.node], WITHIN_SECONDS, ", ".join
    )


async def _explained(world: World, site: Site) -> RegionExplanation:
    """As `durable explain` has it, all from the authority."""
    explanation = await world.durable.explain(site.tenant, WORKLOAD)
    return next(each for each in explanation.regions if each.region == site.region)

"""Opens a gate: work passes a cordon, capacity holds as ever, and the gate closes again."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

from durable.authority.cache.region_read import read_whole
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.overrides.rows import read_override
from durable.client import Durable, WaitTimeoutError
from durable.drills import two_people
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.expectations import audit_tells, invariants_hold, is_refused
from durable.drills.people import temporary_person, without_key
from durable.drills.signing import signed
from durable.drills.subject import busiest_region, find_subject
from durable.drills.world import World
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
TOLD = ("reject message propose", *two_people.TOLD)


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
    def spec(self) -> dict[str, object]:
        """Nothing yet: only what exists can be pinned to a node."""
        size = {"cpu": f"{self.cpu_millis}m", "memory": f"{MEMORY_MIB}Mi"}
        return {"replicas": 0, "resources": size, "requirements": {"regions": [self.region]}}


async def run(world: World) -> AsyncIterator[Expectation]:
    """Two replicas wait for a cordoned node that has room for one of them."""
    durable = world.durable
    site = await _find_site(durable)
    approver = Right(verb=Verb.APPROVE, scope=Scope(region=site.region))
    async with (
        signed(durable),
        temporary_person(durable, approver) as second,
        _kept_waiting(durable, site),
    ):
        waits = f"{REPLICAS} replicas of {site.tenant}/{WORKLOAD} wait: {site.node} is cordoned"
        yield await _waits(durable, site, waits, REPLICAS, CORDON)
        glass = new_id(KIND)
        yield await is_refused(
            "break-glass without a signature is refused",
            RefusalCode.SIGNATURE_MISSING,
            _propose(without_key(durable), site, glass),
        )
        if await read_override(durable.databases, glass) is None:  # as it has to be
            await _propose(durable, site, glass)
        override = await durable.overrides.read(glass)
        async for one in two_people.approve(durable, second, override, reason=WHY):
            yield one
        yield await _serves(durable, site, "one replica passes the cordon and serves")
        full = "the other still waits: no gate makes room where there is none"
        yield await _waits(durable, site, full, 1, SAFETY)
        yield await two_people.revoke(durable, override, reason=WHY)
        yield await _serves(durable, site, "the replica that passed goes on")
        closed = "the gate is closed: the other waits for the cordon again"
        yield await _waits(durable, site, closed, 1, CORDON)
        yield await audit_tells(durable, override_id(glass), TOLD)
        yield await invariants_hold(durable)


async def _propose(person: Durable, site: Site, name: OverrideId) -> None:
    await person.overrides.create(KIND, site.work, effect=GATES, ttl=LASTS, reason=WHY, id=name)


async def _find_site(durable: Durable) -> Site:
    """The fullest node that still takes work, where most of the most important service runs."""
    subject = await find_subject(durable)
    region = busiest_region(subject)
    found = [
        node
        for node in (await read_whole(durable.databases, region)).nodes
        if _takes_work(node, subject.tenant)
    ]
    if not found:
        raise StackError(
            f"No node of {region} has room for the drill's work, so nothing could pass a gate: "
            "see durable get nodes."
        )
    node = min(found, key=lambda one: (_free(one), one.node))
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
async def _kept_waiting(durable: Durable, site: Site) -> AsyncGenerator[None]:
    """Work that may run on one node only, which is cordoned; afterwards there is no trace of it."""
    pin, databases, by = new_id("pin"), durable.databases, durable.actor
    uncordon = partial(uncordon_nodes, databases, site.target, actor=by, reason=WHY)
    async with AsyncExitStack() as after:
        # All of it first: whoever interrupts a step may do so after it was made.
        after.push_async_callback(_is_gone, durable, site)
        after.push_async_callback(uncordon)
        after.push_async_callback(_revoke, durable, pin)
        after.push_async_callback(_delete, durable, site)
        await durable.apply(
            {"tenant": site.tenant, "name": WORKLOAD, "spec": site.spec}, reason=WHY
        )
        where = {**site.work, "node": site.node}
        await durable.overrides.create("pin", where, ttl=LASTS, reason=WHY, id=pin)
        await cordon_nodes(databases, site.target, actor=by, reason=WHY)
        await durable.scale(site.tenant, WORKLOAD, REPLICAS, reason=WHY)
        yield


async def _delete(durable: Durable, site: Site) -> None:
    with suppress(RefusedError):
        await durable.delete(site.tenant, WORKLOAD, reason=WHY)


async def _revoke(durable: Durable, pin: OverrideId) -> None:
    with suppress(RefusedError):
        await durable.overrides.revoke(pin, reason=WHY)


async def _is_gone(durable: Durable, site: Site) -> None:
    with suppress(RefusedError, WaitTimeoutError):  # what is left is said
        await durable.wait(
            site.tenant, WORKLOAD, until="deleted", within_seconds=two_people.WITHIN_SECONDS
        )


async def _waits(
    durable: Durable, site: Site, what: str, replicas: int, codes: Collection[PendingCode]
) -> Expectation:
    """By the newest decision that was recorded, which says what so many replicas wait for."""

    async def last() -> AttemptExplanation | None:
        return next(reversed((await _explained(durable, site)).attempts), None)

    async def is_so() -> bool:
        decided = await last()
        if decided is None or decided.pending is None:
            return False
        return len(decided.unplaced) == replicas and decided.pending.code in codes

    met, decided = await come_true(is_so, WITHIN_SECONDS), await last()
    pending = None if decided is None else decided.pending
    if pending is None:
        return Expectation(what=what, met=met, seen="nothing is known to wait")
    return Expectation(what=what, met=met, seen=pending.code if met else str(pending))


async def _serves(durable: Durable, site: Site, what: str) -> Expectation:
    async def serving() -> list[NodeId]:
        observed = (await _explained(durable, site)).observed
        return [one.node for one in observed if one.state is BindingState.SERVING]

    async def is_so() -> bool:
        return await serving() == [site.node]

    met = await come_true(is_so, WITHIN_SECONDS)
    return Expectation(what=what, met=met, seen=", ".join(await serving()))


async def _explained(durable: Durable, site: Site) -> RegionExplanation:
    """As `durable explain` has it, all from the authority."""
    explained = await durable.explain(site.tenant, WORKLOAD)
    return next(one for one in explained.regions if one.region == site.region)


DRILL = Drill(
    name="break-glass",
    sentence="Open a gate: work passes a cordon, capacity holds as ever, the gate closes again.",
    runbook="runbooks/break-glass.md",
    run=run,
)

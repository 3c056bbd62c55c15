"""Keeps capacity for an incident: two people agree to it, only that gets it, and it ends."""

from collections.abc import AsyncIterator
from datetime import timedelta

from durable.authority.cache.region_read import read_whole
from durable.authority.quota.budgets import find_draw, list_budgets
from durable.authority.recovery.region_facts import read_facts
from durable.drills.checks import audit_tells, invariants_hold
from durable.drills.drill import Expectation
from durable.drills.people import OF_TWO_PEOPLE, revoke, signed, temporary_person, two_approve
from durable.drills.world import World
from durable.model.ids import IncidentId, RegionId
from durable.model.operators.rights import Right, Scope, Verb
from durable.model.overrides.override import Override
from durable.model.resources import NOTHING, Amounts, Resources, minus, plus, show_amounts
from durable.model.states import NodeState
from durable.signals.names import override_id
from durable.state_dir.record import StackError

# Little: ordinary work has to do without it meanwhile.
AMOUNT = Resources(cpu_millis=1_000, memory_mib=1_024)
# If the drill is killed, it ends by itself.
LASTS = timedelta(minutes=15)
WHY = "drill: recovery override"
SILENT = (NodeState.UNKNOWN, NodeState.LOST)


async def run(world: World) -> AsyncIterator[Expectation]:
    """In the region where most of the most important service runs, for the loss of another."""
    durable = world.durable
    region = await world.busiest_region()
    incident = await _other_loss(world, region)
    approver = Right(verb=Verb.APPROVE, scope=Scope(region=region))
    async with signed(durable), temporary_person(durable, approver) as second:
        before = await _kept(world, region)
        override, _answer = await durable.overrides.create(
            "recovery-budget",
            {"region": region},
            effect={"amount": AMOUNT.model_dump(), "incident": incident},
            ttl=LASTS,
            reason=WHY,
        )
        async for expectation in two_approve(world, second, override, reason=WHY):
            yield expectation
        yield await _is_kept(world, override, region, incident, before)
        yield await _is_for_one_incident(world, region, incident)
        yield await revoke(world, override, reason=WHY)
        kept = await _kept(world, region)
        yield Expectation(
            what=f"ordinary work may use that capacity of {region} again",
            met=kept == before and not await _budgets(world, override, region),
            seen=f"kept for recovery: {show_amounts(before)} before, {show_amounts(kept)} now",
        )
        yield await audit_tells(world, override_id(override.id), OF_TWO_PEOPLE)
    yield await invariants_hold(world)


async def _other_loss(world: World, region: RegionId) -> IncidentId:
    facts = await read_facts(world.databases)
    others = [fact.loss.incident for name, fact in sorted(facts.items()) if name != region]
    if not others:
        raise StackError(f"This stack has no other region than {region} that could be lost.")
    return others[0]


async def _is_kept(
    world: World, override: Override, region: RegionId, incident: IncidentId, before: Amounts
) -> Expectation:
    budgets, kept = await _budgets(world, override, region), await _kept(world, region)
    return Expectation(
        what=f"{region} keeps {AMOUNT} from ordinary work for incident {incident}",
        met=budgets == [(AMOUNT, incident)] and kept == plus(before, AMOUNT.amounts),
        seen=f"kept for recovery: {show_amounts(before)} before, {show_amounts(kept)} now",
    )


async def _is_for_one_incident(world: World, region: RegionId, incident: IncidentId) -> Expectation:
    databases, other = world.databases, IncidentId(f"{incident}-other")
    own = await find_draw(databases, region, incident, AMOUNT)
    others = await find_draw(databases, region, other, AMOUNT)
    return Expectation(
        what="the recovery of that incident may draw on it, and no other",
        met=own is not None and others is None,
        seen="" if own is None else own.budget,
    )


async def _budgets(
    world: World, override: Override, region: RegionId
) -> list[tuple[Resources, IncidentId | None]]:
    """What `durable get budgets` shows of the override."""
    return [
        (budget.amount, budget.incident)
        for budget in await list_budgets(world.databases, region)
        if budget.budget == override_id(override.id)
    ]


async def _kept(world: World, region: RegionId) -> Amounts:
    """What is free on nodes and yet not to be had for ordinary work, at one moment."""
    read = await read_whole(world.databases, region)
    free = NOTHING
    for node in read.nodes:
        free = plus(free, node.capacity) if node.ready else free
        free = free if node.state in SILENT else minus(free, node.used)
    return minus(free, read.room)

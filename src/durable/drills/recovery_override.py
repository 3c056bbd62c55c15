"""Keeps capacity for an incident: two people agree to it, nobody else gets it, and it ends."""

from collections.abc import AsyncIterator
from datetime import timedelta

from durable.authority.cache.region_read import read_whole
from durable.authority.quota.budgets import find_draw, list_budgets
from durable.authority.recovery.region_facts import read_facts
from durable.client import Durable
from durable.drills import two_people
from durable.drills.drill import Drill, Expectation
from durable.drills.expectations import audit_tells, invariants_hold
from durable.drills.people import temporary_person
from durable.drills.signing import signed
from durable.drills.subject import busiest_region, find_subject
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
    region = busiest_region(await find_subject(durable))
    incident = await _other_loss(durable, region)
    approver = Right(verb=Verb.APPROVE, scope=Scope(region=region))
    async with signed(durable), temporary_person(durable, approver) as second:
        before = await _kept(durable, region)
        override, _answer = await durable.overrides.create(
            "recovery-budget",
            {"region": region},
            effect={"amount": AMOUNT.model_dump(), "incident": incident},
            ttl=LASTS,
            reason=WHY,
        )
        async for one in two_people.approve(durable, second, override, reason=WHY):
            yield one
        yield await _is_kept(durable, override, region, incident, before)
        yield await _is_for_one_incident(durable, region, incident)
        yield await two_people.revoke(durable, override, reason=WHY)
        kept = await _kept(durable, region)
        yield Expectation(
            what=f"ordinary work may use that capacity of {region} again",
            met=kept == before and not await _budgets(durable, override, region),
            seen=f"kept for recovery: {show_amounts(before)} before, {show_amounts(kept)} now",
        )
        yield await audit_tells(durable, override_id(override.id), two_people.TOLD)
    yield await invariants_hold(durable)


async def _other_loss(durable: Durable, region: RegionId) -> IncidentId:
    facts = await read_facts(durable.databases)
    others = [fact.loss.incident for name, fact in sorted(facts.items()) if name != region]
    if not others:
        raise StackError(f"This stack has no other region than {region} that could be lost.")
    return others[0]


async def _is_kept(
    durable: Durable, override: Override, region: RegionId, incident: IncidentId, before: Amounts
) -> Expectation:
    budgets, kept = await _budgets(durable, override, region), await _kept(durable, region)
    return Expectation(
        what=f"{region} keeps {AMOUNT} from ordinary work for incident {incident}",
        met=budgets == [(AMOUNT, incident)] and kept == plus(before, AMOUNT.amounts),
        seen=f"kept for recovery: {show_amounts(before)} before, {show_amounts(kept)} now",
    )


async def _is_for_one_incident(
    durable: Durable, region: RegionId, incident: IncidentId
) -> Expectation:
    databases, other = durable.databases, IncidentId(f"{incident}-other")
    own = await find_draw(databases, region, incident, AMOUNT)
    others = await find_draw(databases, region, other, AMOUNT)
    return Expectation(
        what="the recovery of that incident may draw on it, and no other",
        met=own is not None and others is None,
        seen="" if own is None else own.budget,
    )


async def _budgets(
    durable: Durable, override: Override, region: RegionId
) -> list[tuple[Resources, IncidentId | None]]:
    """What `durable get budgets` shows of the override."""
    return [
        (one.amount, one.incident)
        for one in await list_budgets(durable.databases, region)
        if one.budget == override_id(override.id)
    ]


async def _kept(durable: Durable, region: RegionId) -> Amounts:
    """What is free on nodes and yet not to be had for ordinary work, at one moment."""
    read = await read_whole(durable.databases, region)
    free = NOTHING
    for node in read.nodes:
        free = plus(free, node.capacity) if node.ready else free
        free = free if node.state in SILENT else minus(free, node.used)
    return minus(free, read.room)


DRILL = Drill(
    name="recovery-override",
    sentence="Keep capacity for an incident: two people agree, nobody else gets it, and it ends.",
    runbook="runbooks/recovery-override.md",
    run=run,
)

"""What a drill must leave as it found it, what is different, and how that is put right."""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress

from durable.authority.cache.region_read import read_whole
from durable.authority.db.everywhere import ask_regions
from durable.authority.operators.changes import list_operators
from durable.authority.overrides.rows import read_overrides
from durable.authority.policies.region_reads import read_in_force
from durable.authority.quota.budgets import list_budgets
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import list_workloads
from durable.client import Durable
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.signing import signed
from durable.drills.world import World
from durable.model.ids import OverrideId
from durable.model.recovery.recoveries import UNFENCED, Recovery
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.model.work.workload import WorkloadKind
from durable.state_dir.record import StackError
from durable.validation.value import Value

WHY = "a drill leaves the stack as it found it"
# Budgets are closed and overrides end after the work itself is back.
SETTLE_SECONDS = 60.0
BACK_SECONDS = 300.0


class StackState(Value):
    """What people decided, by what it is about; where single replicas run is not part of it."""

    regions: Mapping[str, str] = {}
    shares: Mapping[str, str] = {}
    recoveries: Mapping[str, str] = {}
    policies: Mapping[str, str] = {}
    overrides: Mapping[str, str] = {}
    budgets: Mapping[str, str] = {}
    operators: Mapping[str, str] = {}
    keys: Mapping[str, str] = {}
    cordons: Mapping[str, str] = {}


async def rehearse(
    drill: Drill, world: World, *, stays: bool, show: Callable[[Expectation], None]
) -> list[Expectation]:
    """Shows each expectation as it is known; a stack that stays is left as it was found."""
    before = await read_state(world.durable)
    refuse_unwell(before)
    seen: list[Expectation] = []
    try:
        async for one in drill.run(world):
            seen.append(one)
            show(one)
    finally:
        if stays:
            await put_back(world, before)
    seen.append(await is_as_found(world.durable, before))
    show(seen[-1])
    return seen


async def read_state(durable: Durable) -> StackState:
    databases = durable.databases
    facts = await read_facts(databases)
    budgets = await ask_regions(facts, lambda region: list_budgets(databases, region))
    regions = await ask_regions(facts, lambda region: read_whole(databases, region))
    in_force = await ask_regions(facts, lambda region: read_in_force(databases, region))
    operators = await list_operators(databases)
    return StackState(
        regions={f"region {one}": fact.state.value for one, fact in facts.items()},
        shares={
            f"{one.tenant}/{one.workload}": ", ".join(
                f"{region} {len(slots)}" for region, slots in sorted(one.share.items()) if slots
            )
            for one in await list_workloads(databases)
            if one.spec.kind is WorkloadKind.SERVICE  # a job may end meanwhile
        },
        recoveries={str(one.key): one.stage.value for one in await list_recoveries(databases)},
        policies={
            f"the policy of {region}": ", ".join(f"revision {one}" for one in sorted(found))
            for region, found in in_force.by_region.items()
        },
        overrides={
            f"override {one.id}": one.state.value for one in await read_overrides(databases)
        },
        budgets={
            f"budget {one.budget} of {region}": f"open for {one.incident or 'nobody'}, "
            f"{one.used} drawn"
            for region, found in budgets.by_region.items()
            for one in found
        },
        operators={
            f"operator {one.id}": ", ".join(map(str, one.rights)) or "no rights"
            for one in operators
        },
        keys={
            f"the key of {one.id}": one.public_key
            for one in operators
            if one.public_key is not None
        },
        cordons={
            f"the cordon of {node.node}": node.cordon_reason
            for read in regions.by_region.values()
            for node in read.nodes
            if node.cordon_reason is not None
        },
    )


def differences(before: StackState, after: StackState) -> list[str]:
    """What is not as it was, in sentences."""
    found: list[str] = []
    for field in StackState.model_fields:
        was: Mapping[str, str] = getattr(before, field)
        now: Mapping[str, str] = getattr(after, field)
        found += [
            f"{name}: {was.get(name, 'not there')} before, {now.get(name, 'not there')} now"
            for name in sorted({*was, *now})
            if was.get(name) != now.get(name)
        ]
    return found


def refuse_unwell(found: StackState) -> None:
    """A drill begins where all is well: otherwise nobody could tell what was its doing."""
    closed = [name for name, state in found.regions.items() if state != RegionState.OPEN]
    if closed or found.recoveries:
        wrong = ", ".join([*closed, *found.recoveries])
        raise StackError(
            f"This stack has something to recover from already ({wrong}); end that first: see "
            "durable get recoveries."
        )


async def is_as_found(durable: Durable, before: StackState) -> Expectation:
    """The last expectation of every drill."""

    async def is_same() -> bool:
        return not differences(before, await read_state(durable))

    met = await come_true(is_same, SETTLE_SECONDS)
    seen = "" if met else "; ".join(differences(before, await read_state(durable)))
    return Expectation(what="the stack is as the drill found it", met=met, seen=seen)


async def put_back(world: World, before: StackState) -> None:
    """Ends what a drill began and could not end: its overrides and its recoveries."""
    durable = world.durable
    for override in await read_overrides(durable.databases):
        if f"override {override.id}" not in before.overrides:
            await _revoke(durable, override.id)
    for recovery in await list_recoveries(durable.databases):
        if str(recovery.key) not in before.recoveries:
            await _fail_back(world, recovery)


async def _revoke(durable: Durable, override: OverrideId) -> None:
    with suppress(RefusedError):  # it has ended meanwhile
        try:
            await durable.overrides.revoke(override, reason=WHY)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.SIGNATURE_MISSING:
                raise
            async with signed(durable):
                await durable.overrides.revoke(override, reason=WHY)


async def _fail_back(world: World, recovery: Recovery) -> None:
    durable = world.durable
    world.say(f"Ending {recovery.key}, so that {recovery.region} has its work back")
    try:
        async with asyncio.timeout(BACK_SECONDS):
            if recovery.stage not in UNFENCED:
                async with signed(durable):
                    request = f"drill-{uuid.uuid4()}"
                    await durable.recoveries.fail_back(
                        recovery.region, reason=WHY, request_id=request
                    )
            async for _ in durable.recoveries.follow(recovery.key):
                pass  # until it has ended
    except (TimeoutError, RefusedError):
        return  # what is left is said

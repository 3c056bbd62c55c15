"""A rehearsal: a drill is run, and the stack is as it was before, or the difference is said."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from durable.authority.cache.region_read import read_whole
from durable.authority.operators.changes import list_operators
from durable.authority.overrides.rows import read_overrides
from durable.authority.policies.region_reads import read_in_force
from durable.authority.quota.budgets import list_budgets
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import list_workloads
from durable.client import Durable
from durable.drills.checks import becomes
from durable.drills.drill import Drill, Expectation
from durable.drills.people import signed
from durable.drills.world import World, new_request
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
    before = await read_state(world)
    refuse_unwell(before)
    shown: list[Expectation] = []

    def note(expectation: Expectation) -> None:
        shown.append(expectation)
        show(expectation)

    try:
        async for expectation in drill.run(world):
            note(expectation)
    finally:
        if stays:
            await put_back(world, before)
    note(await is_as_found(world, before))
    return shown


async def read_state(world: World) -> StackState:
    databases = world.databases
    facts = await read_facts(databases)
    operators = await list_operators(databases)
    return StackState(
        regions={f"region {region}": fact.state.value for region, fact in facts.items()},
        shares={
            f"{workload.tenant}/{workload.workload}": ", ".join(
                f"{region} {len(slots)}"
                for region, slots in sorted(workload.share.items())
                if slots
            )
            for workload in await list_workloads(databases)
            if workload.spec.kind is WorkloadKind.SERVICE  # a job may end meanwhile
        },
        recoveries={
            str(recovery.key): recovery.phase.value for recovery in await list_recoveries(databases)
        },
        policies={
            f"the policy of {region}": ", ".join(f"revision {each}" for each in sorted(revisions))
            for region, revisions in (await world.in_each_region(read_in_force)).items()
        },
        overrides={
            f"override {override.id}": override.state.value
            for override in await read_overrides(databases)
        },
        budgets={
            f"budget {budget.budget} of {region}": f"open for {budget.incident or 'no incident'}, "
            f"{budget.used} drawn"
            for region, budgets in (await world.in_each_region(list_budgets)).items()
            for budget in budgets
        },
        operators={
            f"operator {operator.id}": ", ".join(map(str, operator.rights)) or "no rights"
            for operator in operators
        },
        keys={
            f"the key of {operator.id}": operator.public_key
            for operator in operators
            if operator.public_key is not None
        },
        cordons={
            f"the cordon of {node.node}": node.cordon_reason
            for read in (await world.in_each_region(read_whole)).values()
            for node in read.nodes
            if node.cordon_reason is not None
        },
    )


def differences(before: StackState, after: StackState) -> list[str]:
    """What is not as it was, in sentences."""
    changes: list[str] = []
    for field in StackState.model_fields:
        was: Mapping[str, str] = getattr(before, field)
        now: Mapping[str, str] = getattr(after, field)
        changes += [
            f"{name}: {was.get(name, 'not there')} before, {now.get(name, 'not there')} now"
            for name in sorted({*was, *now})
            if was.get(name) != now.get(name)
        ]
    return changes


def refuse_unwell(stack: StackState) -> None:
    """A drill begins where all is well: otherwise what it does itself could not be seen."""
    closed = [name for name, state in stack.regions.items() if state != RegionState.OPEN]
    if closed or stack.recoveries:
        wrong = ", ".join([*closed, *stack.recoveries])
        raise StackError(
            f"This stack has something to recover from already ({wrong}); end that first: see "
            "durable get recoveries."
        )


async def is_as_found(world: World, before: StackState) -> Expectation:
    """The last expectation of every drill."""

    async def read() -> list[str]:
        return differences(before, await read_state(world))

    return await becomes(
        "the stack is as the drill found it",
        read,
        lambda changes: not changes,
        SETTLE_SECONDS,
        "; ".join,
    )


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
            if recovery.phase not in UNFENCED:
                async with signed(durable):
                    await durable.recoveries.fail_back(
                        recovery.region, reason=WHY, request_id=new_request()
                    )
            async for _ in durable.recoveries.follow(recovery.key):
                pass  # until it has ended
    except (TimeoutError, RefusedError):
        return  # what is left is said

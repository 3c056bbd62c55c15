"""A rehearsal: a drill is run, and the stack is as it was before, or the difference is said."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from durable.authority.overrides.rows import read_overrides
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.workloads.rows import list_workloads
from durable.client import Durable
from durable.drills.checks import becomes
from durable.drills.drill import Drill, Expectation
from durable.drills.people import signed
from durable.drills.world import World, new_request
from durable.model.ids import OverrideId
from durable.model.operators.rights import Operator
from durable.model.recovery.recoveries import UNFENCED, Recovery
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.model.work.workload import WorkloadKind
from durable.resources.fleet import BudgetRow
from durable.resources.table import find_resource
from durable.state_dir.record import StackError

WHY = "a drill leaves the stack as it found it"
# Budgets are closed and overrides end after the work itself is back.
SETTLE_SECONDS = 60.0
BACK_SECONDS = 300.0


def _budget(row: BudgetRow) -> str | None:
    """Not of one that has expired: that of an override which has ended is listed for a while."""
    for_whom = row.incident or "no incident"
    return None if row.state == "expired" else f"open for {for_whom}, {row.used} drawn"


def _key(operator: Operator) -> str:
    return "no key" if operator.public_key is None else f"key {operator.public_key}"


# What people decided, by kind and name; where single replicas run is not part of it.
StackState = Mapping[tuple[str, str], str]
# By kind, what of a row of its list that is.
_DECIDED: Mapping[str, Callable[[Any], str | None]] = {
    "regions": lambda row: row.state,
    "recoveries": lambda row: row.phase,
    "policies": lambda row: ", ".join(f"{state} in {name}" for name, state in row.in_force.items()),
    "overrides": lambda row: None if row.has_ended else row.state,
    "budgets": _budget,
    "operators": lambda row: f"{', '.join(map(str, row.rights)) or 'no rights'}, {_key(row)}",
    "nodes": lambda row: row.cordoned,
}
MOST_ROWS = 10_000


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
    state: dict[tuple[str, str], str] = {}
    for kind, decided in _DECIDED.items():
        resource = find_resource(kind)
        for row in await world.durable.get(resource, limit=MOST_ROWS):
            # A budget has the same name in every region.
            where = f" of {row.region}" if kind == "budgets" else ""
            if value := decided(row):
                state[kind, f"{resource.singular} {resource.name_of(row)}{where}"] = value
    for workload in await list_workloads(world.databases):
        if workload.spec.kind is WorkloadKind.SERVICE:  # a job may end meanwhile
            state["shares", f"{workload.tenant}/{workload.workload}"] = ", ".join(
                f"{region} {len(slots)}"
                for region, slots in sorted(workload.share.items())
                if slots
            )
    return state


def differences(before: StackState, after: StackState) -> list[str]:
    """What is not as it was, in sentences."""
    return [
        f"{key[1]}: {before.get(key, 'not there')} before, {after.get(key, 'not there')} now"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def refuse_unwell(stack: StackState) -> None:
    """A drill begins where all is well: otherwise what it does itself could not be seen."""
    wrong = [
        name
        for (kind, name), state in stack.items()
        if kind == "recoveries" or (kind == "regions" and state != RegionState.OPEN)
    ]
    if wrong:
        raise StackError(
            f"This stack has something to recover from already ({', '.join(wrong)}); end that "
            "first: see durable get recoveries."
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
        if ("overrides", f"override {override.id}") not in before:
            await _revoke(durable, override.id)
    for recovery in await list_recoveries(durable.databases):
        if ("recoveries", f"recovery {recovery.key}") not in before:
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

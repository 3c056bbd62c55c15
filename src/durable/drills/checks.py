"""What drills expect: that something becomes so, a refusal, the audit, and every invariant."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from durable.authority.reads.invariants import violations_everywhere
from durable.authority.workloads.rows import list_workloads
from durable.drills.drill import Expectation
from durable.drills.world import POLL_SECONDS, World
from durable.model.ids import OverrideId, RegionId
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.model.work.workload import WorkloadKind
from durable.resources.orders import OverrideRow
from durable.resources.table import OVERRIDES
from durable.validation.text import show_clock

T = TypeVar("T")

# A refusal is in the audit a moment after it was answered.
AUDIT_SECONDS = 30.0
EVENTS_READ = 1_000
SERVE_SECONDS = 300.0


def _nothing(_: object) -> str:
    return ""


async def becomes(
    what: str,
    read: Callable[[], Awaitable[T]],
    holds: Callable[[T], object],
    within_seconds: float,
    seen: Callable[[T], str] = _nothing,
) -> Expectation:
    """Whether it becomes so in time, and what was read last."""
    until = time.monotonic() + within_seconds
    value = await read()
    while not (met := bool(holds(value))) and time.monotonic() < until:
        await asyncio.sleep(POLL_SECONDS)
        value = await read()
    return Expectation(what=what, met=met, seen=seen(value))


async def is_refused(what: str, code: RefusalCode, request: Awaitable[object]) -> Expectation:
    """Whether it is refused, and for this reason."""
    try:
        await request
    except RefusedError as error:
        refusal = error.refusal
        met = refusal.code is code
        return Expectation(what=what, met=met, seen=refusal.code if met else refusal.sentence)
    return Expectation(what=what, met=False, seen="it was accepted")


async def audit_tells(
    world: World, target: str, actions: Iterable[str], what: str = "the audit tells all of it"
) -> Expectation:
    """Whether it has all of these about the target, each as often as it is named."""
    wanted = Counter(actions)

    async def read() -> list[str]:
        events, _ = await world.durable.events(target=target, last=EVENTS_READ)
        return [event.action for event in events]

    return await becomes(
        what, read, lambda actions: wanted <= Counter(actions), AUDIT_SECONDS, ", ".join
    )


async def invariants_hold(world: World) -> Expectation:
    broken = await violations_everywhere(world.databases)
    seen = ", ".join(map(str, broken))
    return Expectation(what="every invariant holds", met=not broken, seen=seen)


async def all_serve(world: World) -> Expectation:
    """Every service, with all its replicas."""

    async def read() -> list[str]:
        waiting: list[str] = []
        for each in await list_workloads(world.databases):
            if each.spec.kind is not WorkloadKind.SERVICE:
                continue
            status = await world.durable.status(each.tenant, each.workload)
            if status.serving < status.wanted:
                name = f"{each.tenant}/{each.workload}"
                waiting.append(f"{name} {status.serving} of {status.wanted}")
        return waiting

    return await becomes(
        "every service has all its replicas serving",
        read,
        lambda waiting: not waiting,
        SERVE_SECONDS,
        ", ".join,
    )


async def obeying(world: World, override: OverrideId) -> tuple[RegionId, ...]:
    """The regions that obey it now."""
    return (await _shown(world, override)).obeyed_in


async def _shown(world: World, override: OverrideId) -> OverrideRow:
    return await world.durable.show(OVERRIDES, override)


async def override_ends(
    world: World, override: Override, what: str, state: OverrideState, within_seconds: float
) -> Expectation:
    """Whether no region obeys it any more; one that expires does so not before its time."""

    def has_ended(now: OverrideRow) -> bool:
        if now.obeyed_in or now.state is not state or now.ended_at is None:
            return False
        return state is not OverrideState.EXPIRED or now.ended_at >= override.expires_at

    def seen(now: OverrideRow) -> str:
        at = f" at {show_clock(now.ended_at)}" if now.ended_at else ""
        return ", ".join([f"{now.outcome or now.state}{at}", *now.obeyed_in])

    return await becomes(what, lambda: _shown(world, override.id), has_ended, within_seconds, seen)

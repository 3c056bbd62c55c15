"""The loss of a region and its way back, as drills and the demo go through it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

from durable.agent.simulated.faults import FaultKind
from durable.authority.fleet.policies import read_recovery_policy
from durable.authority.recovery.recoveries import newest_recovery
from durable.authority.recovery.region_facts import read_fact
from durable.authority.workloads.rows import list_workloads
from durable.client import Durable
from durable.drills.broken_nodes import BrokenNodes
from durable.drills.drill import Expectation, come_true
from durable.drills.expectations import invariants_hold
from durable.drills.signing import signed
from durable.model.ids import RegionId
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.recoveries import (
    Recovery,
    RecoveryKey,
    RecoveryProgress,
    RecoveryStage,
    WorkloadMove,
)
from durable.model.work.workload import WorkloadKind
from durable.planners.recovery.objective import is_critical, needed_replicas

# Leases lapse, the loss lasts, and a worker notices; on a slow machine all of it later.
DETECT_SECONDS = 120.0
MOVE_SECONDS = 300.0
BACK_SECONDS = 300.0
POLL_SECONDS = 0.5

Show = Callable[[RecoveryProgress], None]


async def lose_region(
    durable: Durable,
    nodes: BrokenNodes,
    region: RegionId,
    show: Show,
    kind: FaultKind = FaultKind.LOST,
) -> tuple[list[Expectation], RecoveryProgress | None]:
    """Takes every node of a region away, and follows the recovery until all was moved."""
    before = await read_fact(durable.databases, region)
    key = RecoveryKey(region=region, epoch=before.epoch + 1)
    nodes.lose(region=str(region), kind=kind)

    async def has_begun() -> bool:
        newest = await newest_recovery(durable.databases, region)
        return newest is not None and newest.key == key

    begun = Expectation(
        what=f"no node of {region} is heard of: its recovery begins by itself",
        met=await come_true(has_begun, DETECT_SECONDS),
        seen=str(key),
    )
    if not begun.met:
        return [begun], None
    now = await _until_moved(durable, key, show)
    if now is None:
        late = Expectation(what=f"{key} moves all that it can", met=False, seen="not in time")
        return [begun, late], None
    recovery, report = now.recovery, now.report
    policy = await read_recovery_policy(durable.databases)
    objective = [
        _objective(move, recovery, policy)
        for move in now.moves
        if is_critical(move.priority, move.kind, policy)
    ]
    moved = Expectation(
        what="every workload that was there is moved, or says why not",
        met=all(move.moved_at is not None or move.waits for move in now.moves),
        seen=f"{report.moved} of {report.workloads} moved, {report.whole} serve as a whole",
    )
    return [begun, *objective, moved, await invariants_hold(durable)], now


def _objective(move: WorkloadMove, recovery: Recovery, policy: RecoveryPolicy) -> Expectation:
    needed = needed_replicas(len(move.lost), policy)
    seconds = move.seconds_to_recover(recovery.lost_at)
    return Expectation(
        what=f"{move.tenant}/{move.workload} has {needed} of {len(move.lost)} lost replicas "
        f"serving elsewhere within {policy.objective_seconds:.0f} s of the loss",
        met=seconds is not None and seconds <= policy.objective_seconds,
        seen="not yet" if seconds is None else f"after {seconds:.1f} s",
    )


async def _until_moved(durable: Durable, key: RecoveryKey, show: Show) -> RecoveryProgress | None:
    last: RecoveryProgress | None = None
    try:
        async with asyncio.timeout(MOVE_SECONDS):
            async for now in durable.recoveries.follow(key):
                last = now
                show(now)
                if now.recovery.stage is RecoveryStage.HOLDING and _is_settled(now):
                    return now
    except TimeoutError:
        return last
    return last


def _is_settled(now: RecoveryProgress) -> bool:
    """Whether all critical work is back, and everything else serves or says what it waits for."""
    is_back = now.report.recovered == now.report.critical
    return is_back and all(move.whole_at is not None or move.waits for move in now.moves)


async def fail_back(
    durable: Durable, nodes: BrokenNodes, region: RegionId, show: Show
) -> AsyncIterator[Expectation]:
    """Gives the region its nodes back, and then its work."""
    nodes.give_back()
    recovery = await newest_recovery(durable.databases, region)
    assert recovery is not None, "it was lost"
    async with signed(durable):
        await durable.recoveries.fail_back(
            region, reason="drill: the region is back", request_id=f"drill-{uuid.uuid4()}"
        )
    last: RecoveryProgress | None = None
    try:
        async with asyncio.timeout(BACK_SECONDS):
            async for now in durable.recoveries.follow(recovery.key):
                last = now
                show(now)
    except TimeoutError:
        pass
    ended = None if last is None else last.recovery
    yield Expectation(
        what=f"{region} is open again and has its work back",
        met=ended is not None and ended.stage is RecoveryStage.FAILED_BACK,
        seen="nothing was heard of it" if ended is None else ended.stage.value,
    )
    yield Expectation(
        what="the recovery leaves nothing behind",
        met=ended is not None and not ended.findings,
        seen="" if ended is None else "; ".join(ended.findings),
    )
    yield await all_serve(durable)
    yield await invariants_hold(durable)


async def all_serve(durable: Durable, within_seconds: float = BACK_SECONDS) -> Expectation:
    """Every service, with all its replicas."""

    async def waiting() -> list[str]:
        found: list[str] = []
        for one in await list_workloads(durable.databases):
            if one.spec.kind is not WorkloadKind.SERVICE:
                continue
            status = await durable.status(one.tenant, one.workload)
            if status.serving < status.wanted:
                found.append(f"{one.tenant}/{one.workload} {status.serving} of {status.wanted}")
        return found

    async def none_waits() -> bool:
        return not await waiting()

    met = await come_true(none_waits, within_seconds)
    seen = "" if met else ", ".join(await waiting())
    return Expectation(what="every service has all its replicas serving", met=met, seen=seen)

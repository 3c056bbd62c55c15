"""Drills of a lost region: lost and back, cut off, and lost again and again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from durable.agent.simulated.faults import FaultKind
from durable.authority.fleet.policies import read_recovery_policy
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.recovery.recoveries import list_recoveries, newest_recovery
from durable.authority.recovery.region_facts import read_fact
from durable.drills.checks import all_serve, becomes, invariants_hold
from durable.drills.drill import Expectation, in_turn
from durable.drills.faults import BrokenNodes
from durable.drills.people import signed
from durable.drills.world import World, new_request
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.recoveries import (
    MoveProgress,
    Recovery,
    RecoveryKey,
    RecoveryPhase,
    RecoveryProgress,
)
from durable.model.states import RegionState
from durable.planners.recovery.objective import is_critical, needed_replicas

# Leases lapse, the loss lasts, and a worker notices; on a slow machine all of it later.
DETECT_SECONDS = 120.0
MOVE_SECONDS = 300.0
BACK_SECONDS = 300.0
SUSPECT_SECONDS = 90.0
# Shorter than the calm that would end the suspicion.
BACK_FOR_SECONDS = 4.0
SAMPLE_SECONDS = 1.0


async def regional_failover(world: World) -> AsyncIterator[Expectation]:
    """Detected, fenced and emptied; then it gets its work back."""
    region = await world.busiest_region()
    with BrokenNodes(world.directory) as nodes:
        loss = RegionLoss(world, nodes, region)
        async for expectation in in_turn(loss.lose(), loss.fail_back()):
            yield expectation


async def partition(world: World) -> AsyncIterator[Expectation]:
    """Its agents are cut off; the invariants are looked at all the time, not only at the end."""
    region, samples = await world.busiest_region(), Samples()
    sampling = asyncio.create_task(samples.take(lambda: violations_everywhere(world.databases)))
    try:
        with BrokenNodes(world.directory) as nodes:
            loss = RegionLoss(world, nodes, region)
            async for expectation in in_turn(loss.lose(FaultKind.CUT_OFF), loss.fail_back()):
                yield expectation
        yield samples.judge(sampling.exception() if sampling.done() else None)
    finally:
        await end_all([sampling])


async def flapping(world: World) -> AsyncIterator[Expectation]:
    """Lost, back, and lost again within a minute: one loss, one recovery."""
    region = await world.busiest_region()
    with BrokenNodes(world.directory) as nodes:
        loss = RegionLoss(world, nodes, region)
        before = [recovery.key for recovery in await list_recoveries(world.databases, ended=True)]
        async for expectation in in_turn(loss.suspect(), loss.lose()):
            yield expectation
        after = await list_recoveries(world.databases, ended=True)
        keys = sorted(str(recovery.key) for recovery in after if recovery.key not in before)
        yield Expectation(what="it is one recovery", met=len(keys) == 1, seen=", ".join(keys))
        async for expectation in loss.fail_back():
            yield expectation


@dataclass
class RegionLoss:
    """One region whose nodes are taken away, and its recovery once all was moved."""

    world: World
    nodes: BrokenNodes
    region: RegionId
    progress: RecoveryProgress | None = None

    async def suspect(self) -> AsyncIterator[Expectation]:
        """Lost until it is suspected, and back for a moment."""
        self.nodes.lose(region=str(self.region))
        yield await becomes(
            f"{self.region} falls silent and is suspected",
            lambda: read_fact(self.world.databases, self.region),
            lambda fact: fact.state is not RegionState.OPEN,
            SUSPECT_SECONDS,
        )
        self.nodes.give_back()
        await asyncio.sleep(BACK_FOR_SECONDS)

    async def lose(self, kind: FaultKind = FaultKind.LOST) -> AsyncIterator[Expectation]:
        """Takes every node away, and follows the recovery until all was moved."""
        databases = self.world.databases
        before = await read_fact(databases, self.region)
        key = RecoveryKey(region=self.region, epoch=before.epoch + 1)
        self.nodes.lose(region=str(self.region), kind=kind)
        begun = await becomes(
            f"no node of {self.region} is heard of: its recovery begins by itself",
            lambda: newest_recovery(databases, self.region),
            lambda newest: newest is not None and newest.key == key,
            DETECT_SECONDS,
            lambda _: str(key),
        )
        yield begun
        if not begun.met:
            return
        self.progress = now = await self._follow(key, MOVE_SECONDS, until=_is_moved)
        if now is None:
            yield Expectation(what=f"{key} moves all that it can", met=False, seen="not in time")
            return
        policy = await read_recovery_policy(databases)
        for move in now.moves:
            if is_critical(move.priority, move.kind, policy):
                yield _objective(move, now.recovery, policy)
        report = now.report
        yield Expectation(
            what="every workload that was there is moved, or says why not",
            met=all(move.moved_at is not None or move.waits for move in now.moves),
            seen=f"{report.moved} of {report.workloads} moved, {report.whole} of them whole again",
        )
        yield await invariants_hold(self.world)

    async def fail_back(self) -> AsyncIterator[Expectation]:
        """Gives the region its nodes back, and then its work, if it was lost at all."""
        self.nodes.give_back()
        if self.progress is None:
            return
        durable = self.world.durable
        async with signed(durable):
            await durable.recoveries.fail_back(
                self.region, reason="drill: the region is back", request_id=new_request()
            )
        last = await self._follow(self.progress.recovery.key, BACK_SECONDS)
        ended = None if last is None else last.recovery
        yield Expectation(
            what=f"{self.region} is open again and has its work back",
            met=ended is not None and ended.phase is RecoveryPhase.FAILED_BACK,
            seen="nothing was heard of it" if ended is None else ended.phase.value,
        )
        yield Expectation(
            what="the recovery leaves nothing behind",
            met=ended is not None and not ended.findings,
            seen="" if ended is None else "; ".join(ended.findings),
        )
        yield await all_serve(self.world)
        yield await invariants_hold(self.world)

    async def _follow(
        self,
        key: RecoveryKey,
        within_seconds: float,
        until: Callable[[RecoveryProgress], bool] = lambda _: False,
    ) -> RecoveryProgress | None:
        """Shows every change until the recovery has ended or got there; the last that was seen."""
        last: RecoveryProgress | None = None
        try:
            async with asyncio.timeout(within_seconds):
                async for last in self.world.durable.recoveries.follow(key):
                    self.world.follow(last)
                    if until(last):
                        break
        except TimeoutError:
            pass
        return last


def _is_moved(now: RecoveryProgress) -> bool:
    """Whether all critical work is back, and everything else serves or says what it waits for."""
    is_back = now.report.recovered == now.report.critical
    is_rest_accounted_for = all(move.whole_at is not None or move.waits for move in now.moves)
    return now.recovery.phase is RecoveryPhase.HOLDING and is_back and is_rest_accounted_for


def _objective(move: MoveProgress, recovery: Recovery, policy: RecoveryPolicy) -> Expectation:
    needed = needed_replicas(move.lost_count, policy)
    seconds = move.seconds_to_recover(recovery.lost_at)
    return Expectation(
        what=f"{move.tenant}/{move.workload} has {needed} of {move.lost_count} lost replicas "
        f"serving elsewhere within {policy.objective_seconds:.0f} s of the loss",
        met=seconds is not None and seconds <= policy.objective_seconds,
        seen="not yet" if seconds is None else f"after {seconds:.1f} s",
    )


@dataclass
class Samples:
    """How often the invariants were looked at, and which were broken."""

    count: int = 0
    broken: set[str] = field(default_factory=set[str])

    async def take(self, look: Callable[[], Awaitable[Iterable[object]]]) -> None:
        while True:
            self.broken.update(map(str, await look()))
            self.count += 1
            await asyncio.sleep(SAMPLE_SECONDS)

    def judge(self, failure: BaseException | None) -> Expectation:
        """Without a sample nothing is seen broken, either: that is no proof."""
        seen = [f"{self.count} samples", *sorted(self.broken)]
        if failure is not None:
            seen.append(f"sampling failed: {failure}")
        return Expectation(
            what="no slot had two owners at any moment",
            met=self.count > 0 and failure is None and not self.broken,
            seen=", ".join(seen),
        )

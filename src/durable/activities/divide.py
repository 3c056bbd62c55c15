"""Dividing a workload's slots: read what exists, plan the next step, publish it, open placements.

Every division that writes has a number of its own, so one that was overtaken writes nothing any
more; one that finds everything as it is to be takes none. It is made from what the regions know, so
taken again, it goes on where the last one stopped.
"""

import asyncio
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from durable.activities.division import NewWorkloads, WorkloadDivision, concerned, lowers
from durable.activities.steps import DivideResult, DivideStep, OpenedShare, PlacementKey
from durable.allocation.admission import TtlCache
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.replicas import RegionReplicas, read_replicas
from durable.authority.sides import GlobalSide
from durable.authority.slots.assignment import Division, transfer_of
from durable.authority.slots.reconciliation import reconcile_slots
from durable.authority.slots.shares import PublishedShare
from durable.authority.workloads.rollouts import (
    Completion,
    begin_division,
    begin_rollback,
    complete_generations,
    read_to_divide,
)
from durable.failpoints import Failpoint, reach
from durable.model.ids import Generation, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import RolloutState, RolloutStep
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.planners.rollout.observed import Goal, RolloutObservation, ShareName
from durable.planners.rollout.planner import RolloutPlan, plan_shares
from durable.planners.rollout.verdict import judge, look_again_at
from durable.signals.names import PLACEMENT, WORKLOAD_CONTROLLER
from durable.signals.payloads import Look
from durable.signals.starting import placement_options

ACTOR = WORKLOAD_CONTROLLER
# A plan may need floors to rise first, and a region that is done lets the next one begin.
MAX_PASSES = 6
# How often a workload is read again within one step, because it was changed meanwhile.
MAX_TRIES = 4
REGIONS_SECONDS = 5.0
# How often to ask whether a lost region still keeps something, should no hint say so.
LOOK_AT_KEPT = timedelta(minutes=1)
# Of a workload of which nothing is timed yet.
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class PlacementWorkflows:
    """The placements of workloads, as Temporal knows them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def open(
        self, key: PlacementKey, *, is_first: bool = False, priority: int | None = None
    ) -> None:
        """Makes sure that a placement runs, and that it looks at its share.

        One that was terminated, or that Temporal has lost, begins again and reads from the
        authority what exists.
        """
        if is_first and await self.start(key, priority):
            return
        await self.start(
            key,
            priority,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="look",
            start_signal_args=[Look(why="its share changed")],
        )

    async def start(self, key: PlacementKey, priority: int | None = None, **signal: Any) -> bool:
        """Starts a placement; false when one runs."""
        options = placement_options(key.tenant, key.workload, key.generation, key.region, priority)
        try:
            await self._client.start_workflow(PLACEMENT, {"key": key}, **{**options, **signal})  # pyright: ignore[reportUnknownMemberType]
        except WorkflowAlreadyStartedError:
            return False
        return True


class Divider:
    """Divides workloads; all that it knows is what the authority says."""

    def __init__(self, side: GlobalSide, placements: PlacementWorkflows) -> None:
        self._side = side
        self._databases = side.databases
        self._placements = placements
        self.new = NewWorkloads()
        # Regions are never removed, and a new one has nothing of a workload that does not name it.
        self._regions: TtlCache[None, list[RegionId]] = TtlCache(
            lambda _: list_regions(side.databases), seconds=REGIONS_SECONDS
        )

    async def run(self, step: DivideStep) -> DivideResult:
        """The next step of a workload towards what is wanted of it, or towards its end."""
        for _ in range(MAX_TRIES):
            try:
                return await self._divide(await self._read(step), step)
            except _OvertakenError:
                continue
        division = await self._read(step)
        division.is_overtaken = True
        plan = plan_shares(division.goal(division.workload.rollout), division.observed())
        return self._answer(division, plan, division.workload.rollout)

    async def _divide(self, division: WorkloadDivision, step: DivideStep) -> DivideResult:
        rollout = division.workload.rollout
        if step.ending is not None and not _may_end(division.workload, step):
            plan = plan_shares(division.goal(rollout), division.observed())
            answer = self._answer(division, plan, rollout)
            return answer.model_copy(update={"must_recall": True})
        if step.ending is not None:
            return await self._end(division, step.ending)
        plan, rollout, roll_back = await self._plan(division, rollout)
        if roll_back is not None:
            name = (step.tenant, step.workload)
            revision = division.workload.revision
            await begin_rollback(self._databases, *name, revision, reason=roll_back, actor=ACTOR)
            reach(Failpoint.AFTER_BEGIN_ROLLBACK)
            raise _OvertakenError
        await self._remember(division, plan, rollout)
        # The slots of a new workload were assigned by its admission.
        if not division.is_first and not division.has_owners(plan.owners):
            await self._own(division, plan.owners)
        reach(Failpoint.AFTER_ASSIGN_SLOTS)
        await self._publish(division, plan)
        reach(Failpoint.AFTER_OPEN_PLACEMENTS)
        return self._answer(division, plan, None if plan.is_replaced else rollout)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    async def _read(self, step: DivideStep) -> WorkloadDivision:
        new = self.new.take(step.tenant, step.workload, step.first_revision)
        if new is not None:
            return WorkloadDivision(
                new, _NO_TIME, is_first=True, is_numbered=True, parts=step.parts
            )
        read = await read_to_divide(self._databases, step.tenant, step.workload)
        workload = read.workload
        division = WorkloadDivision(
            workload,
            read.now,
            read.stable_spec,
            parts=step.parts,
            owners=read.owners,
            is_settled=read.is_settled,
            kept=read.kept,
            moved=read.moved,
            recoverable=read.recoverable,
            opened=dict(step.opened),
        )
        is_rolling = workload.rollout is not None and workload.rollout.rollback is None
        is_ending = workload.deleted or step.ending is not None

        async def read_region(region: RegionId) -> RegionReplicas:
            # A task that is run again may find its own end recorded: what became of it counts.
            is_present = region in workload.share or is_ending
            return await read_replicas(
                self._databases,
                region,
                step.tenant,
                step.workload,
                failures_of=workload.generation if is_rolling else None,
                also=workload.generation if is_present else None,
            )

        named = {*workload.share, *(owner.region for owner in read.owners.values())}
        regions = await self._regions.get(None)
        if not named.issubset(regions):
            regions = await self._regions.get(None, seconds=0.0)
        answers = await ask_regions(regions, read_region)
        division.unreachable = concerned(answers.unreachable, workload)
        division.regions.update(answers.by_region)
        for region, replicas in answers.by_region.items():
            if replicas.must_serve is not None:
                division.floors[str(region)] = replicas.must_serve
        await self._open_unheard(division)
        return division

    async def _number(self, division: WorkloadDivision, rollout: RolloutState | None) -> None:
        """Before it writes: from here on every older division is refused.

        What it has read is not older than that number, or it has to be read again.
        """
        if division.is_numbered and rollout == division.workload.rollout:
            return
        number = await begin_division(self._databases, division.workload, rollout)
        if number is None:
            raise _OvertakenError
        numbered = {"revision": number, "rollout": rollout}
        division.workload = division.workload.model_copy(update=numbered)
        division.is_numbered = True

    # ── planning ────────────────────────────────────────────────────────────────────────────────

    async def _plan(
        self, division: WorkloadDivision, rollout: RolloutState | None
    ) -> tuple[RolloutPlan, RolloutState | None, str | None]:
        """The plan, the rollout to remember, and why it must be rolled back, if so."""
        is_confirmed = False
        plan = plan_shares(division.goal(rollout), division.observed())
        for _ in range(MAX_PASSES):
            if rollout is not None:
                spec = division.workload.spec.rollout
                verdict = judge(rollout, spec, plan, failures=division.failures, now=division.now)
                if verdict.roll_back is not None:
                    return plan, rollout, verdict.roll_back
                rollout = verdict.state
            if lowers(plan.floors, division.floors) and not is_confirmed:
                await self._number(division, rollout)
                await self._confirm_floors(division, plan)
                is_confirmed = True
            again = plan_shares(division.goal(rollout), division.observed())
            if again == plan:
                break
            plan = again
        return plan, rollout, None

    async def _confirm_floors(self, division: WorkloadDivision, plan: RolloutPlan) -> None:
        """Writes every floor under this division's number before any of them comes down.

        From then on no older division can lower one, and what was to rise has risen.
        """
        floors = {
            region: max(plan.floors.get(str(region), 0), division.floors.get(str(region), 0))
            for region in division.regions
            if str(region) in division.floors or str(region) in plan.floors
        }
        answers = await ask_regions(
            floors, lambda region: self._side.slots.publish(
                region, division.publication(floors[region])
            )
        )  # fmt: skip
        division.unreachable |= answers.unreachable
        division.is_overtaken = not all(answers.by_region.values())
        division.floors |= {str(region): floors[region] for region in answers.by_region}

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    async def _remember(
        self, division: WorkloadDivision, plan: RolloutPlan, rollout: RolloutState | None
    ) -> None:
        workload = division.workload
        is_new = workload.generation != workload.stable_generation or workload.rollout is not None
        has_ended = workload.deleting or workload.deleted
        is_service = workload.spec.kind is WorkloadKind.SERVICE
        if plan.is_replaced and is_new and is_service and not has_ended:
            completion = Completion(
                workload.tenant, workload.workload, workload.generation, workload.revision
            )
            [number] = await complete_generations(self._databases, [completion], actor=ACTOR)
            if number is None:
                raise _OvertakenError
            completed = {"revision": number, "rollout": None}
            division.workload = workload.model_copy(update=completed)
            division.is_numbered = True
        elif rollout is not None and rollout != workload.rollout:
            await self._number(division, rollout)

    async def _own(self, division: WorkloadDivision, owners: Mapping[int, str]) -> None:
        """Which region may bind which slot."""
        await self._number(division, division.workload.rollout)
        workload = division.workload
        share: dict[RegionId, list[int]] = {}
        for slot, region in sorted(owners.items()):
            share.setdefault(RegionId(region), []).append(slot)
        try:
            division.waits += await reconcile_slots(
                self._side.slots,
                workload.tenant,
                workload.workload,
                {region: tuple(slots) for region, slots in share.items()},
                transfer=transfer_of(workload),
                division=Division.of(workload),
                actor=ACTOR,
                kept=division.kept,
            )
        except RefusedError as error:
            division.is_overtaken |= error.refusal.code is RefusalCode.OLD_DIVISION
            division.waits.append(error.refusal.sentence)

    async def _publish(self, division: WorkloadDivision, plan: RolloutPlan) -> None:
        floors = {
            RegionId(region): floor
            for region, floor in plan.floors.items()
            if division.floors.get(region) != floor
        }
        if floors or _shares_to_publish(division, plan):
            await self._number(division, division.workload.rollout)
            shares = _shares_to_publish(division, plan)
            await self._write(division, floors, shares, plan.replaced)

    async def _write(
        self,
        division: WorkloadDivision,
        floors: Mapping[RegionId, int],
        shares: Mapping[RegionId, list[PublishedShare]],
        replaced: Set[int] = frozenset(),
    ) -> None:
        if division.is_overtaken:
            return

        async def write(region: RegionId) -> bool:
            publication = division.publication(
                floors.get(region),
                tuple(shares.get(region, ())),
                division.tokens_of(region, replaced),
            )
            return await self._side.slots.publish(region, publication)

        answers = await ask_regions(sorted({*floors, *shares}), write)
        for region, why in answers.unreachable.items():
            activity.logger.warning("%s could not be given its share: %s", region, why)
            division.unreachable[region] = why
            division.unopened.append(region)
        division.is_overtaken |= not all(answers.by_region.values())
        reach(Failpoint.AFTER_PUBLISH_SHARES)
        written = [region for region, is_written in answers.by_region.items() if is_written]
        await asyncio.gather(
            *(
                self._open(division, region, share.generation)
                for region in written
                for share in shares.get(region, ())
            )
        )
        division.opened |= dict.fromkeys(written, division.workload.revision)

    async def _open_unheard(self, division: WorkloadDivision) -> None:
        """Tells placements of shares whose division ended before it could do that."""
        for region, found in division.regions.items():
            opened = division.opened.get(region, 0)
            unheard = {g: s.revision for g, s in found.shares.items() if s.revision > opened}
            await asyncio.gather(*(self._open(division, region, one) for one in unheard))
            division.opened[region] = max([opened, *unheard.values()])

    async def _open(
        self, division: WorkloadDivision, region: RegionId, generation: Generation
    ) -> None:
        found, workload = division.regions.get(region), division.workload
        is_first = found is None or generation not in found.shares
        key = PlacementKey(
            region=region,
            tenant=workload.tenant,
            workload=workload.workload,
            generation=generation,
        )
        await self._placements.open(key, is_first=is_first, priority=workload.spec.priority)

    # ── the end of a workload ───────────────────────────────────────────────────────────────────

    async def _end(self, division: WorkloadDivision, reason: str) -> DivideResult:
        """Everything is stopped for good; slots are given up as their claims end."""
        await self._number(division, division.workload.rollout)
        claims = {
            claim.slot: str(region)
            for region, found in division.regions.items()
            for claim in found.claims
        }
        unreachable = {
            slot: str(region)
            for region in division.unreachable
            for slot in division.workload.share.get(region, ())
        }
        await self._own(division, unreachable | claims)
        shares: dict[RegionId, list[PublishedShare]] = {}
        for region, found in division.regions.items():
            for generation in found.shares:
                share = division.share_to_publish(ShareName(generation, region), (), reason)
                if share is not None:
                    shares.setdefault(region, []).append(share)
        floors = {RegionId(region): 0 for region, floor in division.floors.items() if floor}
        await self._write(division, floors, shares)
        plan = replace(
            plan_shares(Goal(division.workload.generation, {}), RolloutObservation()),
            is_replaced=False,
        )
        return self._answer(division, plan, None)

    def _answer(
        self, division: WorkloadDivision, plan: RolloutPlan, rollout: RolloutState | None
    ) -> DivideResult:
        workload, progress = division.workload, plan.progress
        look_at = None
        if rollout is not None or division.ready_at():
            settings = workload.spec.rollout
            now = division.now
            state = rollout or RolloutState(started_at=now, progressed_at=now, rollback="none")
            look_at = look_again_at(state, settings, plan, division.ready_at(), now)
        if division.kept:  # what ends the keeping writes nothing of the workload
            again = division.now + LOOK_AT_KEPT
            look_at = again if look_at is None else min(look_at, again)
        is_moving = (
            rollout is not None
            or bool(progress.outdated or progress.leaving or progress.surge)
            or progress.step not in (RolloutStep.DONE, RolloutStep.SETTLING)
        )
        return DivideResult(
            current=workload,
            stable=workload.generation if plan.is_replaced else workload.stable_generation,
            waits=tuple(division.waits),
            unreachable=division.unreachable,
            unopened=tuple(division.unopened),
            is_overtaken=division.is_overtaken,
            open=tuple(_still_open(division, plan)),
            opened=division.opened,
            claims=sum(len(found.claims) for found in division.regions.values()),
            reports=tuple(division.reports),
            rollout=rollout,
            progress=progress if is_moving else None,
            look_again_seconds=(
                None if look_at is None else max(0.0, (look_at - division.now).total_seconds())
            ),
            recoverable=division.recoverable,
        )


class _OvertakenError(Exception):
    """The workload was changed or divided since it was read, so it has to be read again."""


def _shares_to_publish(
    division: WorkloadDivision, plan: RolloutPlan
) -> dict[RegionId, list[PublishedShare]]:
    """What regions do not have like that yet."""
    closing = set(plan.closing)
    if division.workload.spec.kind is WorkloadKind.JOB:
        closing |= {
            share for share in plan.shares if share.generation != division.workload.generation
        }
    reason = f"replaced by generation {division.workload.generation}"
    wanted: dict[RegionId, list[PublishedShare]] = {}
    for name, slots in plan.shares.items():
        share = division.share_to_publish(name, slots, reason if name in closing else None)
        if share is not None:
            wanted.setdefault(RegionId(name.region), []).append(share)
    return wanted


def _may_end(workload: AdmittedWorkload, step: DivideStep) -> bool:
    """Whether the authority knows of the end: the workflow may remember an earlier life."""
    is_this_job = workload.spec.kind is WorkloadKind.JOB and workload.generation == step.generation
    return workload.deleting or workload.deleted or is_this_job


def _still_open(division: WorkloadDivision, plan: RolloutPlan) -> Iterable[OpenedShare]:
    known = {
        (generation, region)
        for region, found in division.regions.items()
        for generation in found.shares
    }
    new = {(name.generation, RegionId(name.region)) for name in plan.shares}
    for generation, region in sorted(known | new):
        yield OpenedShare(generation=generation, region=region)

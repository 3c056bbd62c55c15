"""Dividing a workload's slots: read what exists, plan the next step, publish it, open placements.

Every division has a number of its own, so one that was overtaken writes nothing any more. It is
made from what the regions know, so whoever runs it again goes on where the last one stopped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from temporalio import activity

from durable.activities.division import WorkloadDivision, concerned, lowers
from durable.activities.placement_workflows import PlacementWorkflows
from durable.activities.steps import PlacementKey
from durable.activities.workload_steps import Admitted, Divided, DivideStep, OpenedShare
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.replicas import RegionReplicas, read_replicas
from durable.authority.reads.shares import read_shares
from durable.authority.sides import GlobalSide
from durable.authority.slots.assignment import Division
from durable.authority.slots.reconciliation import reconcile_slots
from durable.authority.slots.shares import PublishedShare
from durable.authority.workloads.rollouts import (
    begin_division,
    complete_generation,
    save_rollout,
    undo_rollout,
)
from durable.failpoints import Failpoint, reach
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.rollout import RolloutState, RolloutStep
from durable.model.share import ShareReport
from durable.model.workload import AdmittedWorkload, WorkloadKind
from durable.scheduling.rollout.observed import Goal, Observed, ShareName
from durable.scheduling.rollout.planner import RolloutPlan, plan_shares
from durable.scheduling.rollout.verdict import judge, look_again_at
from durable.signals.names import WORKLOAD_CONTROLLER

ACTOR = WORKLOAD_CONTROLLER
# A plan may need floors to rise first, and a region that is done lets the next one begin.
MAX_PASSES = 6
# Of a workload of which nothing is timed yet.
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class Divider:
    """Divides workloads; all that it knows is what the authority says."""

    def __init__(self, side: GlobalSide, placements: PlacementWorkflows) -> None:
        self._side = side
        self._databases = side.databases
        self._placements = placements

    async def run(self, step: DivideStep) -> Divided:
        """The next step of a workload towards what is wanted of it, or towards its end."""
        division = await self._begin(step)
        if step.ending is not None and not _may_end(division.workload, step):
            rollout = division.workload.rollout
            plan = plan_shares(division.goal(rollout), division.observed())
            answer = self._answer(division, plan, rollout)
            return answer.model_copy(update={"must_recall": True})
        if step.ending is not None:
            return await self._end(division, step.ending)
        rollout = division.workload.rollout
        plan, rollout, undo = await self._plan(division, rollout)
        if undo is not None:
            name = (step.tenant, step.workload, division.workload.generation)
            await undo_rollout(self._databases, *name, reason=undo, actor=ACTOR)
            reach(Failpoint.AFTER_UNDO_ROLLOUT)
            return await self.run(step.model_copy(update={"first": None}))
        await self._remember(division, plan, rollout)
        await self._own(division, plan.owners)
        reach(Failpoint.AFTER_ASSIGN_SLOTS)
        await self._publish(division, plan)
        reach(Failpoint.AFTER_OPEN_PLACEMENTS)
        return self._answer(division, plan, None if plan.is_complete else rollout)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, step: DivideStep) -> WorkloadDivision:
        if step.first is not None:
            first = step.first
            workload = AdmittedWorkload(
                tenant=step.tenant,
                workload=step.workload,
                generation=first.generation,
                generations=first.generation,
                spec=first.spec,
                share=first.share,
                revision=step.revision,
                admitted_at=first.admitted_at,
            )
            return WorkloadDivision(workload, _NO_TIME, is_first=True, parts=step.parts)
        begun = await begin_division(self._databases, step.tenant, step.workload)
        division = WorkloadDivision(begun.workload, begun.now, begun.stable_spec, parts=step.parts)
        workload = begun.workload
        is_rolling = workload.rollout is not None and workload.rollout.undoing is None
        failures_of = workload.generation if is_rolling else None
        name = (step.tenant, step.workload)

        async def read(region: RegionId) -> tuple[RegionReplicas, list[ShareReport]]:
            replicas = await read_replicas(self._databases, region, *name, failures_of=failures_of)
            present = (str(step.tenant), str(step.workload), workload.generation)
            # A task that is run again may find its own end recorded: what became of it counts.
            is_present = region in workload.share
            is_ending = workload.deleted or step.ending is not None
            also = [present] if is_present or is_ending else []
            shares = await read_shares(self._databases, region, *name, also=also)
            reports = [share.report() for share in shares]
            return replicas, [one for one in reports if is_present or one.is_known]

        answers = await ask_regions(await list_regions(self._databases), read)
        division.missing = concerned(answers.missing, workload)
        for region, (replicas, reports) in answers.by_region.items():
            division.regions[region] = replicas
            division.reports += reports
            if replicas.must_serve is not None:
                division.floors[str(region)] = replicas.must_serve
        return division

    # ── planning ────────────────────────────────────────────────────────────────────────────────

    async def _plan(
        self, division: WorkloadDivision, rollout: RolloutState | None
    ) -> tuple[RolloutPlan, RolloutState | None, str | None]:
        """The plan, the rollout as it is to be remembered, and why it is to be undone, if it is."""
        is_confirmed = False
        plan = plan_shares(division.goal(rollout), division.observed())
        for _ in range(MAX_PASSES):
            if rollout is not None:
                spec = division.workload.spec.rollout
                verdict = judge(rollout, spec, plan, failures=division.failures, now=division.now)
                if verdict.undo is not None:
                    return plan, rollout, verdict.undo
                rollout = verdict.state
            if lowers(plan.floors, division.floors) and not is_confirmed:
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
        division.missing |= answers.missing
        division.is_overtaken = not all(answers.by_region.values())
        division.floors |= {str(region): floors[region] for region in answers.by_region}

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    async def _remember(
        self, division: WorkloadDivision, plan: RolloutPlan, rollout: RolloutState | None
    ) -> None:
        workload = division.workload
        name = (workload.tenant, workload.workload)
        is_new = workload.generation != workload.stable_generation or workload.rollout is not None
        if plan.is_complete and is_new and workload.spec.kind is WorkloadKind.SERVICE:
            await complete_generation(
                self._databases,
                *name,
                workload.generation,
                actor=ACTOR,
                revision=None if division.is_first else workload.revision,
            )
        elif rollout is not None and rollout != workload.rollout:
            await save_rollout(self._databases, *name, workload.revision, rollout)

    async def _own(self, division: WorkloadDivision, owners: Mapping[int, str]) -> None:
        """Which region may bind which slot."""
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
                transfer=f"workload/{workload.tenant}/{workload.workload}/r{workload.revision}",
                division=Division(workload.revision, workload.generation),
                actor=ACTOR,
            )
        except RefusedError as error:
            division.is_overtaken |= error.refusal.code is RefusalCode.OLD_DIVISION
            division.waits.append(error.refusal.sentence)

    async def _publish(self, division: WorkloadDivision, plan: RolloutPlan) -> None:
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
        floors = {
            RegionId(region): floor
            for region, floor in plan.floors.items()
            if division.floors.get(region) != floor
        }
        await self._write(division, floors, wanted)

    async def _write(
        self,
        division: WorkloadDivision,
        floors: Mapping[RegionId, int],
        shares: Mapping[RegionId, list[PublishedShare]],
    ) -> None:
        if division.is_overtaken:
            return

        async def write(region: RegionId) -> bool:
            publication = division.publication(floors.get(region), tuple(shares.get(region, ())))
            return await self._side.slots.publish(region, publication)

        answers = await ask_regions(sorted({*floors, *shares}), write)
        for region, why in answers.missing.items():
            activity.logger.warning("%s could not be given its share: %s", region, why)
            division.missing[region] = why
            division.unopened.append(region)
        for region, is_written in answers.by_region.items():
            division.is_overtaken |= not is_written
            for share in shares.get(region, ()) if is_written else ():
                await self._open(division, region, share)

    async def _open(
        self, division: WorkloadDivision, region: RegionId, share: PublishedShare
    ) -> None:
        found = division.regions.get(region)
        is_first = found is None or share.generation not in found.shares
        key = PlacementKey(
            region=region,
            tenant=share.tenant,
            workload=share.workload,
            generation=share.generation,
        )
        await self._placements.open(
            key, is_first=is_first, priority=division.workload.spec.priority
        )

    # ── the end of a workload ───────────────────────────────────────────────────────────────────

    async def _end(self, division: WorkloadDivision, reason: str) -> Divided:
        """Everything is stopped for good; slots are given up as their claims end."""
        claims = {
            claim.slot: str(region)
            for region, found in division.regions.items()
            for claim in found.claims
        }
        silent = {
            slot: str(region)
            for region in division.missing
            for slot in division.workload.share.get(region, ())
        }
        await self._own(division, silent | claims)
        shares: dict[RegionId, list[PublishedShare]] = {}
        for region, found in division.regions.items():
            for generation in found.shares:
                share = division.share_to_publish(ShareName(generation, region), (), reason)
                if share is not None:
                    shares.setdefault(region, []).append(share)
        floors = {RegionId(region): 0 for region, floor in division.floors.items() if floor}
        await self._write(division, floors, shares)
        plan = replace(
            plan_shares(Goal(division.workload.generation, {}), Observed()), is_complete=False
        )
        return self._answer(division, plan, None)

    def _answer(
        self, division: WorkloadDivision, plan: RolloutPlan, rollout: RolloutState | None
    ) -> Divided:
        workload, progress = division.workload, plan.progress
        look_at = None
        if rollout is not None or division.ready_at():
            settings = workload.spec.rollout
            now = division.now
            state = rollout or RolloutState(started_at=now, progressed_at=now, undoing="none")
            look_at = look_again_at(state, settings, plan, division.ready_at())
        is_moving = (
            rollout is not None
            or bool(progress.outdated or progress.leaving or progress.surge)
            or progress.step not in (RolloutStep.DONE, RolloutStep.SETTLING)
        )
        return Divided(
            current=Admitted(
                generation=workload.generation,
                spec=workload.spec,
                share=workload.share,
                admitted_at=workload.admitted_at,
                deadline_missed_at=workload.deadline_missed_at,
            ),
            stable=workload.generation if plan.is_complete else workload.stable_generation,
            waits=tuple(division.waits),
            unreachable=tuple(f"{region}: {why}"[:500] for region, why in division.missing.items()),
            silent=tuple(division.missing),
            unopened=tuple(division.unopened),
            is_overtaken=division.is_overtaken,
            open=tuple(_still_open(division, plan)),
            claims=sum(len(found.claims) for found in division.regions.values()),
            reports=tuple(division.reports),
            rollout=rollout,
            progress=progress if is_moving else None,
            look_again_seconds=(
                None if look_at is None else max(0.0, (look_at - division.now).total_seconds())
            ),
        )


def _may_end(workload: AdmittedWorkload, step: DivideStep) -> bool:
    """Whether the authority knows of the end: whoever asks may remember an earlier life."""
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

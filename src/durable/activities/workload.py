"""The steps of a workload: admit, divide, observe, delete, finish."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client

from durable.activities.divide import Divider, PlacementWorkflows
from durable.activities.failures import refusal_failure
from durable.activities.messages import AuditMessages, write_messages
from durable.activities.steps import (
    Admission,
    DeadlineStep,
    Deletion,
    DivideResult,
    DivideStep,
    FinishStep,
    ObservedShares,
    ObserveStep,
    WorkloadKey,
    WorkloadRequest,
)
from durable.allocation.admission import AdmissionCheck
from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.operators.ledger import Answer, find_answer
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.sides import GlobalSide
from durable.authority.slots.replacements import mark_replaced, request_replacement
from durable.authority.workloads.admission import AdmissionRequest
from durable.authority.workloads.deadline import miss_deadline
from durable.authority.workloads.deletion import finish_delete, finish_job, request_delete
from durable.authority.workloads.observation_queue import ObservedWorkload
from durable.authority.workloads.rollout_requests import RolloutRequest, request_rollout
from durable.authority.workloads.rows import has_ended, never_admitted, read_workload
from durable.failpoints import Failpoint, reach
from durable.model.ids import Generation, RegionId, Slot
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.states import BindingState
from durable.model.work.job_end import has_missed
from durable.model.work.share import ShareReport, completed_in
from durable.model.work.workload import (
    AdmittedWorkload,
    WorkloadKind,
    WorkloadManifest,
    WorkloadSpec,
)
from durable.signals.names import WORKLOAD_CONTROLLER
from durable.signals.payloads import ApplyWorkload, ReplaceSlots, ScaleWorkload
from durable.validation.problems import problems_in

ACTOR = WORKLOAD_CONTROLLER
SCALE_TRIES = 3


class WorkloadActivities:
    """Activities of the global worker."""

    def __init__(self, side: GlobalSide, client: Client) -> None:
        self._side = side
        self._databases = side.databases
        self._divider = Divider(side, PlacementWorkflows(client))
        self._admission = AdmissionCheck(side.databases)

    @activity.defn
    async def admit(self, step: WorkloadRequest) -> Admission:
        """Checks a manifest against the fleet and records it, once per request id."""
        reach(Failpoint.BEFORE_ADMIT_WORKLOAD)
        try:
            admission = await self._admit_or_recall(step)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_ADMIT_WORKLOAD)
        return admission

    @activity.defn
    async def recall_admission(self, step: WorkloadRequest) -> Admission | None:
        """What the request was answered before, if it was; changes nothing."""
        try:
            return await self._recall_admission(step)
        except RefusedError as error:
            raise refusal_failure(error) from error

    async def _admit_or_recall(self, step: WorkloadRequest) -> Admission:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._admit(step)
            except RefusedError as error:
                # What was answered once stays answered, whatever became of the fleet since.
                admission = await self._recall_admission(step)
                if admission is not None:
                    return admission
                # Only a scale whose workload changed meanwhile is asked again by itself.
                was_changed = error.refusal.code is RefusalCode.WRONG_STATE
                if not was_changed or tries == SCALE_TRIES:
                    raise

    async def _recall_admission(self, step: WorkloadRequest) -> Admission | None:
        answer = await find_answer(self._databases, step.message)
        if answer is None:
            return None
        current = await read_workload(self._databases, step.tenant, step.workload)
        assert current is not None, "a workload keeps its row"
        return _admission(AdmittedWorkload.read(answer), current, is_new=False)

    async def _admit(self, step: WorkloadRequest) -> Admission:
        payload = step.message.payload
        if step.message.message == "apply":
            scales, manifest = None, ApplyWorkload.read(payload).manifest
        else:
            scales = await self._read_live(step)
            manifest = _scaled(step, scales, ScaleWorkload.read(payload).replicas)
        admissible = await self._admission.check(manifest, scales)
        outcome = await self._side.admissions.submit(
            AdmissionRequest(manifest, step.message, admissible.share_of, scales)
        )
        if isinstance(outcome, Refusal):
            raise RefusedError(outcome.code, outcome.sentence)
        self._admission.promise(manifest, admissible.added)
        self._divider.new.note(outcome.current, is_new=outcome.is_new)
        return _admission(outcome.answer, outcome.current, is_new=outcome.is_new)

    async def _read_live(self, step: WorkloadRequest) -> WorkloadSpec:
        """The spec to scale."""
        found = await read_workload(self._databases, step.tenant, step.workload)
        if found is None:
            raise never_admitted(step.tenant, step.workload)
        if found.deleted:
            raise has_ended(found)
        if found.spec.kind is WorkloadKind.JOB:
            raise RefusedError(
                RefusalCode.JOB_NOT_SCALED,
                "A job is one piece of work and is not scaled; apply it with another replica "
                "count to run it again.",
            )
        return found.spec

    @activity.defn
    async def recall(self, key: WorkloadKey) -> AdmittedWorkload | None:
        """What the authority knows of a workload that its workflow has no memory of."""
        return await read_workload(self._databases, key.tenant, key.workload)

    @activity.defn
    async def check_deadline(self, step: DeadlineStep) -> ObservedShares:
        """Records that a job missed its deadline, if its regions say so and the time has come."""
        found = await read_workload(self._databases, step.tenant, step.workload)
        seen = await self.observe(step)
        checked = ObservedShares(reports=seen.reports, unreachable=seen.unreachable)
        if found is None or found.deadline is None or seen.unreachable:
            return checked
        ends = [report.ended_at for report in seen.reports]
        # A part that has not ended is late from the deadline on, by the authority's own clock.
        if not has_missed(found.deadline, found.deadline, ends):
            return checked
        missed_at = await miss_deadline(
            self._databases,
            step.tenant,
            step.workload,
            generation=step.generation,
            completed=len(completed_in(seen.reports)),
            actor=ACTOR,
        )
        return checked.model_copy(update={"missed_at": missed_at})

    @activity.defn
    async def observe(self, step: ObserveStep) -> ObservedShares:
        """How far shares have come, by the regions' own rows."""
        reports: list[ShareReport] = []
        unreachable: list[RegionId] = []
        name = (str(step.tenant), str(step.workload))
        for region in sorted({one.region for one in step.placements}):
            wanted = [(*name, one.generation) for one in step.placements if one.region == region]
            try:
                shares = await asyncio.gather(
                    *(self._side.shares.submit(region, key) for key in wanted)
                )
            except AuthorityError:
                unreachable.append(region)
            except RefusedError:
                continue  # there is no such region
            else:
                reports += [share.report() for share in shares]
        completes = _completes(step, reports)
        recoverable = await self._side.observations.submit(
            ObservedWorkload(step.tenant, step.workload, completes)
        )
        return ObservedShares(
            reports=tuple(reports),
            unreachable=tuple(unreachable),
            is_complete=completes is not None,
            recoverable=recoverable,
        )

    @activity.defn
    async def divide(self, step: DivideStep) -> DivideResult:
        """Gives each region its slots, and its placements their shares, one step at a time."""
        return await self._divider.run(step)

    @activity.defn
    async def change_rollout(self, step: WorkloadRequest) -> str:
        """Pauses, resumes, promotes or rolls back, once per request id."""
        try:
            request = RolloutRequest(step.tenant, step.workload, step.message)
            return await request_rollout(self._databases, request)
        except RefusedError as error:
            raise refusal_failure(error) from error

    @activity.defn
    async def replace(self, step: WorkloadRequest) -> str:
        """Marks the claims of slots to be replaced, once per request id."""
        try:
            return await _replace_slots(self._databases, step)
        except RefusedError as error:
            raise refusal_failure(error) from error

    @activity.defn
    async def delete(self, step: WorkloadRequest) -> Deletion:
        """Records that the workload is to be deleted, once per request id."""
        try:
            deletion = await request_delete(
                self._databases, step.tenant, step.workload, step.message
            )
        except RefusedError as error:
            raise refusal_failure(error) from error
        return Deletion(answer=deletion.sentence, deleting=deletion.target.deleting)

    @activity.defn
    async def finish(self, step: FinishStep) -> None:
        """Ends the workload; refused while a region owns a slot of it, and tried again."""
        workload = (self._databases, step.tenant, step.workload)
        if step.deleted:
            await finish_delete(*workload, generation=step.generation, actor=ACTOR)
        else:
            await finish_job(
                *workload,
                generation=step.generation,
                conditions=step.conditions,
                replicas_by_state=step.replicas_by_state,
                actor=ACTOR,
            )

    @activity.defn
    async def audit(self, step: AuditMessages) -> None:
        """Writes messages into the global side's audit, accepted or not."""
        await write_messages(self._databases, audit.GLOBAL_CHAIN, step)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.admit, self.recall_admission, self.recall, self.observe, self.divide, self.delete,
            self.finish, self.audit, self.change_rollout, self.replace, self.check_deadline,
        )  # fmt: skip


def _admission(answer: AdmittedWorkload, current: AdmittedWorkload, *, is_new: bool) -> Admission:
    now = None if current == answer else current
    return Admission(answer=answer, now=now, is_new=is_new)


def _scaled(step: WorkloadRequest, spec: WorkloadSpec, replicas: int) -> WorkloadManifest:
    try:
        wanted = {**spec.model_dump(mode="json"), "replicas": replicas}
        return WorkloadManifest.model_validate(
            {"tenant": step.tenant, "name": step.workload, "spec": wanted}
        )
    except ValidationError as error:
        why = "; ".join(problem.message for problem in problems_in(error, WorkloadManifest))
        sentence = f"{step.tenant}/{step.workload} cannot have {replicas} replicas: {why}"
        raise RefusedError(RefusalCode.INVALID, sentence) from None


def _completes(step: ObserveStep, reports: Sequence[ShareReport]) -> Generation | None:
    """The generation that is good, once all of it serves."""
    serving = step.serving_elsewhere + sum(
        report.by_state.get(BindingState.SERVING, 0)
        for report in reports
        if report.generation == step.completes
    )
    return step.completes if serving >= step.wanted else None


async def _replace_slots(databases: Databases, step: WorkloadRequest) -> str:
    """Marks the claims that slots have now; sent again, those that they had then."""
    message, of = step.message, (step.tenant, step.workload)
    wanted = await _known_slots(databases, step, ReplaceSlots.read(message.payload).slots)
    answer = await _claims_of(databases, step, wanted)
    recorded = await request_replacement(databases, *of, message, answer)
    for region, tokens in recorded["tokens"].items():
        await mark_replaced(
            databases,
            RegionId(region),
            tokens,
            request=message.request_id,
            actor=message.actor,
            reason=message.reason,
        )
    return str(recorded["answer"])


async def _known_slots(
    databases: Databases, step: WorkloadRequest, slots: Sequence[Slot]
) -> list[Slot]:
    found = await read_workload(databases, step.tenant, step.workload)
    if found is None:
        raise never_admitted(step.tenant, step.workload)
    known = {slot for slots in found.share.values() for slot in slots}
    unknown = sorted(set(slots) - known)
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_SLOT,
            f"{step.tenant}/{step.workload} has no slot {unknown[0]}; it has {len(known)}, from 0.",
        )
    return sorted(slots or known)


async def _claims_of(databases: Databases, step: WorkloadRequest, wanted: Sequence[Slot]) -> Answer:
    which = ClaimFilter(tenant=step.tenant, workload=step.workload, slots=wanted)
    found = await ask_regions(
        await list_regions(databases),
        lambda region: read_claims(databases, region, which),
    )
    tokens = {
        str(region): sorted(claim.token for claim in claims)
        for region, claims in found.by_region.items()
        if claims
    }
    count = sum(map(len, tokens.values()))
    sentence = f"Replacing {count} of {len(wanted)} slots; one without a claim needs no replacing."
    missing = "".join(f" {region} does not answer." for region in found.unreachable)
    return {"answer": sentence + missing, "tokens": tokens}

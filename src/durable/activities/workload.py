"""The steps of a workload: admit, divide, release, delete, finish."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from durable.activities.audit import AuditMessages, write_messages
from durable.activities.placement_workflows import PlacementWorkflows
from durable.activities.workload_steps import (
    AdmitStep,
    Admitted,
    DeleteStep,
    Divided,
    DivideStep,
    FinishStep,
    Recalled,
    ReleaseStep,
    WorkloadKey,
)
from durable.authority.audit import chain as audit
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.shares import read_shares
from durable.authority.sides import GlobalSide
from durable.authority.slots.reconciliation import reconcile_slots
from durable.authority.workloads.admission import AdmissionRequest
from durable.authority.workloads.admission_queue import AdmissionResult
from durable.authority.workloads.deletion import finish_delete, finish_job, request_delete
from durable.authority.workloads.rows import read_workload
from durable.failpoints import Failpoint, reach
from durable.model.ids import RegionId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.workload import AdmittedWorkload, WorkloadManifest
from durable.plan.admission import AdmissionCheck
from durable.scheduling.split import split
from durable.signals.names import WORKLOAD_CONTROLLER
from durable.signals.payloads import ReleasePlacement
from durable.validation.problems import problems_in

ACTOR = WORKLOAD_CONTROLLER
# The type of the activity failure that carries a refusal's sentence, with its code as a detail.
REFUSED = "refused"


class WorkloadActivities:
    """Activities of the global worker."""

    def __init__(self, side: GlobalSide, client: Client) -> None:
        self._side = side
        self._databases = side.databases
        self._placements = PlacementWorkflows(client)
        self._admission = AdmissionCheck(side.databases)

    @activity.defn
    async def admit(self, step: AdmitStep) -> Admitted:
        """Checks a manifest against the fleet and records it, once per request id."""
        reach(Failpoint.BEFORE_ADMIT_WORKLOAD)
        try:
            answered = await self._admit(step)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_ADMIT_WORKLOAD)
        current = answered.current
        return Admitted(
            generation=current.generation,
            spec=current.spec,
            share=current.share,
            answered_generation=answered.answer.generation,
            existed=answered.existed,
            deleting=current.deleting,
            deleted=current.deleted,
        )

    async def _admit(self, step: AdmitStep) -> AdmissionResult:
        manifest = step.manifest
        if step.replicas is not None:
            manifest = _scaled(manifest, step.replicas)
        regions = await self._admission.regions_for(manifest)

        def share_of(before: AdmittedWorkload | None) -> Mapping[RegionId, tuple[int, ...]]:
            current = {} if before is None else {str(r): s for r, s in before.share.items()}
            divided = split(manifest.spec, regions, current)
            return {RegionId(region): slots for region, slots in divided.items() if slots}

        outcome = await self._side.admissions.submit(
            AdmissionRequest(manifest, step.request, step.actor, share_of)
        )
        if isinstance(outcome, Refusal):
            raise RefusedError(outcome.code, outcome.sentence)
        return outcome

    @activity.defn
    async def recall(self, key: WorkloadKey) -> Recalled | None:
        """What the authority knows of a workload that its workflow has no memory of."""
        found = await read_workload(self._databases, key.tenant, key.workload)
        if found is None:
            return None
        # Of this generation also what is over: a job may have been done meanwhile.
        present = (str(key.tenant), str(key.workload), found.generation)
        shares = [
            share
            for region in await list_regions(self._databases)
            for share in await read_shares(
                self._databases,
                region,
                key.tenant,
                key.workload,
                also=[present] if region in found.share else (),
            )
        ]
        return Recalled(
            generation=found.generation,
            spec=found.spec,
            share=found.share,
            deleting=found.deleting,
            deleted=found.deleted,
            reports=tuple(share.report() for share in shares),
        )

    @activity.defn
    async def divide(self, step: DivideStep) -> Divided:
        """Gives each region its slots, and its placement its share.

        A region that cannot be reached does not keep the others from hearing of theirs.
        """
        divided = Divided()
        if step.share is not None:
            try:
                waits = await reconcile_slots(
                    self._side.slots,
                    step.tenant,
                    step.workload,
                    step.share,
                    transfer=step.transfer,
                    actor=ACTOR,
                )
                divided = Divided(waits=tuple(waits))
            except (AuthorityError, RefusedError) as error:
                divided = Divided(unreachable=str(error)[:500])
        reach(Failpoint.AFTER_ASSIGN_SLOTS)
        ended: list[RegionId] = []
        for one in step.openings:
            target = (one.key, one.share, step.task_timeout)
            if one.is_first and await self._placements.start(*target):
                continue
            if not await self._placements.signal(*target, "set_share", one.share):
                ended.append(one.key.region)
        reach(Failpoint.AFTER_OPEN_PLACEMENTS)
        return divided.model_copy(update={"ended": tuple(ended)})

    @activity.defn
    async def release(self, step: ReleaseStep) -> bool:
        """Asks a placement to stop everything; false when it has ended."""
        payload = ReleasePlacement(actor=ACTOR, reason=step.reason[:500], request_id=step.request)
        return await self._placements.signal(
            step.key, step.share, step.task_timeout, "release", payload
        )

    @activity.defn
    async def delete(self, step: DeleteStep) -> None:
        """Records that the workload is to be deleted, once per request id."""
        try:
            await request_delete(
                self._databases,
                step.tenant,
                step.workload,
                request=step.request,
                actor=step.actor,
                reason=step.reason,
            )
        except RefusedError as error:
            raise refusal_failure(error) from error

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
            self.admit, self.recall, self.divide, self.release, self.delete, self.finish,
            self.audit,
        )  # fmt: skip


def _scaled(manifest: WorkloadManifest, replicas: int) -> WorkloadManifest:
    try:
        spec = {**manifest.spec.model_dump(mode="json"), "replicas": replicas}
        return WorkloadManifest.model_validate({**manifest.model_dump(mode="json"), "spec": spec})
    except ValidationError as error:
        why = "; ".join(problem.message for problem in problems_in(error, WorkloadManifest))
        sentence = f"{manifest.tenant}/{manifest.name} cannot have {replicas} replicas: {why}"
        raise RefusedError(RefusalCode.INVALID, sentence[:500]) from None


def refusal_failure(error: RefusedError) -> ApplicationError:
    """A refusal as workflows and their callers see it: final, expected, and in a sentence."""
    return ApplicationError(
        error.refusal.sentence,
        error.refusal.code.value,
        type=REFUSED,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )

"""What a workload's workflow has done for it: admission, slots, placements, and its end."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import (
    ApplicationError,
    ApplicationErrorCategory,
    WorkflowAlreadyStartedError,
)
from temporalio.service import RPCError

from durable.activities.rejected import audit_messages
from durable.activities.steps import (
    AdmitStep,
    Admitted,
    DeleteStep,
    Divided,
    DivideStep,
    Finish,
    FirstDivision,
    Opening,
    Recalled,
    Rejected,
    ReleasePlacement,
    Share,
    WorkloadKey,
)
from durable.authority.audit import chain as audit
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.authority.global_side import GlobalSide
from durable.authority.reads.shares import read_shares
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
from durable.signals import search_attributes
from durable.signals.messages import Message, Release, Resize
from durable.signals.names import (
    PLACEMENT,
    WORKLOAD_CONTROLLER,
    placement_id,
    regional_queue,
    workload_id,
)
from durable.validation.problems import problems_in

ACTOR = WORKLOAD_CONTROLLER
# The name of the activity failure that carries a refusal's sentence, with its code as a detail.
REFUSED = "refused"


class WorkloadActivities:
    """Activities of the global worker."""

    def __init__(self, side: GlobalSide, client: Client) -> None:
        self._side = side
        self._databases = side.databases
        self._client = client
        self._admission = AdmissionCheck(side.databases)

    @activity.defn
    async def admit(self, step: AdmitStep) -> Admitted:
        """Checks a manifest against the fleet and writes it down, once per request id.

        A workload that is new is given to its regions as well, which spares the server a step;
        where that fails, its workflow does it.
        """
        reach(Failpoint.BEFORE_ADMIT_WORKLOAD)
        try:
            answered = await self._admit(step)
        except RefusedError as error:
            raise refusal(error) from error
        reach(Failpoint.AFTER_ADMIT_WORKLOAD)
        answer, current = answered.answer, answered.current
        admitted = Admitted(
            generation=current.generation,
            spec=current.spec,
            share=current.share,
            answered_generation=answer.generation,
            deleting=current.deleting,
            deleted=current.deleted,
            existed=answered.existed,
        )
        if step.first is None or answered.existed:
            return admitted
        try:
            divided = await self.divide(_first(step.manifest, admitted, step.first))
        except (AuthorityError, RPCError):
            return admitted
        return admitted.model_copy(update={"divided": divided})

    @activity.defn
    async def recall(self, key: WorkloadKey) -> Recalled | None:
        """What there is of a workload, whoever forgot it."""
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
    async def divide(self, step: DivideStep) -> Divided:
        """Gives each region its slots, and tells its placement, which is started if need be.

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
            to = (one.share, one.wanted, step.task_timeout)
            started = one.is_first and await self._start(*to)
            if not started and not await self._tell(*to, "resize", one.wanted):
                ended.append(one.share.region)
        reach(Failpoint.AFTER_OPEN_PLACEMENTS)
        return divided.model_copy(update={"ended": tuple(ended)})

    @activity.defn
    async def release(self, step: ReleasePlacement) -> bool:
        """Asks a placement to stop everything; false when it has come to its end."""
        message = Release(actor=ACTOR, reason=step.reason[:500], request_id=step.request)
        return await self._tell(step.share, step.wanted, step.task_timeout, "release", message)

    async def _tell(
        self, share: Share, wanted: Resize, task_timeout: timedelta, name: str, message: Message
    ) -> bool:
        """Signals the placement, starting it if there is none or if it was terminated.

        One that is started anew finds out by itself what stands. One that came to its end is not
        started again, and the answer says so.
        """
        return await self._start(
            share,
            wanted,
            task_timeout,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=name,
            start_signal_args=[message],
        )

    async def _start(
        self, share: Share, wanted: Resize, task_timeout: timedelta, **signalled: Any
    ) -> bool:
        """Starts a placement; false when there is one, or was one that came to its end."""
        try:
            await self._client.start_workflow(
                PLACEMENT,
                {"share": share, "wanted": wanted},
                id=placement_id(share.tenant, share.workload, share.generation, share.region),
                task_queue=regional_queue(share.region),
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                task_timeout=task_timeout,
                search_attributes=_attributes(share),
                static_summary=str(share),
                static_details="One region's share of "
                f"`{workload_id(share.tenant, share.workload)}`, which owns it. Where it is now "
                "stands under current details. To stop it from placing, send `hold`; a paused "
                "workflow hears nothing, not even that its nodes are lost.",
                **signalled,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    @activity.defn
    async def request_delete(self, step: DeleteStep) -> None:
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
            raise refusal(error) from error

    @activity.defn
    async def finish(self, step: Finish) -> None:
        """Lets the workload go; it is refused while a region owns a slot, and asked again."""
        of = (self._databases, step.tenant, step.workload)
        if step.deleted:
            await finish_delete(*of, generation=step.generation, actor=ACTOR)
        else:
            await finish_job(
                *of,
                generation=step.generation,
                conditions=step.conditions,
                replicas_by_state=step.replicas_by_state,
                actor=ACTOR,
            )

    @activity.defn
    async def audit_globally(self, rejected: Rejected) -> None:
        await audit_messages(self._databases, audit.GLOBAL_CHAIN, rejected)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.admit, self.recall, self.divide, self.release, self.request_delete,
            self.finish, self.audit_globally,
        )  # fmt: skip


def _first(manifest: WorkloadManifest, admitted: Admitted, first: FirstDivision) -> DivideStep:
    openings = [
        Opening(
            share=Share(
                region=region,
                tenant=manifest.tenant,
                workload=manifest.name,
                generation=admitted.generation,
            ),
            wanted=Resize(slots=slots, spec=admitted.spec, revision=first.revision),
            is_first=True,
        )
        for region, slots in admitted.share.items()
    ]
    return DivideStep(
        tenant=manifest.tenant,
        workload=manifest.name,
        share=admitted.share,
        transfer=first.transfer,
        openings=tuple(openings),
        task_timeout=first.task_timeout,
    )


def _scaled(manifest: WorkloadManifest, replicas: int) -> WorkloadManifest:
    try:
        spec = {**manifest.spec.model_dump(mode="json"), "replicas": replicas}
        return WorkloadManifest.model_validate({**manifest.model_dump(mode="json"), "spec": spec})
    except ValidationError as error:
        said = "; ".join(problem.message for problem in problems_in(error, WorkloadManifest))
        sentence = f"{manifest.tenant}/{manifest.name} cannot have {replicas} replicas: {said}"
        raise RefusedError(RefusalCode.INVALID, sentence[:500]) from None


def refusal(error: RefusedError) -> ApplicationError:
    """A refusal as workflows and their callers see it: final, expected, and in a sentence."""
    return ApplicationError(
        error.refusal.sentence,
        error.refusal.code.value,
        type=REFUSED,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def _attributes(share: Share) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(search_attributes.TENANT, str(share.tenant)),
            SearchAttributePair(search_attributes.WORKLOAD, str(share.workload)),
            SearchAttributePair(search_attributes.REGION, str(share.region)),
            SearchAttributePair(search_attributes.PHASE, search_attributes.PROGRESSING),
        ]
    )

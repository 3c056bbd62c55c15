"""The SDK for services: apply, place, scale, roll back, delete, wait, explain, get, show, follow.

    async with await Durable.connect() as durable:
        await durable.apply(manifest, request_id="deploy-42")
        status = await durable.wait("risk", "risk-api", until="serving")
        nodes = await durable.get("nodes", region="us-east")

Every change is idempotent by its request id: the same id with the same payload is answered as it
was the first time, with another payload it is refused. A refusal is a `RefusedError`, whose
`refusal` has a code for programs and a sentence for people.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, Unpack, get_args

from pydantic import ValidationError
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from durable.authority.db.connection import Databases
from durable.authority.workloads.rows import has_ended, never_admitted, read_workload
from durable.explain.rollback import refuse_rolled_back
from durable.health.diagnosis import workflow_health
from durable.health.workflows import WorkflowHealth
from durable.model.ids import ActorId, Generation, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.phases import WorkloadPhase
from durable.model.work.workload import AdmittedWorkload, WorkloadKind, WorkloadManifest
from durable.plan.planner import Plan
from durable.resources.reader import Reader, names_of
from durable.settings import Settings
from durable.signals.names import workload_id
from durable.signals.status import WorkloadStatus
from durable.state_dir.record import StackError
from durable.temporal.connection import connect
from durable.temporal.drains import Drains
from durable.temporal.overrides import Overrides
from durable.temporal.policies import Policies
from durable.temporal.recoveries import Recoveries
from durable.temporal.sender import (
    MessageSender,
    RequestFields,
    Target,
    WorkloadKey,
    receiver_of,
)
from durable.temporal.signing import Signer, read_key, signer_of
from durable.temporal.updates import PATIENT, NotYetError, Patience, send_until_answered
from durable.validation.problems import in_one_line, problems_in

Until = Literal["bound", "ready", "serving", "complete", "deleted"]

# Every poll costs the workflow's worker a task: a long wait polls less often.
POLL_SECONDS, POLL_LONGEST_SECONDS = 0.25, 2.0
# After these, what was applied before is not what the next wait is for.
_WANTS_ANOTHER = frozenset({"scale", "rollback"})
# Of so many workloads a connection remembers which generation it applied.
APPLIED_KEPT = 10_000


class WaitTimeoutError(TimeoutError):
    """The workload did not get there in time; `status` says how far it came."""

    def __init__(self, sentence: str, status: WorkloadStatus | None) -> None:
        super().__init__(sentence)
        self.status = status


class Durable(Reader):
    """A connection to the control plane; `async with` closes it."""

    def __init__(
        self,
        client: Client,
        databases: Databases,
        actor: ActorId,
        patience: Patience = PATIENT,
        signer: Signer | None = None,
    ) -> None:
        super().__init__(databases, self._workflow_health)
        self.client = client
        self.actor = actor
        self._patience = patience
        self._sender = MessageSender(client, databases, actor, signer, patience)
        # What this connection applied last: a wait afterwards is for that.
        self._applied: dict[str, Generation] = {}

    @property
    def signer(self) -> Signer:
        """With the actor's key, if there is one."""
        return self._sender.signer

    @signer.setter
    def signer(self, signer: Signer) -> None:
        self._sender.signer = signer

    @property
    def policies(self) -> Policies:
        """The revisions of the scheduler policy: publish, promote, roll back."""
        return Policies(self._sender)

    @property
    def recoveries(self) -> Recoveries:
        """Regions that are lost: declare, follow, fail back."""
        return Recoveries(self._sender)

    @property
    def drains(self) -> Drains:
        """Emptying nodes."""
        return Drains(self._sender)

    @property
    def overrides(self) -> Overrides:
        """What people decide for a while."""
        return Overrides(self._sender)

    @classmethod
    async def connect(
        cls,
        settings: Settings | None = None,
        *,
        actor: str | None = None,
        within_seconds: float | None = None,
    ) -> "Durable":
        """Connects by the given settings, else by those of the environment.

        Every change is asked for by `actor`, who must be an operator with the right to it; without
        one, by DURABLE_ACTOR or the user of this process.
        `within_seconds` limits how long a request waits for its answer.
        """
        known = settings or Settings.from_environment(os.environ)
        client = await connect(known, known.require_temporal_address())
        databases = Databases(known.require_database_url(), known.known_regional_urls())
        acting = ActorId(actor or known.acting_as)
        try:
            signer = await signer_of(databases, read_key(known.own_keys, acting))
        except BaseException:
            await databases.close()
            raise
        return cls(client, databases, acting, Patience.within(within_seconds), signer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.databases.close()

    # ── changes ─────────────────────────────────────────────────────────────────────────────────

    async def send(self, target: Target, message: str, **fields: Any) -> Any:
        """Sends any message of the registry, and returns its answer; it counts once by request id.

        The fields are the payload's, with a reason and a request id. The target is a key, such as
        an OverrideId, or the id of its workflow.
        """
        answer = await self._sender.send(target, message, **fields)
        workload = receiver_of(target).workload
        if workload is not None:
            self._note_wanted(workload, message, answer)
        return answer

    async def apply(
        self,
        manifest: WorkloadManifest | Mapping[str, Any],
        **who: Unpack[RequestFields],
    ) -> AdmittedWorkload:
        """Sets the desired state of a workload; returns its generation and the regions' shares."""
        wanted = read_manifest(manifest)
        return await self.send((wanted.tenant, wanted.name), "apply", manifest=wanted, **who)

    async def scale(
        self, tenant: str, name: str, replicas: int, **who: Unpack[RequestFields]
    ) -> AdmittedWorkload:
        """Changes the replica count."""
        return await self.send(names_of(tenant, name), "scale", replicas=replicas, **who)

    async def delete(self, tenant: str, name: str, **who: Unpack[RequestFields]) -> str:
        """Stops and releases everything; `wait(..., until="deleted")` returns when it is gone."""
        return await self.send(names_of(tenant, name), "delete", **who)

    async def pause(self, tenant: str, name: str, **who: Unpack[RequestFields]) -> str:
        """Replaces nothing more of a rollout until it is resumed."""
        return await self.send(names_of(tenant, name), "pause", **who)

    async def resume(self, tenant: str, name: str, **who: Unpack[RequestFields]) -> str:
        """Goes on with a rollout that was paused."""
        return await self.send(names_of(tenant, name), "resume", **who)

    async def promote(self, tenant: str, name: str, **who: Unpack[RequestFields]) -> str:
        """Goes on past a pause point of the spec."""
        return await self.send(names_of(tenant, name), "promote", **who)

    async def rollback(
        self, tenant: str, name: str, *, to: int | None = None, **who: Unpack[RequestFields]
    ) -> str:
        """Goes back to the last generation that was good, or to another one that was."""
        return await self.send(names_of(tenant, name), "rollback", to=to, **who)

    async def replace(
        self, tenant: str, name: str, *, slots: Sequence[int] = (), **who: Unpack[RequestFields]
    ) -> str:
        """Replaces slots (all if none is named), each up before another is stopped."""
        return await self.send(names_of(tenant, name), "replace", slots=tuple(slots), **who)

    async def place(
        self,
        manifest: WorkloadManifest | Mapping[str, Any],
        *,
        request_id: str,
        within_seconds: float | None = 300.0,
    ) -> WorkloadStatus:
        """Applies, and waits until a service serves or a job is complete."""
        wanted = read_manifest(manifest)
        await self.apply(wanted, request_id=request_id)
        until: Until = "complete" if wanted.spec.kind is WorkloadKind.JOB else "serving"
        return await self.wait(
            wanted.tenant, wanted.name, until=until, within_seconds=within_seconds
        )

    # ── why ─────────────────────────────────────────────────────────────────────────────────────

    async def plan(self, manifest: WorkloadManifest | Mapping[str, Any]) -> Plan:
        """What an apply would do now and why, or its refusal; changes nothing."""
        return await self.planner().plan(read_manifest(manifest))

    async def _workflow_health(self, tenant: TenantId | None) -> WorkflowHealth | None:
        """What lists say of workflows in trouble; nothing if Temporal does not answer."""
        with suppress(StackError):
            return await workflow_health(self.client, self.databases, tenant)

    # ── status ──────────────────────────────────────────────────────────────────────────────────

    async def status(self, tenant: str, name: str) -> WorkloadStatus:
        """The workload as its workflow knows it, also after it has ended."""
        workload = names_of(tenant, name)
        handle = self._handle(*workload)

        async def query() -> WorkloadStatus:
            try:
                found = await handle.query("status", rpc_timeout=self._patience.each)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                found = None
            if found is None:
                raise await self._why_unknown(*workload)
            return WorkloadStatus.read(found)

        return await send_until_answered(f"read {tenant}/{name}", query, patience=self._patience)

    async def _why_unknown(
        self, tenant: TenantId, name: WorkloadName
    ) -> RefusedError | NotYetError:
        """What it means that the workflow knows of no workload, or does not exist."""
        known = await read_workload(self.databases, tenant, name)
        if known is None:
            return never_admitted(tenant, name)
        if known.deleted:
            return has_ended(known)
        return NotYetError(
            f"generation {known.generation} is admitted, but its workflow has no memory of it yet; "
            "`durable doctor` says whether it runs, and `durable reconcile` restarts what does not."
        )

    async def progress(
        self, tenant: str, name: str, *, until: Until = "serving"
    ) -> AsyncIterator[WorkloadStatus]:
        """Yields every status that differs from the one before, until all replicas got there.

        Refuses with `rolled_back` if what this connection applied is not wanted any more.
        """
        if until not in get_args(Until):
            raise RefusedError(
                RefusalCode.INVALID,
                f"until: {until!r} is none of {', '.join(get_args(Until))}.",
            )
        last: WorkloadStatus | None = None
        pause = POLL_SECONDS
        while True:
            status = await self.status(tenant, name)
            pause = min(POLL_LONGEST_SECONDS, pause * 1.2)
            if status != last:
                last, pause = status, POLL_SECONDS
                yield status
                await self._refuse_rolled_back(status)
            if await self._has_arrived(status, until):
                return
            await asyncio.sleep(pause)

    async def wait(
        self,
        tenant: str,
        name: str,
        *,
        until: Until = "serving",
        within_seconds: float | None = 300.0,
    ) -> WorkloadStatus:
        """Waits until every replica got there; a WaitTimeoutError says how far they came."""
        last: WorkloadStatus | None = None
        try:
            async with asyncio.timeout(within_seconds):
                async for status in self.progress(tenant, name, until=until):
                    last = status
        except TimeoutError:
            raise WaitTimeoutError(
                _too_late(tenant, name, until, within_seconds, last), last
            ) from None
        assert last is not None
        return last

    async def _has_arrived(self, status: WorkloadStatus, until: Until) -> bool:
        if until == "deleted":
            described = await self._handle(status.tenant, status.workload).describe()
            return status.deleting and described.close_time is not None
        if until == "complete":
            return status.phase in (WorkloadPhase.COMPLETE, WorkloadPhase.FAILED)
        if status.deleting:
            raise RefusedError(
                RefusalCode.BEING_DELETED,
                f"{status.tenant}/{status.workload} is being deleted and will not be {until}.",
            )
        # Not `>=`: what is wanted may be an older generation again.
        current = status.observed_generation == status.generation
        return current and status.has_reached(until)

    def _note_wanted(self, workload: WorkloadKey, message: str, answer: Any) -> None:
        key = workload_id(*workload)
        if message == "apply" or message in _WANTS_ANOTHER:
            self._applied.pop(key, None)
        if message == "apply":
            self._applied[key] = answer.generation
        if len(self._applied) > APPLIED_KEPT:
            del self._applied[next(iter(self._applied))]

    async def _refuse_rolled_back(self, status: WorkloadStatus) -> None:
        workload = workload_id(status.tenant, status.workload)
        applied = self._applied.get(workload)
        if applied is None or applied == status.generation or status.deleting:
            return
        try:
            await refuse_rolled_back(
                self.databases,
                status.tenant,
                status.workload,
                applied=applied,
                wanted=status.generation,
            )
        except RefusedError:
            # Said once: a later wait is for whatever is wanted then.
            del self._applied[workload]
            raise

    def _handle(self, tenant: str, name: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(workload_id(*names_of(tenant, name)))


def read_manifest(manifest: WorkloadManifest | Mapping[str, Any]) -> WorkloadManifest:
    """The manifest as a value, or one refusal that names every wrong field."""
    if isinstance(manifest, WorkloadManifest):
        return manifest
    if not isinstance(manifest, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RefusedError(
            RefusalCode.INVALID,
            "A manifest is a WorkloadManifest or a mapping with tenant, name and spec, such as "
            "yaml.safe_load gives of one document.",
        )
    try:
        return WorkloadManifest.model_validate(dict(manifest))
    except ValidationError as error:
        problems = in_one_line(problems_in(error, WorkloadManifest))
        raise RefusedError(RefusalCode.INVALID, f"The manifest is wrong: {problems}") from None


def _too_late(
    tenant: str, name: str, until: Until, timeout: float | None, last: WorkloadStatus | None
) -> str:
    if last is None:
        return f"{tenant}/{name} did not answer within {timeout:.0f} s."
    why = f" It waits: {last.waits_for[0]}" if last.waits_for else ""
    is_job = last.spec.kind is WorkloadKind.JOB
    phases = ("bound", "completed") if is_job else ("bound", "ready", "serving")
    counts = ", ".join(f"{getattr(last, phase)} {phase}" for phase in phases)
    return f"{tenant}/{name} is not {until} after {timeout:.0f} s: {counts} of {last.wanted}.{why}"

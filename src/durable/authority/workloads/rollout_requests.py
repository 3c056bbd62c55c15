"""What people request of a rollout: pause, resume, promote, roll back; each once per request id."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.workloads.events import audit_workload
from durable.authority.workloads.generations import (
    append_generations,
    find_generations,
    keep_shares,
    record_rollback,
    unknown_generation,
)
from durable.authority.workloads.ledger import RequestIdentity, RequestKind, RequestLedger
from durable.authority.workloads.rollouts import advance_rollout, go_back, share_of
from durable.authority.workloads.rows import (
    ROLE,
    has_ended,
    lock_workload,
    never_admitted,
    write_workloads,
)
from durable.model.ids import ActorId, Generation, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage, Scope, Verb
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import (
    GenerationRecord,
    RolloutPause,
    RolloutState,
)
from durable.model.work.workload import (
    AdmittedWorkload,
    WorkloadKind,
    WorkloadSpec,
    template_of,
    with_template,
)
from durable.signals.names import workload_id

_NOW = text("SELECT clock_timestamp()")

_ACTIONS = {
    RequestKind.PAUSE: "pause rollout",
    RequestKind.RESUME: "resume rollout",
    RequestKind.PROMOTE: "promote rollout",
    RequestKind.ROLLBACK: "roll back",
}


@dataclass(frozen=True)
class RolloutRequest:
    """Who requests what of which workload's rollout, and why."""

    tenant: TenantId
    workload: WorkloadName
    kind: RequestKind
    request: str
    actor: ActorId
    reason: str
    # Which generation to go back to; None for the last one that was good.
    to: Generation | None = None
    # The message as it came, if it was signed.
    signed: OperatorMessage | None = None

    @property
    def message(self) -> OperatorMessage:
        """Who asks, for the authority to judge."""
        return self.signed or OperatorMessage.unsigned(
            workload_id(self.tenant, self.workload),
            self.kind,
            actor=self.actor,
            reason=self.reason,
            request_id=self.request,
        )

    @property
    def identity(self) -> RequestIdentity:
        payload = {} if self.to is None else {"to": self.to}
        of = (self.tenant, self.workload, self.request, self.kind)
        return RequestIdentity(*of, payload, self.actor, self.signed)

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.workload}"


@global_transaction(ROLE, "change the rollout of {asked.name}")
async def request_rollout(connection: AsyncConnection, asked: RolloutRequest) -> str:
    """The answer; the same one whenever the request comes again."""
    before = await lock_workload(connection, asked.tenant, asked.workload)
    if before is None:
        raise never_admitted(asked.tenant, asked.workload)
    ledger = await RequestLedger.read(connection, [asked.identity])
    recorded = ledger.recall(asked.identity)
    if recorded is not None:
        return str(recorded["answer"])
    await authorize(connection, asked.message, Verb.ROLLOUT, Scope(tenant=asked.tenant))
    if before.deleted:
        raise has_ended(before)
    if before.deleting:
        raise RefusedError(RefusalCode.BEING_DELETED, f"{asked.name} is being deleted.")
    if before.spec.kind is WorkloadKind.JOB:
        raise _refused(
            f"{asked.name} is a job, and a job does not roll out; apply it to run it anew."
        )
    answer = await _HANDLERS[asked.kind](connection, before, asked)
    await audit_workload(
        connection,
        before,
        _ACTIONS[asked.kind],
        asked.actor,
        {"reason": asked.reason, "request": asked.request, "answer": answer},
        before={"generation": before.generation},
    )
    ledger.record(asked.identity, {"answer": answer})
    await ledger.write(connection)
    return answer


async def _pause(
    connection: AsyncConnection, before: AdmittedWorkload, asked: RolloutRequest
) -> str:
    rollout = _rolling(before, asked)
    if rollout.goes_back(before.generation, before.stable_generation):
        raise _refused(f"{asked.name} goes back to generation {before.generation}; let it.")
    if rollout.undoing is not None:
        raise _refused(
            f"Generation {before.generation} of {asked.name} has failed, and no other one was ever "
            "good; apply another version."
        )
    if rollout.pause is not None:
        raise _refused(f"{asked.name} was paused already, by {rollout.pause}.")
    now = (await connection.execute(_NOW)).scalar_one()
    pause = RolloutPause(actor=asked.actor, reason=asked.reason, since=now)
    await advance_rollout(connection, before, rollout.model_copy(update={"pause": pause}))
    return "Paused: nothing more is replaced until somebody resumes."


async def _resume(
    connection: AsyncConnection, before: AdmittedWorkload, asked: RolloutRequest
) -> str:
    rollout = _rolling(before, asked)
    if rollout.pause is None:
        raise _refused(f"{asked.name} is not paused.")
    now = (await connection.execute(_NOW)).scalar_one()
    resumed = {"pause": None, "progressed_at": now}
    await advance_rollout(connection, before, rollout.model_copy(update=resumed))
    return f"Resumed; it was paused by {rollout.pause}."


async def _promote(
    connection: AsyncConnection, before: AdmittedWorkload, asked: RolloutRequest
) -> str:
    rollout = _rolling(before, asked)
    points = len(before.spec.rollout.pauses)
    if rollout.undoing is not None or rollout.promoted >= points:
        raise _refused(
            f"{asked.name} has no pause point left (rollout.pauses has {points}); "
            "to stop it, pause it, and to go on, resume it."
        )
    now = (await connection.execute(_NOW)).scalar_one()
    passed = {"promoted": rollout.promoted + 1, "progressed_at": now}
    await advance_rollout(connection, before, rollout.model_copy(update=passed))
    return f"Promoted past pause point {rollout.promoted + 1} of {points}."


async def _roll_back(
    connection: AsyncConnection, before: AdmittedWorkload, asked: RolloutRequest
) -> str:
    records = await find_generations(connection, asked.tenant, asked.workload)
    target = _target(before, records, asked)
    why = f"{asked.actor}: {asked.reason}"
    if before.rollout is not None and target.generation == before.stable_generation:
        await go_back(connection, before, reason=why)
        return f"Going back to generation {target.generation}; what it has not replaced stays."
    # What ran it has ended: its spec becomes the next generation.
    now = (await connection.execute(_NOW)).scalar_one()
    after = before.model_copy(
        update={
            "generation": before.generations + 1,
            "generations": before.generations + 1,
            "revision": before.revision + 1,
            "spec": with_template(before.spec, WorkloadSpec.read(target.spec)),
            "share": await share_of(connection, before, target),
            "rollout": RolloutState(started_at=now, progressed_at=now),
        }
    )
    await write_workloads(connection, [after])
    await keep_shares(connection, [before])
    row = after.model_dump(mode="json", include={"tenant", "workload", "generation", "spec"})
    reason = f"roll back to generation {target.generation}: {asked.reason}"
    await append_generations(connection, [{**row, "actor": str(asked.actor), "reason": reason}])
    left = (asked.tenant, asked.workload, before.generation)
    await record_rollback(connection, *left, why)
    return f"Rolling out generation {after.generation}, which is what {target.generation} was."


def _target(
    before: AdmittedWorkload, records: list[GenerationRecord], asked: RolloutRequest
) -> GenerationRecord:
    known = {record.generation: record for record in records}
    if asked.to is not None and asked.to not in known:
        raise unknown_generation(asked.tenant, asked.workload, asked.to, known)
    current = template_of(before.spec)
    good = [
        record
        for record in records
        if record.completed_at is not None
        and template_of(WorkloadSpec.read(record.spec)) != current
    ]
    listed = ", ".join(str(record.generation) for record in good) or "none"
    if asked.to is None:
        rollout = before.rollout
        if rollout is not None and rollout.goes_back(before.generation, before.stable_generation):
            raise _refused(f"{asked.name} goes back to generation {before.generation} already.")
        if not good:
            raise _refused(f"{asked.name} has no other generation that was ever good.")
        stable = [record for record in good if record.generation == before.stable_generation]
        return (stable or good)[-1]
    target = known[asked.to]
    if target not in good:
        why = "was never good" if target.completed_at is None else "is what is wanted now"
        raise _refused(f"Generation {asked.to} of {asked.name} {why}; good ones: {listed}.")
    return target


def _rolling(before: AdmittedWorkload, asked: RolloutRequest) -> RolloutState:
    if before.rollout is None:
        raise _refused(
            f"{asked.name} is not rolling out: generation {before.generation} is what is wanted "
            "and nothing has to be replaced."
        )
    return before.rollout


def _refused(sentence: str) -> RefusedError:
    return RefusedError(RefusalCode.WRONG_STATE, sentence[:500])


Handler = Callable[[AsyncConnection, AdmittedWorkload, RolloutRequest], Awaitable[str]]
_HANDLERS: dict[RequestKind, Handler] = {
    RequestKind.PAUSE: _pause,
    RequestKind.RESUME: _resume,
    RequestKind.PROMOTE: _promote,
    RequestKind.ROLLBACK: _roll_back,
}

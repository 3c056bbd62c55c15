"""What people request of a rollout: pause, resume, promote, roll back; each once per request id."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter

from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.operators.ledger import KEPT_DAYS, RequestLedger
from durable.authority.workloads.events import audit_workload
from durable.authority.workloads.generations import (
    append_generations,
    find_generations,
    keep_shares,
    record_rollback,
    unknown_generation,
)
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

_GENERATION: TypeAdapter[Generation] = TypeAdapter(Generation)


class RolloutChange(StrEnum):
    """What people send about a rollout; each is the name of its message."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ROLLBACK = "rollback"


_ACTIONS = {
    RolloutChange.PAUSE: "pause rollout",
    RolloutChange.RESUME: "resume rollout",
    RolloutChange.PROMOTE: "promote rollout",
    RolloutChange.ROLLBACK: "roll back",
}


@dataclass(frozen=True)
class RolloutRequest:
    """A person's message about a workload's rollout."""

    tenant: TenantId
    workload: WorkloadName
    message: OperatorMessage

    @property
    def change(self) -> RolloutChange:
        return RolloutChange(self.message.message)

    @property
    def actor(self) -> ActorId:
        return self.message.actor

    @property
    def reason(self) -> str:
        return self.message.reason

    @property
    def to(self) -> Generation | None:
        """Which generation to go back to; None for the last one that was good."""
        to = self.message.payload.get("to")
        return None if to is None else _GENERATION.validate_python(to)

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.workload}"


@global_transaction(ROLE, "change the rollout of {request.name}")
async def request_rollout(connection: AsyncConnection, request: RolloutRequest) -> str:
    """The answer; the same one whenever the request comes again."""
    before = await lock_workload(connection, request.tenant, request.workload)
    if before is None:
        raise never_admitted(request.tenant, request.workload)
    ledger = await RequestLedger.read(connection, [request.message])
    again = ledger.repeat(request.message)
    if again is not None:
        return again
    await authorize(connection, request.message, Verb.ROLLOUT, Scope(tenant=request.tenant))
    if before.deleted:
        raise has_ended(before)
    if before.deleting:
        raise RefusedError(RefusalCode.BEING_DELETED, f"{request.name} is being deleted.")
    if before.spec.kind is WorkloadKind.JOB:
        raise _refused(
            f"{request.name} is a job, and a job does not roll out; apply it to run it again."
        )
    answer = await _HANDLERS[request.change](connection, before, request)
    await audit_workload(
        connection,
        before,
        _ACTIONS[request.change],
        request.actor,
        {"reason": request.reason, "request": request.message.request_id, "answer": answer},
        before={"generation": before.generation},
    )
    ledger.record(request.message, {"answer": answer})
    await ledger.write(connection, kept_days=KEPT_DAYS)
    return answer


async def _pause(
    connection: AsyncConnection, before: AdmittedWorkload, request: RolloutRequest
) -> str:
    rollout = _rolling(before, request)
    if rollout.goes_back(before.generation, before.stable_generation):
        raise _refused(f"{request.name} goes back to generation {before.generation}; let it.")
    if rollout.rollback is not None:
        raise _refused(
            f"Generation {before.generation} of {request.name} has failed, and no other one was "
            "ever good; apply another version."
        )
    if rollout.pause is not None:
        raise _refused(f"{request.name} was paused already, by {rollout.pause}.")
    now = await read_clock(connection)
    pause = RolloutPause(actor=request.actor, reason=request.reason, since=now)
    await advance_rollout(connection, before, rollout.model_copy(update={"pause": pause}))
    return "Paused: nothing more is replaced until a person resumes."


async def _resume(
    connection: AsyncConnection, before: AdmittedWorkload, request: RolloutRequest
) -> str:
    rollout = _rolling(before, request)
    if rollout.pause is None:
        raise _refused(f"{request.name} is not paused.")
    now = await read_clock(connection)
    resumed = {"pause": None, "progressed_at": now}
    await advance_rollout(connection, before, rollout.model_copy(update=resumed))
    return f"Resumed; it was paused by {rollout.pause}."


async def _promote(
    connection: AsyncConnection, before: AdmittedWorkload, request: RolloutRequest
) -> str:
    rollout = _rolling(before, request)
    points = len(before.spec.rollout.pauses)
    if rollout.rollback is not None or rollout.promoted >= points:
        raise _refused(
            f"{request.name} has no pause point left (rollout.pauses has {points}); "
            "to stop it, pause it, and to go on, resume it."
        )
    now = await read_clock(connection)
    passed = {"promoted": rollout.promoted + 1, "progressed_at": now}
    await advance_rollout(connection, before, rollout.model_copy(update=passed))
    return f"Promoted past pause point {rollout.promoted + 1} of {points}."


async def _roll_back(
    connection: AsyncConnection, before: AdmittedWorkload, request: RolloutRequest
) -> str:
    records = await find_generations(connection, request.tenant, request.workload)
    target = _target(before, records, request)
    why = f"{request.actor}: {request.reason}"
    if before.rollout is not None and target.generation == before.stable_generation:
        await go_back(connection, before, reason=why)
        return f"Going back to generation {target.generation}; what it has not replaced stays."
    # What ran it has ended: its spec becomes the next generation.
    now = await read_clock(connection)
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
    reason = f"roll back to generation {target.generation}: {request.reason}"
    await append_generations(connection, [{**row, "actor": str(request.actor), "reason": reason}])
    left = (request.tenant, request.workload, before.generation)
    await record_rollback(connection, *left, why)
    return f"Rolling out generation {after.generation}, which is what {target.generation} was."


def _target(
    before: AdmittedWorkload, records: list[GenerationRecord], request: RolloutRequest
) -> GenerationRecord:
    known = {record.generation: record for record in records}
    if request.to is not None and request.to not in known:
        raise unknown_generation(request.tenant, request.workload, request.to, known)
    current = template_of(before.spec)
    good = [
        record
        for record in records
        if record.completed_at is not None
        and template_of(WorkloadSpec.read(record.spec)) != current
    ]
    listed = ", ".join(str(record.generation) for record in good) or "none"
    if request.to is None:
        rollout = before.rollout
        if rollout is not None and rollout.goes_back(before.generation, before.stable_generation):
            raise _refused(f"{request.name} goes back to generation {before.generation} already.")
        if not good:
            raise _refused(f"{request.name} has no other generation that was ever good.")
        stable = [record for record in good if record.generation == before.stable_generation]
        return (stable or good)[-1]
    target = known[request.to]
    if target not in good:
        why = "was never good" if target.completed_at is None else "is what is wanted now"
        raise _refused(f"Generation {request.to} of {request.name} {why}; good ones: {listed}.")
    return target


def _rolling(before: AdmittedWorkload, request: RolloutRequest) -> RolloutState:
    if before.rollout is None:
        raise _refused(
            f"{request.name} is not rolling out: generation {before.generation} is what is wanted "
            "and nothing has to be replaced."
        )
    return before.rollout


def _refused(sentence: str) -> RefusedError:
    return RefusedError(RefusalCode.WRONG_STATE, sentence)


Handler = Callable[[AsyncConnection, AdmittedWorkload, RolloutRequest], Awaitable[str]]
_HANDLERS: dict[RolloutChange, Handler] = {
    RolloutChange.PAUSE: _pause,
    RolloutChange.RESUME: _resume,
    RolloutChange.PROMOTE: _promote,
    RolloutChange.ROLLBACK: _roll_back,
}

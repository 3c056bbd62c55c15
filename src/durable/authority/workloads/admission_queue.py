"""Admits workloads; those that are requested within milliseconds share one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.batching import Batcher, chunks
from durable.authority.db.clock import read_clock
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.fair_queue import Turn
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import Authorizer
from durable.authority.operators.ledger import KEPT_DAYS, RequestLedger
from durable.authority.slots.assignment import assign_new
from durable.authority.workloads.admission import AdmissionBatch, AdmissionRequest
from durable.authority.workloads.generations import (
    append_generations,
    keep_shares,
    record_rollback,
    stable_spec,
)
from durable.authority.workloads.rows import (
    ROLE,
    RowKey,
    create_workloads,
    find_workloads,
    lock_workloads,
    write_workloads,
)
from durable.model.operators.rights import Scope
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec

MAX_REQUESTS_PER_CALL = 200
# Each replica is written four times: as a slot, in the share, in the answer and in the audit.
MAX_REPLICAS_PER_CALL = 20_000
_MAX_TENANTS_SHOWN = 5

_TENANTS = text("SELECT tenant FROM global.tenants ORDER BY tenant LIMIT :most")


@dataclass(frozen=True)
class AdmissionResult:
    """The answer to a request, given now or when it first came, and the workload as it is now."""

    answer: AdmittedWorkload
    current: AdmittedWorkload
    # Whether it created the workload, and no region has ever owned a slot of it.
    is_new: bool = field(compare=False)


async def admit_workloads(
    databases: Databases, requests: Sequence[AdmissionRequest]
) -> list[AdmissionResult | Refusal]:
    """Admits manifests in their order, in one transaction; one that is refused leaves nothing."""
    assert len(requests) <= MAX_REQUESTS_PER_CALL, f"at most {MAX_REQUESTS_PER_CALL} per call"
    names = ", ".join("/".join(request.key) for request in requests[:3])
    return await _admit(databases, requests, names + (", ..." if len(requests) > 3 else ""))


@global_transaction(ROLE, "apply workload {names}")
async def _admit(
    connection: AsyncConnection, requests: Sequence[AdmissionRequest], names: str
) -> list[AdmissionResult | Refusal]:
    existing, missing = await find_workloads(connection, [request.key for request in requests])
    authorizer = await Authorizer.read(connection, [request.message.actor for request in requests])
    # A row stays for ever, so none is created for a workload of which nothing will be admitted.
    wanted = {
        request.key
        for request in requests
        if request.key in missing and request.can_create and _is_allowed(request, authorizer)
    }
    created = await create_workloads(connection, wanted)
    workloads = await lock_workloads(connection, (existing | wanted) - created)
    ledger = await RequestLedger.read(connection, [request.message for request in requests])
    stable = await _stable_specs(connection, workloads)
    # After the locks: what waited for one is admitted when it got it.
    now = await read_clock(connection) if workloads else authorizer.now
    batch = AdmissionBatch(workloads, ledger, stable, authorizer, now)
    known = existing | missing
    answers = [batch.admit(request) if request.key in known else None for request in requests]
    assert created <= batch.changed.keys(), "no row is left empty"
    assigned: set[RowKey] = set()
    if batch.changed:
        await write_workloads(connection, batch.changed.values())
        if created:
            assigned = await assign_new(connection, [batch.workloads[key] for key in created])
        await keep_shares(connection, batch.left)
        await append_generations(connection, batch.generations)
        for one, why in batch.rolled_back:
            name = (one.tenant, one.workload, one.generation)
            await record_rollback(connection, *name, why)
        await audit.append_all(connection, audit.GLOBAL_CHAIN, batch.events)
    await ledger.write(connection, kept_days=KEPT_DAYS)
    tenants = await _list_tenants(connection) if None in answers else ""
    return [
        _result(request, answer, batch, tenants, is_new=request.key in assigned)
        for request, answer in zip(requests, answers, strict=True)
    ]


def _is_allowed(request: AdmissionRequest, authorizer: Authorizer) -> bool:
    try:
        authorizer.check(request.message, request.verb, Scope(tenant=request.manifest.tenant))
    except RefusedError:
        return False
    return True


async def _stable_specs(
    connection: AsyncConnection, workloads: Mapping[RowKey, AdmittedWorkload]
) -> dict[RowKey, WorkloadSpec]:
    """What the workloads that roll out come from, as far as it was good."""
    specs: dict[RowKey, WorkloadSpec] = {}
    for key, one in workloads.items():
        spec = await stable_spec(connection, one)
        if spec is not None:
            specs[key] = spec
    return specs


class AdmissionQueue(Batcher[AdmissionRequest, AdmissionResult | Refusal]):
    """Writes admissions; those that arrive together share a transaction."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        super().__init__(
            "admission queue",
            "request",
            self._admit,
            max_batch=MAX_REQUESTS_PER_CALL,
            turn_of=lambda request: Turn(request.key[0], request.manifest.spec.priority),
        )

    async def _admit(self, requests: list[AdmissionRequest]) -> list[AdmissionResult | Refusal]:
        results: list[AdmissionResult | Refusal] = []
        for some in chunks(requests, lambda one: one.replicas, most=MAX_REPLICAS_PER_CALL):
            results += await admit_workloads(self._databases, some)
        return results


def _result(
    request: AdmissionRequest,
    answer: AdmittedWorkload | Refusal | None,
    batch: AdmissionBatch,
    tenants: str,
    *,
    is_new: bool,
) -> AdmissionResult | Refusal:
    if answer is None:
        return Refusal(
            code=RefusalCode.UNKNOWN_TENANT,
            sentence=f"There is no tenant {request.key[0]}; known tenants: {tenants or 'none'}.",
        )
    if isinstance(answer, Refusal):
        return answer
    # Each of several requests about one workload gets what the last one left.
    return AdmissionResult(answer, batch.workloads[request.key], is_new)


async def _list_tenants(connection: AsyncConnection) -> str:
    names = list((await connection.execute(_TENANTS, {"most": _MAX_TENANTS_SHOWN + 1})).scalars())
    shown = ", ".join(names[:_MAX_TENANTS_SHOWN])
    return shown + (", ..." if len(names) > _MAX_TENANTS_SHOWN else "")

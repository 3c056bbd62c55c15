"""Taking a workload in: a new generation when what it runs differs, a scale when its size does."""

import json
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority import audit
from durable.authority.connection import Databases, transact
from durable.authority.workloads.answers import Asked
from durable.authority.workloads.rows import ROLE, Admission, admission_of, lock_workload
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadManifest, WorkloadSpec

# How many there are, where, and how long waits may last: none of it is what a replica runs.
_SCALE = frozenset({"replicas", "weights", "minimum", "deadlines"})
_TENANTS_TOLD = 5

ShareOf = Callable[[Admission | None], Mapping[RegionId, tuple[int, ...]]]

_TENANT = text("SELECT FROM global.tenants WHERE tenant = :tenant")
_TENANTS = text("SELECT tenant FROM global.tenants ORDER BY tenant LIMIT :most")

# A second admission of a new workload waits here for the first, and then finds its row.
_CREATE = text("""
    INSERT INTO global.workloads (tenant, workload, generation, spec)
    VALUES (:tenant, :workload, 1, CAST(:spec AS jsonb)) ON CONFLICT DO NOTHING
""")

_ADMIT = text("""
    UPDATE global.workloads
       SET generation = :generation, spec = CAST(:spec AS jsonb), share = CAST(:share AS jsonb),
           status = CASE WHEN deleted_at IS NULL THEN status ELSE '{}' END,
           delete_requested_at = NULL, deleted_at = NULL
     WHERE tenant = :tenant AND workload = :workload
""")


async def admit_workload(
    databases: Databases,
    manifest: WorkloadManifest,
    *,
    request: str,
    actor: ActorId,
    share_of: ShareOf,
) -> Admission:
    """Admits a manifest once per request id.

    `share_of` divides the replicas, given the workload as it stands or None if there is none. It
    is called with the workload locked, perhaps more than once, and must depend on nothing else
    that this transaction could miss.
    """
    tenant, workload = manifest.tenant, manifest.name
    payload = manifest.model_dump(mode="json", exclude_defaults=True)
    asked = Asked(tenant, workload, request, payload, actor)

    async def work(connection: AsyncConnection) -> Admission:
        await _refuse_unknown_tenant(connection, tenant)
        of = {"tenant": tenant, "workload": workload, "spec": manifest.spec.model_dump_json()}
        is_new = (await connection.execute(_CREATE, of)).rowcount == 1
        row = await lock_workload(connection, tenant, workload)
        assert row is not None, "it was created above, and a workload's row is never deleted"
        answered = await asked.recall(connection)
        if answered is not None:
            return answered
        before = None if is_new else admission_of(row)
        if before is not None and before.deleting:
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"Workload {tenant}/{workload} is being deleted; "
                "wait until it is gone, then apply it again.",
            )
        after = _admitted(manifest, before, share_of)
        if before != after:
            await connection.execute(_ADMIT, _values(after))
            await _tell(connection, before, after, actor)
        return await asked.record(connection, after)

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"apply workload {tenant}/{workload}")


def _admitted(manifest: WorkloadManifest, before: Admission | None, share_of: ShareOf) -> Admission:
    standing = None if before is None or before.deleted else before
    share = share_of(standing)
    slots = list(chain.from_iterable(share.values()))
    assert len(set(slots)) == len(slots), "a slot belongs to one region"
    if before is None:
        generation = 1
    elif standing is None or template_of(before.spec) != template_of(manifest.spec):
        generation = before.generation + 1
    else:
        generation = before.generation
    return Admission(
        tenant=manifest.tenant,
        workload=manifest.name,
        generation=generation,
        spec=manifest.spec,
        share=share,
    )


def template_of(spec: WorkloadSpec) -> dict[str, Any]:
    """What every replica of one generation has in common."""
    return spec.model_dump(mode="json", exclude=set(_SCALE))


def _values(admission: Admission) -> dict[str, Any]:
    told = admission.model_dump(mode="json")
    return {
        "tenant": admission.tenant,
        "workload": admission.workload,
        "generation": admission.generation,
        "spec": json.dumps(told["spec"]),
        "share": json.dumps(told["share"]),
    }


async def _tell(
    connection: AsyncConnection, before: Admission | None, after: Admission, actor: ActorId
) -> None:
    kept = {"generation", "spec", "share"}
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action="apply workload",
        target=f"workload/{after.tenant}/{after.workload}",
        before=None if before is None else before.model_dump(mode="json", include=kept),
        after=after.model_dump(mode="json", include=kept),
    )


async def _refuse_unknown_tenant(connection: AsyncConnection, tenant: TenantId) -> None:
    if (await connection.execute(_TENANT, {"tenant": tenant})).one_or_none() is not None:
        return
    rows = await connection.execute(_TENANTS, {"most": _TENANTS_TOLD + 1})
    names = list(rows.scalars())
    known = ", ".join(names[:_TENANTS_TOLD]) + (", ..." if len(names) > _TENANTS_TOLD else "")
    raise RefusedError(
        RefusalCode.UNKNOWN_TENANT,
        f"There is no tenant {tenant}; known are: {known or 'none'}.",
    )

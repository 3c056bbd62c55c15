"""A workload's rollout as the authority remembers it: numbered divisions, progress, the end of it.

Every division of a workload's slots begins here and gets its number; what an older division still
wants to write is refused, here by the row's number and in every region by that of its rows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.transaction import global_transaction
from durable.authority.workloads.generations import find_generations, settle_generation
from durable.authority.workloads.rows import ROLE, lock_workload, never_admitted, workload_of
from durable.model.ids import ActorId, Generation, TenantId, WorkloadName
from durable.model.rollout import GenerationOutcome, RolloutState
from durable.model.workload import AdmittedWorkload, WorkloadSpec, with_template

_BEGIN = text("""
    UPDATE global.workloads SET revision = revision + 1
     WHERE tenant = :tenant AND workload = :workload
    RETURNING *, clock_timestamp() AS now
""")

_SAVE = text("""
    UPDATE global.workloads SET rollout = CAST(:rollout AS jsonb)
     WHERE tenant = :tenant AND workload = :workload AND revision = :revision
""")

_COMPLETE = text("""
    UPDATE global.workloads SET rollout = NULL, stable_generation = :generation
     WHERE tenant = :tenant AND workload = :workload AND generation = :generation
       AND delete_requested_at IS NULL AND deleted_at IS NULL
       AND (rollout IS NOT NULL OR stable_generation IS DISTINCT FROM :generation)
       AND (CAST(:revision AS bigint) IS NULL OR revision = :revision)
""")

_UNDO = text("""
    UPDATE global.workloads
       SET generation = :generation, spec = CAST(:spec AS jsonb), rollout = CAST(:rollout AS jsonb)
     WHERE tenant = :tenant AND workload = :workload
""")


@dataclass(frozen=True)
class BegunDivision:
    """The workload as it is to be divided now, under the row's new revision."""

    workload: AdmittedWorkload
    # What slots run whose turn has not come, if that is another generation.
    stable_spec: WorkloadSpec | None
    now: datetime


@global_transaction(ROLE, "begin to divide {tenant}/{workload}")
async def begin_division(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> BegunDivision:
    """Numbers the next division of a workload's slots."""
    of = {"tenant": tenant, "workload": workload}
    row = (await connection.execute(_BEGIN, of)).mappings().one_or_none()
    if row is None:
        raise never_admitted(tenant, workload)
    found = workload_of(row)
    stable = await _stable_spec(connection, found)
    return BegunDivision(found, stable, row["now"])


async def _stable_spec(
    connection: AsyncConnection, workload: AdmittedWorkload
) -> WorkloadSpec | None:
    stable = workload.stable_generation
    if workload.rollout is None or stable is None or stable == workload.generation:
        return None
    records = await find_generations(connection, workload.tenant, workload.workload, stable)
    return WorkloadSpec.read(records[0].spec) if records else None


@global_transaction(ROLE, "remember the rollout of {tenant}/{workload}")
async def save_rollout(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    revision: int,
    rollout: RolloutState,
) -> None:
    """Keeps how far a rollout has come, unless it was divided again meanwhile."""
    of = {"tenant": tenant, "workload": workload, "revision": revision}
    await connection.execute(_SAVE, {**of, "rollout": rollout.model_dump_json()})


@global_transaction(ROLE, "complete generation {generation} of {tenant}/{workload}")
async def complete_generation(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    *,
    actor: ActorId,
    revision: int | None = None,
) -> None:
    """Records that every replica of a generation served at once; a second time changes nothing."""
    before = await lock_workload(connection, tenant, workload)
    of = {"tenant": tenant, "workload": workload, "generation": generation}
    done = await connection.execute(_COMPLETE, {**of, "revision": revision})
    if before is None or not done.rowcount:
        return
    await settle_generation(connection, tenant, workload, generation, GenerationOutcome.COMPLETE)
    if before.rollout is not None:
        after = {"generation": generation, "undoing": before.rollout.undoing}
        await _audit(connection, before, "complete rollout", actor, after)


@global_transaction(ROLE, "undo the rollout of {tenant}/{workload}")
async def undo_rollout(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    *,
    reason: str,
    actor: ActorId,
) -> None:
    """Goes back to the last generation that was good; without one, only the failure is kept."""
    before = await lock_workload(connection, tenant, workload)
    is_over = before is None or before.deleted or before.deleting
    if before is None or is_over or before.generation != generation or before.rollout is None:
        return
    await go_back(connection, before, reason=reason)
    after = {"generation": generation, "to": before.stable_generation, "reason": reason}
    await _audit(connection, before, "undo rollout", actor, after)


async def go_back(connection: AsyncConnection, workload: AdmittedWorkload, *, reason: str) -> None:
    """Wants the stable generation again, as many replicas of it as there are to be now."""
    now = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
    stable, spec = workload.stable_generation, workload.spec
    template = await _stable_spec(connection, workload)
    if stable is None or template is None:
        stable = workload.generation
    else:
        spec = with_template(spec, template)
        name = (workload.tenant, workload.workload, workload.generation)
        await settle_generation(connection, *name, GenerationOutcome.ROLLED_BACK, reason)
    rollout = RolloutState(started_at=now, progressed_at=now, undoing=reason[:500])
    written = {
        "tenant": workload.tenant,
        "workload": workload.workload,
        "generation": stable,
        "spec": json.dumps(spec.model_dump(mode="json")),
        "rollout": rollout.model_dump_json(),
    }
    await connection.execute(_UNDO, written)


async def _audit(
    connection: AsyncConnection,
    workload: AdmittedWorkload,
    action: str,
    actor: ActorId,
    after: Mapping[str, object],
) -> None:
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=action,
        target=f"workload/{workload.tenant}/{workload.workload}",
        before={"generation": workload.generation},
        after=dict(after),
    )

"""A workload's row: what was admitted of it, and what was last told of it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, Field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.workload import Condition, WorkloadSpec
from durable.validation.value import Value

ROLE = "durable_workload"
MOST = 10_000


class Admission(Value):
    """What a workload shall be, and which slots of it each region shall run."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    spec: WorkloadSpec
    share: Mapping[RegionId, tuple[Slot, ...]] = Field(default={})
    deleting: bool = False
    deleted: bool = False


class WorkloadRow(Admission):
    """An admission with what its workflow last said of it."""

    conditions: tuple[Condition, ...] = ()
    replicas_by_state: Mapping[str, int] = Field(default={})
    observed_generation: Annotated[int, Field(ge=0)] = 0
    deleted_at: AwareDatetime | None = None

    @property
    def completion(self) -> Condition | None:
        """How far a job that ended by itself came; nothing of one that somebody deleted."""
        return next((one for one in self.conditions if one.type == "Complete"), None)

    @property
    def end(self) -> str:
        """Whether a job came to its end by itself, and to a good one; or somebody deleted it."""
        if self.completion is None:
            return "deleted"
        return "complete" if self.completion.status else "failed"


_READ = text("SELECT * FROM global.workloads WHERE tenant = :tenant AND workload = :workload")

_LOCK = text("""
    SELECT * FROM global.workloads WHERE tenant = :tenant AND workload = :workload FOR UPDATE
""")

_LIST = text("""
    SELECT * FROM global.workloads
     WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
       AND (:deleted OR deleted_at IS NULL)
     ORDER BY tenant, workload LIMIT :most
""")


async def read_workload(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> Admission | None:
    """The workload as it was last admitted, tombstones too; None if there never was one."""
    row = await _read(databases, tenant, workload)
    return None if row is None else admission_of(row)


async def read_workload_row(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> WorkloadRow | None:
    """The same, with what was last said of it."""
    row = await _read(databases, tenant, workload)
    return None if row is None else _row(row)


async def _read(databases: Databases, tenant: TenantId, workload: WorkloadName) -> Any | None:
    async def work(connection: AsyncConnection) -> Any | None:
        found = await connection.execute(_READ, {"tenant": tenant, "workload": workload})
        return found.mappings().one_or_none()

    engine = databases.at_global("durable_reader")
    return await transact(engine, work, doing=f"read workload {tenant}/{workload}")


async def list_workloads(
    databases: Databases, tenant: TenantId | None = None, *, deleted: bool = False
) -> list[WorkloadRow]:
    """Every workload with its status, or those of one tenant; with `deleted`, tombstones too."""

    async def work(connection: AsyncConnection) -> list[WorkloadRow]:
        of = {"tenant": tenant, "deleted": deleted, "most": MOST}
        return [_row(row) for row in (await connection.execute(_LIST, of)).mappings()]

    engine = databases.at_global("durable_reader")
    return await transact(engine, work, doing="read the workloads")


async def lock_workload(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> Any | None:
    """The locked row; whoever else asks something of this workload waits for the commit."""
    found = await connection.execute(_LOCK, {"tenant": tenant, "workload": workload})
    return found.mappings().one_or_none()


def admission_of(row: Any) -> Admission:
    return Admission(**_admitted(row))


def _row(row: Any) -> WorkloadRow:
    return WorkloadRow(
        **_admitted(row),
        **row["status"],
        observed_generation=row["observed_generation"],
        deleted_at=row["deleted_at"],
    )


def _admitted(row: Any) -> dict[str, Any]:
    gone = row["deleted_at"] is not None
    return {
        **{name: row[name] for name in ("tenant", "workload", "generation", "spec", "share")},
        "deleting": row["delete_requested_at"] is not None and not gone,
        "deleted": gone,
    }

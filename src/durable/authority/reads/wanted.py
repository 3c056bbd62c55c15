"""What the authority wants to run: the shares of live workloads, and slots not in place yet."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import AwareDatetime
from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.pages import ROWS_PER_PAGE, read_pages
from durable.authority.db.transaction import global_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.work.workload import WorkloadKind
from durable.signals.names import workload_id
from durable.validation.value import Value


class WantedWorkload(Value):
    """A live workload without its spec: thousands are read at once."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    kind: WorkloadKind
    deleting: bool
    # Regions get their share of the generation one after the other.
    is_rolling: bool = False
    # How many slots each region must run; regions with none are left out.
    slots_by_region: Mapping[RegionId, int]
    # How many slots a region still owns that it must not run: they have to move or end first.
    misplaced: int


# The slots' owners are compared with the share as sets: a share of thousands is not searched for
# each of its slots.
_WANTED = text("""
    SELECT w.tenant, w.workload, w.generation, w.spec ->> 'kind' AS kind,
           w.delete_requested_at IS NOT NULL AS deleting, w.rollout IS NOT NULL AS is_rolling,
           coalesce((SELECT jsonb_object_agg(region, jsonb_array_length(slots))
                       FROM jsonb_each(w.share) AS share(region, slots)
                      WHERE jsonb_array_length(slots) > 0), '{}') AS slots_by_region,
           (SELECT count(*) FROM (
               SELECT s.region, s.slot FROM global.slots AS s
                WHERE s.tenant = w.tenant AND s.workload = w.workload AND s.region IS NOT NULL
               EXCEPT
               SELECT share.region, CAST(slot AS integer)
                 FROM jsonb_each(w.share) AS share(region, slots),
                      jsonb_array_elements_text(share.slots) AS slot) AS elsewhere) AS misplaced
      FROM global.workloads AS w
     WHERE w.deleted_at IS NULL AND (CAST(:tenant AS text) IS NULL OR w.tenant = :tenant)
       AND (w.tenant, w.workload) > (:after_tenant, :after_workload)
     ORDER BY w.tenant, w.workload LIMIT :most
""")

_LAST_CHANGES = text("""
    SELECT target, max(at) AS at FROM global.operator_requests
     WHERE target = ANY(:targets) GROUP BY target
""")


async def read_wanted(databases: Databases, tenant: TenantId | None = None) -> list[WantedWorkload]:
    """Every workload that is not over, or those of one tenant, in the order of their names."""
    return await read_pages(
        lambda after: _read_page(databases, tenant, after),
        ("", ""),
        lambda one: (str(one.tenant), str(one.workload)),
    )


@global_transaction("durable_reader", "read what is wanted")
async def _read_page(
    connection: AsyncConnection, tenant: TenantId | None, after: tuple[str, str]
) -> list[WantedWorkload]:
    of = {"tenant": tenant, "after_tenant": after[0], "after_workload": after[1]}
    rows = await connection.execute(_WANTED, {**of, "most": ROWS_PER_PAGE})
    return [WantedWorkload(**row) for row in rows.mappings()]


class LastChanges(Value):
    """When each of some workloads was last changed, by the clock of the same database."""

    at: Mapping[tuple[str, str], AwareDatetime]
    now: AwareDatetime

    def seconds_since(self, tenant: str, workload: str) -> float:
        """Infinite if it never was."""
        at: datetime | None = self.at.get((tenant, workload))
        return float("inf") if at is None else (self.now - at).total_seconds()


@global_transaction("durable_reader", "read when workloads were last changed")
async def read_last_changes(
    connection: AsyncConnection, names: Sequence[tuple[str, str]]
) -> LastChanges:
    """For a few workloads only: each costs as much as was asked of it in a month."""
    of = {workload_id(TenantId(name[0]), WorkloadName(name[1])): name for name in names}
    rows = await connection.execute(_LAST_CHANGES, {"targets": list(of)})
    at = {of[row.target]: row.at for row in rows}
    return LastChanges(at=at, now=await read_clock(connection))

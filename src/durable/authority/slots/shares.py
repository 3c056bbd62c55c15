"""The shares of workloads in their regions: what each placement is to run, under a revision.

With them goes the floor: how many replicas voluntary stops must leave serving in the region. A
share is written by its workload and read by its placement, so that no message has to be believed
about it. An older revision never replaces a newer one, whoever sends it and however late.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import lock_region
from durable.authority.slots.assignment import ROLE
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.share import DesiredShare

MAX_SHARES_PER_CALL = 200

# In one order, so that two batches with the same rows wait for each other and never deadlock.
_PUBLISH = text("""
    INSERT INTO regional.shares AS s
           (region, tenant, workload, generation, revision, slots, spec, release_reason, at_once,
            admitted_at, due_at)
    SELECT :region, tenant, workload, generation, revision, slots, spec, release_reason, at_once,
           admitted_at, due_at
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, revision bigint, slots integer[],
           spec jsonb, release_reason text, at_once integer, admitted_at timestamptz,
           due_at timestamptz)
     ORDER BY tenant, workload, generation
        ON CONFLICT (region, tenant, workload, generation) DO UPDATE
       SET revision = excluded.revision, slots = excluded.slots, spec = excluded.spec,
           release_reason = excluded.release_reason, at_once = excluded.at_once,
           admitted_at = excluded.admitted_at, due_at = excluded.due_at
     WHERE s.revision < excluded.revision AND s.closed_at IS NULL
""")

# The workload's part of its disruption allowance: what voluntary stops must leave serving.
_SET_FLOORS = text(f"""
    INSERT INTO regional.disruption_floors AS f (region, tenant, workload, revision, must_serve)
    SELECT :region, tenant, workload, revision, must_serve
      FROM {
    sent_rows("rows", "row", "tenant text, workload text, revision bigint, must_serve integer")
}
     ORDER BY tenant, workload
        ON CONFLICT (region, tenant, workload) DO UPDATE
       SET revision = excluded.revision, must_serve = excluded.must_serve
     WHERE f.revision <= excluded.revision
    RETURNING tenant, workload
""")

_OPEN = text("""
    SELECT tenant, workload, generation FROM regional.shares
     WHERE region = :region AND closed_at IS NULL
     ORDER BY tenant, workload, generation
""")


@dataclass(frozen=True)
class PublishedShare:
    """What one placement is to run."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    share: DesiredShare

    @property
    def key(self) -> tuple[str, str, int]:
        return (str(self.tenant), str(self.workload), self.generation)


@dataclass(frozen=True)
class Publication:
    """What one division of a workload writes into a region: its floor, and shares that changed."""

    tenant: TenantId
    workload: WorkloadName
    revision: int
    # How many replicas voluntary stops must leave serving; None leaves it as it is.
    must_serve: int | None = None
    shares: tuple[PublishedShare, ...] = ()
    # Nothing of the workload runs yet, so no commit can have read its floor.
    is_first: bool = False

    @property
    def floor(self) -> dict[str, object]:
        return {
            "tenant": str(self.tenant),
            "workload": str(self.workload),
            "revision": self.revision,
            "must_serve": self.must_serve,
        }


@regional_transaction(ROLE, "hand shares to {region}")
async def publish(
    connection: AsyncConnection, region: RegionId, publications: Sequence[Publication]
) -> list[bool]:
    """Writes floors and shares, as far as the region does not have newer ones.

    Answers of each whether its floor is in force now; one that came late changes nothing.
    """
    ordered = sorted(publications, key=lambda one: one.revision)
    floors = {
        (str(one.tenant), str(one.workload)): one for one in ordered if one.must_serve is not None
    }
    late: set[tuple[str, str]] = set()
    if not all(one.is_first for one in floors.values()):
        # A commit that has read the floor before ends before: from here on all obey the new one.
        await lock_region(connection, region)
    if floors:
        sent = {"region": region, "rows": json.dumps([one.floor for one in floors.values()])}
        written = {
            (row.tenant, row.workload) for row in await connection.execute(_SET_FLOORS, sent)
        }
        late = floors.keys() - written
    newest = {
        share.key: share
        for one in ordered
        for share in one.shares
        if (str(one.tenant), str(one.workload)) not in late
    }
    if newest:
        rows = [_row(share) for share in newest.values()]
        await connection.execute(_PUBLISH, {"region": region, "rows": json.dumps(rows)})
    return [(str(one.tenant), str(one.workload)) not in late for one in publications]


def _row(one: PublishedShare) -> dict[str, object]:
    named = {"tenant": str(one.tenant), "workload": str(one.workload), "generation": one.generation}
    return {**named, **one.share.model_dump(mode="json")}


class ShareWriter(Batcher[Publication, bool]):
    """Writes one region's shares; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        name = f"queue of shares for {region}"
        super().__init__(name, "share", self._publish, max_batch=MAX_SHARES_PER_CALL)

    async def _publish(self, publications: list[Publication]) -> list[bool]:
        return await publish(self._databases, self._region, publications)


@regional_transaction("durable_reader", "read the open shares of {region}")
async def open_shares(
    connection: AsyncConnection, region: RegionId
) -> list[tuple[TenantId, WorkloadName, Generation]]:
    """The shares that need a placement: those whose request was not withdrawn."""
    rows = await connection.execute(_OPEN, {"region": region})
    return [(TenantId(row.tenant), WorkloadName(row.workload), row.generation) for row in rows]

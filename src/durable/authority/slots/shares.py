"""The shares of workloads in their regions: what each placement is to run, under a revision.

A share is written by its workload and read by its placement, so that no message has to be believed
about it. An older revision never replaces a newer one, whoever sends it and however late.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.transaction import regional_transaction
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


@regional_transaction(ROLE, "hand shares to {region}")
async def publish_shares(
    connection: AsyncConnection, region: RegionId, shares: Sequence[PublishedShare]
) -> None:
    """Writes shares, as far as the region does not have newer ones."""
    newest: dict[tuple[str, str, int], PublishedShare] = {}
    for one in sorted(shares, key=lambda one: one.share.revision):
        newest[one.key] = one
    rows = [
        {
            "tenant": str(one.tenant),
            "workload": str(one.workload),
            "generation": one.generation,
            **one.share.model_dump(mode="json"),
        }
        for one in newest.values()
    ]
    await connection.execute(_PUBLISH, {"region": region, "rows": json.dumps(rows)})


class ShareWriter(Batcher[PublishedShare, None]):
    """Writes one region's shares; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        name = f"queue of shares for {region}"
        super().__init__(name, "share", self._publish, max_batch=MAX_SHARES_PER_CALL)

    async def _publish(self, shares: list[PublishedShare]) -> list[None]:
        await publish_shares(self._databases, self._region, shares)
        return [None] * len(shares)


@regional_transaction("durable_reader", "read the open shares of {region}")
async def open_shares(
    connection: AsyncConnection, region: RegionId
) -> list[tuple[TenantId, WorkloadName, Generation]]:
    """The shares that need a placement: those whose request was not withdrawn."""
    rows = await connection.execute(_OPEN, {"region": region})
    return [(TenantId(row.tenant), WorkloadName(row.workload), row.generation) for row in rows]

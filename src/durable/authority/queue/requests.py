"""The queue of a region: who waits for a place, for what, and since when; written by placements."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases, transact
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode
from durable.model.request import QueuedRequest, RequestRow
from durable.model.states import RequestState

ROLE = "durable_placement"
MAX_REQUESTS_PER_CALL = 500
MOST = 10_000

# In one order, so that two batches that meet the same rows wait for each other and never in turns.
# What did not change is not written: its followers would read it again for nothing. A row that
# was withdrawn is left as it is and missing from the answer.
_WRITE = text("""
    INSERT INTO regional.requests AS r
           (region, tenant, workload, generation, slots, priority, state, pending_reason, attempts,
            enqueued_at, deadline, next_retry_at, spec, waiting, completed, changed_at)
    SELECT :region, tenant, workload, generation, slots, priority, state, pending_reason, attempts,
           enqueued_at, deadline, next_retry_at, spec, waiting, completed, clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, slots integer[], priority integer,
           state text, pending_reason text, attempts integer, enqueued_at timestamptz,
           deadline timestamptz, next_retry_at timestamptz, spec jsonb, waiting integer,
           completed integer)
     ORDER BY tenant, workload, generation
        ON CONFLICT (region, tenant, workload, generation) DO UPDATE
       SET slots = excluded.slots, priority = excluded.priority, state = excluded.state,
           pending_reason = excluded.pending_reason, attempts = excluded.attempts,
           enqueued_at = CASE WHEN r.state = 'placed' AND excluded.state <> 'placed'
                              THEN greatest(r.enqueued_at, excluded.enqueued_at)
                              ELSE r.enqueued_at END,
           deadline = excluded.deadline, next_retry_at = excluded.next_retry_at,
           waiting = excluded.waiting, completed = excluded.completed,
           changed_at = excluded.changed_at
     WHERE r.state <> 'withdrawn'
       AND (r.slots, r.priority, r.state, r.pending_reason, r.attempts, r.deadline,
            r.next_retry_at, r.waiting, r.completed)
           IS DISTINCT FROM
           (excluded.slots, excluded.priority, excluded.state, excluded.pending_reason,
            excluded.attempts, excluded.deadline, excluded.next_retry_at, excluded.waiting,
            excluded.completed)
""")

_WITHDRAWN = text("""
    SELECT tenant, workload, generation FROM regional.requests
      JOIN jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint) USING (tenant, workload, generation)
     WHERE region = :region AND state = 'withdrawn'
""")

_READ = text("""
    SELECT * FROM regional.requests
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND generation = :generation
""")

_QUEUE = text("""
    SELECT region, tenant, workload, generation, slots, priority, state, pending_reason, attempts,
           enqueued_at, deadline, next_retry_at, waiting, completed,
           row_number() OVER (ORDER BY priority DESC, enqueued_at, tenant, workload, generation)
               AS position,
           extract(epoch FROM clock_timestamp() - enqueued_at)::float8 AS age_seconds
      FROM regional.requests
     WHERE region = :region AND state IN ('pending', 'timed_out')
     ORDER BY position LIMIT :most
""")

_Key = tuple[str, str, int]


async def write_requests(
    databases: Databases, region: RegionId, rows: Sequence[RequestRow]
) -> list[Refusal | None]:
    """Writes requests as they are now; answers a refusal for each that was withdrawn before.

    A request that is known keeps the moment since when it waits, and what it runs.
    """
    assert len(rows) <= MAX_REQUESTS_PER_CALL, f"at most {MAX_REQUESTS_PER_CALL} rows per call"
    assert all(row.region == region for row in rows), "a queue is of one region"
    # Of several writes of one request in one batch the last is what it is now.
    newest = {_key(row): row for row in rows}
    named = {"region": region, "rows": json.dumps([_values(row) for row in newest.values()])}

    async def work(connection: AsyncConnection) -> set[_Key]:
        await connection.execute(_WRITE, named)
        return {
            (row.tenant, row.workload, row.generation)
            for row in await connection.execute(_WITHDRAWN, named)
        }

    engine = databases.at_region(region, ROLE)
    withdrawn = await transact(engine, work, doing=f"write requests of {region}")
    return [
        _refusal(row)
        if _key(row) in withdrawn and row.state is not RequestState.WITHDRAWN
        else None
        for row in rows
    ]


class RequestLog(Batcher[RequestRow, Refusal | None]):
    """One region's writer of requests; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        async def work(rows: list[RequestRow]) -> list[Refusal | None]:
            return await write_requests(databases, region, rows)

        super().__init__(
            f"request log of {region}", "request", work, max_batch=MAX_REQUESTS_PER_CALL
        )


async def read_request(
    databases: Databases,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> RequestRow | None:
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}

    async def work(connection: AsyncConnection) -> RequestRow | None:
        row = (await connection.execute(_READ, of)).mappings().one_or_none()
        if row is None:
            return None
        return RequestRow(**{name: row[name] for name in RequestRow.model_fields})

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read a request of {tenant}/{workload}")


async def read_queue(databases: Databases, region: RegionId) -> list[QueuedRequest]:
    """Who waits for a place, in the order in which they are served."""

    async def work(connection: AsyncConnection) -> list[QueuedRequest]:
        rows = await connection.execute(_QUEUE, {"region": region, "most": MOST})
        return [QueuedRequest(**dict(row)) for row in rows.mappings()]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the queue of {region}")


def _key(row: RequestRow) -> _Key:
    return (str(row.tenant), str(row.workload), row.generation)


def _values(row: RequestRow) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude={"region"})


def _refusal(row: RequestRow) -> Refusal:
    return Refusal(
        code=RefusalCode.ILLEGAL_MOVE,
        sentence=f"Generation {row.generation} of {row.tenant}/{row.workload} was withdrawn from "
        f"{row.region} and is not asked again; ask under the next generation.",
    )

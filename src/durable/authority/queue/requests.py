"""The queue of a region: which placements wait for a node, for what, and since when."""

import json
from collections.abc import Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import text

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.fair_queue import Turn, in_turns
from durable.authority.db.pages import ROWS_PER_PAGE, read_pages
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.overrides.in_force import MAX_PRIORITY
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.request import QueuedRequest, SchedulingRequest
from durable.model.refusal import Refusal, RefusalCode
from durable.model.states import RequestState
from durable.scheduling.queue.relief import QueuedWork

ROLE = "durable_placement"
MAX_REQUESTS_PER_CALL = 500

# In one order, so that two batches with the same rows wait for each other and never deadlock.
# What did not change is not written: the change feed would read it again for nothing. A row that
# was withdrawn stays as it is.
_WRITE = text("""
    INSERT INTO regional.requests AS r
           (region, tenant, workload, generation, slots, priority, state, pending_code,
            pending_parameters, attempts, enqueued_at, deadline, next_retry_at, spec, waiting,
            completed, given_up, ended_at, held_back, failures, at_once, decided_version)
    SELECT :region, tenant, workload, generation, slots, priority, state, pending_code,
           pending_parameters, attempts, enqueued_at, deadline, next_retry_at, spec, waiting,
           completed, given_up,
           CASE WHEN cardinality(slots) = cardinality(completed) + cardinality(given_up)
                 AND slots <> '{}' THEN clock_timestamp() END,
           held_back, failures, at_once, decided_version
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, slots integer[], priority integer,
           state text, pending_code text, pending_parameters jsonb, attempts integer,
           enqueued_at timestamptz, deadline timestamptz, next_retry_at timestamptz, spec jsonb,
           waiting integer, completed integer[], given_up integer[], held_back integer,
           failures integer, at_once integer, decided_version bigint)
     ORDER BY tenant, workload, generation
        ON CONFLICT (region, tenant, workload, generation) DO UPDATE
       SET slots = excluded.slots, priority = excluded.priority, state = excluded.state,
           pending_code = excluded.pending_code,
           pending_parameters = excluded.pending_parameters, attempts = excluded.attempts,
           enqueued_at = CASE WHEN r.state = 'placed'
                              THEN greatest(r.enqueued_at, excluded.enqueued_at)
                              ELSE r.enqueued_at END,
           deadline = excluded.deadline, next_retry_at = excluded.next_retry_at,
           waiting = excluded.waiting, completed = excluded.completed,
           given_up = excluded.given_up,
           ended_at = CASE WHEN excluded.ended_at IS NOT NULL
                           THEN coalesce(r.ended_at, excluded.ended_at) END,
           held_back = excluded.held_back,
           failures = greatest(r.failures, excluded.failures), at_once = excluded.at_once,
           decided_version = excluded.decided_version
     WHERE r.state <> 'withdrawn'
       AND (r.slots, r.priority, r.state, r.pending_code, r.pending_parameters, r.attempts,
            r.deadline, r.next_retry_at, r.waiting, r.completed, r.given_up, r.held_back,
            r.failures, r.at_once, r.decided_version)
           IS DISTINCT FROM
           (excluded.slots, excluded.priority, excluded.state, excluded.pending_code,
            excluded.pending_parameters, excluded.attempts, excluded.deadline,
            excluded.next_retry_at, excluded.waiting, excluded.completed, excluded.given_up,
            excluded.held_back, excluded.failures, excluded.at_once, excluded.decided_version)
    RETURNING tenant
""")

_FIND_WITHDRAWN = text(f"""
    SELECT tenant, workload, generation FROM regional.requests
      JOIN {sent_rows("rows", "row", "tenant text, workload text, generation bigint")}
     USING (tenant, workload, generation)
     WHERE region = :region AND state = 'withdrawn'
""")

# Of those that end, the shares that have changed since their placements last read them. Locked, so
# that none changes between this look and its end; in the order in which shares are written.
_LOCK_ENDING = text("""
    SELECT s.tenant, s.workload, s.generation,
           s.closed_at IS NULL AND s.revision > row.ends_revision AS is_newer
      FROM regional.shares AS s
      JOIN jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, state text, ends_revision bigint)
     USING (tenant, workload, generation)
     WHERE s.region = :region AND row.state = 'withdrawn'
     ORDER BY s.tenant, s.workload, s.generation
       FOR UPDATE OF s
""")

# With the request ends the share that it was made for: nothing needs a placement any more.
_CLOSE_SHARES = text("""
    UPDATE regional.shares AS s SET closed_at = clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, state text)
     WHERE s.region = :region AND s.tenant = row.tenant AND s.workload = row.workload
       AND s.generation = row.generation AND row.state = 'withdrawn' AND s.closed_at IS NULL
""")

_READ = text("""
    SELECT * FROM regional.requests
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND generation = :generation
""")

# With the raise of an override that is in force, as `raised` counts it: several do not add up, and
# none leads past the highest priority.
_RAISED = f"""least(greatest(r.priority, {MAX_PRIORITY}), r.priority + coalesce((
           SELECT max((o.effects ->> 'raises_priority')::integer) FROM regional.overrides AS o
            WHERE o.region = r.region AND o.ended_at IS NULL AND o.expires_at > clock_timestamp()
              AND o.effects ? 'raises_priority' AND o.scope ->> 'tenant' = r.tenant
              AND coalesce(o.scope ->> 'workload', r.workload) = r.workload), 0))"""

_QUEUE = text(f"""
    SELECT * FROM (
    SELECT r.*, row_number() OVER (ORDER BY turn.priority DESC, enqueued_at, tenant, workload,
                                            generation) AS position,
           extract(epoch FROM clock_timestamp() - enqueued_at)::float8 AS age_seconds
      FROM regional.requests AS r CROSS JOIN LATERAL (SELECT {_RAISED} AS priority) AS turn
     WHERE region = :region AND state IN ('pending', 'timed_out')) AS queue
     WHERE (tenant, workload, generation) > (:after_tenant, :after_workload, :after_generation)
     ORDER BY tenant, workload, generation LIMIT :most
""")

# Only what decides whom to wake: a queue may be thousands long, and is read whenever room appears.
_WAITING = text(f"""
    SELECT tenant, workload, generation, turn.priority, enqueued_at, waiting, decided_version,
           pending_code,
           pending_parameters -> 'because' ->> 'code' AS because,
           CASE WHEN pending_code = 'gang'
                THEN (pending_parameters ->> 'size')::integer
                     - coalesce((pending_parameters ->> 'live')::integer, 0)
                ELSE 1 END AS together,
           pending_parameters ? 'until' AS backs_off,
           (spec -> 'resources' ->> 'cpu_millis')::bigint AS cpu_millis,
           (spec -> 'resources' ->> 'memory_mib')::bigint AS memory_mib,
           (spec -> 'resources' ->> 'gpus')::bigint AS gpus
      FROM regional.requests AS r CROSS JOIN LATERAL (SELECT {_RAISED} AS priority) AS turn
     WHERE region = :region AND state IN ('pending', 'timed_out')
       AND (tenant, workload, generation) > (:after_tenant, :after_workload, :after_generation)
     ORDER BY tenant, workload, generation LIMIT :most
""")

_PLAIN = (
    "region", "tenant", "workload", "generation", "slots", "priority", "state", "attempts",
    "enqueued_at", "deadline", "next_retry_at", "spec", "waiting", "completed",
    "given_up", "held_back", "failures", "at_once", "decided_version",
)  # fmt: skip
_RowKey = tuple[str, str, int]
_BEFORE_ALL: _RowKey = ("", "", 0)


class WaitingRequest(NamedTuple):
    """One placement that waits, as far as a wakeup is concerned."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    priority: int
    enqueued_at: datetime
    waits: QueuedWork


async def write_requests(
    databases: Databases, region: RegionId, requests: Sequence[SchedulingRequest]
) -> list[Refusal | None]:
    """Writes requests as they are now; answers a refusal for each that was withdrawn before.

    One that would be withdrawn is refused while its share says more than its placement has read.

    A known request keeps the time since when it waits, and its spec.
    """
    assert len(requests) <= MAX_REQUESTS_PER_CALL, f"at most {MAX_REQUESTS_PER_CALL} per call"
    assert all(request.region == region for request in requests), "a queue belongs to one region"
    # The last of several writes of one request in a batch is what it is now.
    newest = {_key(request): request for request in requests}
    # Only with a withdrawal is there more than one statement to commit.
    is_any_withdrawn = any(one.state is RequestState.WITHDRAWN for one in newest.values())
    write = _write if is_any_withdrawn else _write_alone
    withdrawn, newer = await write(databases, region, list(newest.values()))
    return [_why_not(request, withdrawn, newer) for request in requests]


async def _write_within(
    connection: AsyncConnection, region: RegionId, requests: Sequence[SchedulingRequest]
) -> tuple[set[_RowKey], set[_RowKey]]:
    """Answers which of these requests were withdrawn before, and which may not be yet."""
    newer: set[_RowKey] = set()
    if any(request.state is RequestState.WITHDRAWN for request in requests):
        ending = await connection.execute(_LOCK_ENDING, _sent(region, requests))
        newer = {(row.tenant, row.workload, row.generation) for row in ending if row.is_newer}
        requests = [request for request in requests if _key(request) not in newer]
    rows = _sent(region, requests)
    written = (await connection.execute(_WRITE, rows)).all()
    if any(request.state is RequestState.WITHDRAWN for request in requests):
        await connection.execute(_CLOSE_SHARES, rows)
    if len(written) == len(requests):
        return set(), newer
    known = await connection.execute(_FIND_WITHDRAWN, rows)
    return {(row.tenant, row.workload, row.generation) for row in known}, newer


_DOING = "write requests of {region}"
_write = regional_transaction(ROLE, _DOING)(_write_within)
_write_alone = regional_transaction(ROLE, _DOING, commits_each=True)(_write_within)


class RequestQueue(Batcher[SchedulingRequest, Refusal | None]):
    """Writes one region's requests; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        super().__init__(
            f"request queue of {region}",
            "request",
            self._write,
            max_batch=MAX_REQUESTS_PER_CALL,
            turn_of=lambda request: Turn(request.tenant),
        )

    async def _write(self, requests: list[SchedulingRequest]) -> list[Refusal | None]:
        return await write_requests(self._databases, self._region, requests)


@regional_transaction("durable_reader", "read a request of {tenant}/{workload}")
async def read_request(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> SchedulingRequest | None:
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    row = (await connection.execute(_READ, of)).mappings().one_or_none()
    return None if row is None else SchedulingRequest.read(_fields(row))


async def read_queue(databases: Databases, region: RegionId) -> list[QueuedRequest]:
    """Which requests wait for a node, in the order in which they are served."""
    rows = await read_pages(
        lambda after: _read_queue(databases, region, after),
        _BEFORE_ALL,
        lambda one: (str(one.tenant), str(one.workload), one.generation),
    )
    return sorted(rows, key=lambda one: one.position)


@regional_transaction("durable_reader", "read the queue of {region}")
async def _read_queue(
    connection: AsyncConnection, region: RegionId, after: _RowKey
) -> list[QueuedRequest]:
    rows = await connection.execute(_QUEUE, _page(region, after))
    return [
        QueuedRequest.read(
            {**_fields(row), "position": row["position"], "age_seconds": row["age_seconds"]}
        )
        for row in rows.mappings()
    ]


async def read_waiting(databases: Databases, region: RegionId) -> list[WaitingRequest]:
    """What waits, in the order in which it is woken: tenants take turns."""
    rows = await read_pages(
        lambda after: _read_waiting(databases, region, after),
        _BEFORE_ALL,
        lambda one: (str(one.tenant), str(one.workload), one.generation),
    )
    rows.sort(key=lambda one: one.enqueued_at)
    return in_turns(rows, lambda one: Turn(one.tenant, one.priority))


@regional_transaction("durable_reader", "read who waits in {region}")
async def _read_waiting(
    connection: AsyncConnection, region: RegionId, after: _RowKey
) -> list[WaitingRequest]:
    return [_waiting(row) for row in await connection.execute(_WAITING, _page(region, after))]


def _page(region: RegionId, after: _RowKey) -> dict[str, Any]:
    tenant, workload, generation = after
    key = {"after_tenant": tenant, "after_workload": workload, "after_generation": generation}
    return {"region": region, "most": ROWS_PER_PAGE, **key}


def _waiting(row: Any) -> WaitingRequest:
    amounts = (row.cpu_millis or 0, row.memory_mib or 0, row.gpus or 0)
    waits = QueuedWork(
        tenant=row.tenant,
        code=PendingCode(row.pending_code or PendingCode.QUEUED),
        requested=amounts,
        slots=row.waiting,
        decided_version=row.decided_version,
        together=row.together,
        because=row.because and PendingCode(row.because),
        backs_off=bool(row.backs_off),
    )
    return WaitingRequest(
        row.tenant, row.workload, row.generation, row.priority, row.enqueued_at, waits
    )


def pending_of(row: Any) -> Pending | None:
    """Why a request waits, from its columns."""
    if row["pending_code"] is None:
        return None
    return Pending(code=row["pending_code"], parameters=row["pending_parameters"])


def _fields(row: Any) -> dict[str, Any]:
    plain = {name: row[name] for name in _PLAIN}
    return {**plain, "pending": pending_of(row)}


def _columns(request: SchedulingRequest) -> dict[str, Any]:
    pending = request.pending
    return {
        **request.model_dump(mode="json", exclude={"region", "pending"}),
        "pending_code": pending and pending.code.value,
        "pending_parameters": pending and dict(pending.parameters),
    }


def _key(request: SchedulingRequest) -> _RowKey:
    return (str(request.tenant), str(request.workload), request.generation)


def _sent(region: RegionId, requests: Sequence[SchedulingRequest]) -> dict[str, str]:
    return {"region": region, "rows": json.dumps([_columns(request) for request in requests])}


def _why_not(
    request: SchedulingRequest, withdrawn: Set[_RowKey], newer: Set[_RowKey]
) -> Refusal | None:
    if request.state is RequestState.WITHDRAWN:
        return _share_is_newer(request) if _key(request) in newer else None
    return _refusal(request) if _key(request) in withdrawn else None


def _share_is_newer(request: SchedulingRequest) -> Refusal:
    return Refusal(
        code=RefusalCode.OLD_DIVISION,
        sentence=f"The share of generation {request.generation} of {request.tenant}/"
        f"{request.workload} in {request.region} has changed since it was read; read it again "
        "before it ends.",
    )


def _refusal(request: SchedulingRequest) -> Refusal:
    return Refusal(
        code=RefusalCode.ILLEGAL_MOVE,
        sentence=f"Generation {request.generation} of {request.tenant}/{request.workload} was "
        f"withdrawn from {request.region} and cannot return; request the next generation.",
    )

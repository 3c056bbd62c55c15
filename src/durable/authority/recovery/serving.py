"""What a region knows of many workloads at once: which slots have a node, serve, or wait."""

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.authority.queue.requests import pending_of
from durable.authority.workloads.rows import RowKey
from durable.model.ids import RegionId
from durable.model.work.workload import AdmittedWorkload
from durable.validation.text import shorten

_KEYS = sent_rows("keys", "key", "tenant text, workload text")

_CLAIMS = text(f"""
    SELECT tenant, workload, c.slot, c.state, c.read_at - c.since AS age
      FROM {_KEYS}
      JOIN regional.live_claims(statement_timestamp()) AS c USING (tenant, workload)
     WHERE c.region = :region AND c.stop_requested_at IS NULL
""")

_PENDING = text(f"""
    SELECT q.tenant, q.workload, q.pending_code, q.pending_parameters
      FROM {_KEYS}
      JOIN regional.requests AS q USING (tenant, workload)
     WHERE q.region = :region AND q.state <> 'withdrawn' AND q.waiting > 0
       AND q.pending_code IS NOT NULL
     ORDER BY q.tenant, q.workload, q.generation
""")

_JOBS = sent_rows("keys", "key", "tenant text, workload text, generation bigint")

# Slots of jobs that have ended by themselves, not because they were asked to stop, and those that
# their placement has given up.
_DONE = text(f"""
    SELECT q.tenant, q.workload, unnest(q.completed || q.given_up) AS slot
      FROM {_JOBS}
      JOIN regional.requests AS q USING (tenant, workload, generation)
     WHERE q.region = :region
     UNION
    SELECT i.tenant, i.workload, i.slot
      FROM {_JOBS}
      JOIN regional.intents AS i USING (tenant, workload, generation)
      JOIN regional.bindings AS b
        ON b.region = i.region AND b.token = CAST(i.outcome ->> 'token' AS bigint)
      JOIN regional.observations AS o ON o.region = b.region AND o.token = b.token
     WHERE i.region = :region AND i.step = 'release' AND i.outcome ->> 'kind' = 'granted'
       AND b.stop_requested_at IS NULL AND o.state = 'stopped'
""")

_PRESENCE = text("""
    SELECT count(*) AS nodes,
           count(*) FILTER (
               WHERE l.expires_at > statement_timestamp() AND l.epoch = r.epoch) AS live
      FROM regional.regions AS r
      JOIN regional.nodes AS n USING (region)
      LEFT JOIN regional.node_leases AS l ON l.region = n.region AND l.node = n.node
     WHERE n.region = :region AND n.state <> 'removed' AND n.cordon_reason IS NULL
""")


@dataclass
class ServingReplicas:
    """Of one workload in one region."""

    serving_since: dict[int, datetime] = field(default_factory=dict[int, datetime])
    placed: set[int] = field(default_factory=set[int])
    waits: str = ""


@regional_transaction("durable_reader", "read how far the moved workloads are in {region}")
async def read_serving(
    connection: AsyncConnection, region: RegionId, keys: Collection[RowKey], now: datetime
) -> dict[RowKey, ServingReplicas]:
    """By workload; what has neither a claim nor a reason to wait is missing.

    Since when something serves is by the clock of `now`: the region's own may be another.
    """
    named = [{"tenant": tenant, "workload": workload} for tenant, workload in keys]
    of = {"region": region, "keys": json.dumps(named)}
    found: dict[RowKey, ServingReplicas] = defaultdict(ServingReplicas)
    for row in await connection.execute(_CLAIMS, of):
        one = found[row.tenant, row.workload]
        one.placed.add(row.slot)
        if row.state == "serving":
            one.serving_since[row.slot] = now - row.age
    for row in (await connection.execute(_PENDING, of)).mappings():
        pending = pending_of(row)
        if pending is not None:
            found[row["tenant"], row["workload"]].waits = shorten(f"{region}: {pending}")
    return dict(found)


@regional_transaction("durable_reader", "read which jobs are done in {region}")
async def read_done(
    connection: AsyncConnection, region: RegionId, jobs: Collection[AdmittedWorkload]
) -> dict[RowKey, frozenset[int]]:
    """By job, the slots that the region has seen to their end."""
    include = {"tenant", "workload", "generation"}
    named = [job.model_dump(mode="json", include=include) for job in jobs]
    done: dict[RowKey, set[int]] = defaultdict(set)
    for row in await connection.execute(_DONE, {"region": region, "keys": json.dumps(named)}):
        done[row.tenant, row.workload].add(row.slot)
    return {key: frozenset(slots) for key, slots in done.items()}


@dataclass(frozen=True)
class Presence:
    """How much of a region is there: nodes that could take work, and those with a live lease."""

    nodes: int
    live: int


@regional_transaction("durable_reader", "look whether {region} is back")
async def read_presence(connection: AsyncConnection, region: RegionId) -> Presence:
    row = (await connection.execute(_PRESENCE, {"region": region})).one()
    return Presence(row.nodes, row.live)

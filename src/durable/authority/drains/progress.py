"""What is left on the nodes of a drain, and what each workload there waits for."""

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.authority.queue.requests import pending_of
from durable.authority.reads.claims import CLAIM_COLUMNS, claim_of, conditions
from durable.model.fleet.drain import Drain, DrainProgress, LeftFacts, measure_progress
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.model.time_left import TimeLeft

_LEFT = text(f"""
    SELECT {CLAIM_COLUMNS}, 1 AS ordinal, c.is_job
      FROM regional.live_claims(statement_timestamp()) AS c
     WHERE {conditions(["nodes"])}
     ORDER BY c.tenant, c.workload, c.slot
""")

_PENDING = text(f"""
    SELECT tenant, workload, pending_code, pending_parameters
      FROM {sent_rows("keys", "key", "tenant text, workload text")}
      JOIN regional.requests USING (tenant, workload)
     WHERE region = :region AND state <> 'withdrawn' AND waiting > 0
     ORDER BY tenant, workload, generation
""")

# What serves as the regional commit counts it, and what is on its way to it elsewhere.
_SERVING = text(f"""
    SELECT key.tenant, key.workload, coalesce(f.must_serve, 0) AS must_serve,
           count(*) FILTER (WHERE c.state = 'serving') AS serving,
           count(*) FILTER (WHERE c.state IS DISTINCT FROM 'serving'
                              AND NOT c.node = ANY(:nodes)) AS coming_up
      FROM {sent_rows("keys", "key", "tenant text, workload text")}
      LEFT JOIN regional.disruption_floors AS f
        ON f.region = :region AND f.tenant = key.tenant AND f.workload = key.workload
      JOIN regional.live_claims(statement_timestamp()) AS c
        ON c.tenant = key.tenant AND c.workload = key.workload
     WHERE c.region = :region AND c.stop_requested_at IS NULL
     GROUP BY key.tenant, key.workload, f.must_serve
""")

_Key = tuple[str, str]


@regional_transaction("durable_reader", "read what is left on {drain.target}")
async def read_progress(
    connection: AsyncConnection, region: RegionId, drain: Drain
) -> DrainProgress:
    """By the region's own rows and clock."""
    deadline_in = TimeLeft.of(drain.deadline_at, await read_clock(connection))
    of: dict[str, Any] = {"region": region, "nodes": list(map(str, drain.nodes))}
    replicas: dict[_Key, list[RegionalClaim]] = defaultdict(list)
    for row in await connection.execute(_LEFT, of):
        replicas[row.tenant, row.workload].append(claim_of(row))
    facts = await _facts(connection, of, replicas) if replicas else []
    return measure_progress(facts, wait_for_jobs=drain.wait_for_jobs, deadline_in=deadline_in)


async def _facts(
    connection: AsyncConnection, of: dict[str, Any], replicas: dict[_Key, list[RegionalClaim]]
) -> list[LeftFacts]:
    keys = [{"tenant": tenant, "workload": workload} for tenant, workload in replicas]
    named = {**of, "keys": json.dumps(keys)}
    waiting = (await connection.execute(_PENDING, named)).mappings()
    pending = {(row["tenant"], row["workload"]): pending_of(row) for row in waiting}
    counts = {(row.tenant, row.workload): row for row in await connection.execute(_SERVING, named)}
    facts: list[LeftFacts] = []
    for (tenant, workload), left in replicas.items():
        row = counts.get((tenant, workload))
        facts.append(
            LeftFacts(
                tenant=TenantId(tenant),
                workload=WorkloadName(workload),
                replicas=tuple(left),
                pending=pending.get((tenant, workload)),
                serving=0 if row is None else row.serving,
                must_serve=0 if row is None else row.must_serve,
                coming_up=0 if row is None else row.coming_up,
            )
        )
    return facts

"""Decisions, written down before they are acted on: the first writer of an attempt wins.

A step that crashed after its decision runs again on another cache and may decide otherwise; it is
answered the decision on record, and so sends the same intents.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases, transact
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.records import Decision

ROLE = "durable_scheduler"
MAX_DECISIONS_PER_CALL = 500

# In one order, so that two batches with the same attempts wait for each other and never in turns.
_APPEND = text("""
    INSERT INTO regional.decisions
           (region, tenant, workload, generation, attempt, policy_revision, cache_version, evidence,
            decided_at)
    SELECT :region, tenant, workload, generation, attempt, policy_revision, cache_version,
           evidence, decided_at
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, attempt integer,
           policy_revision integer, cache_version bigint, evidence jsonb, decided_at timestamptz)
     ORDER BY tenant, workload, generation, attempt
        ON CONFLICT DO NOTHING
    RETURNING tenant, workload, generation, attempt
""")

# A statement of its own: one that began before another writer's commit would not see its rows.
_STORED = text("""
    SELECT d.* FROM regional.decisions AS d
      JOIN jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, attempt integer)
     USING (tenant, workload, generation, attempt)
     WHERE d.region = :region
""")

_READ = text("""
    SELECT * FROM regional.decisions
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND (CAST(:generation AS bigint) IS NULL OR generation = :generation)
       AND (CAST(:attempt AS integer) IS NULL OR attempt = :attempt)
     ORDER BY generation DESC, attempt DESC LIMIT :last
""")

_Key = tuple[str, str, int, int]


async def record_decisions(
    databases: Databases, region: RegionId, decisions: Sequence[Decision]
) -> list[Decision]:
    """Appends decisions and answers those on record for the same attempts, in their order."""
    assert len(decisions) <= MAX_DECISIONS_PER_CALL, f"at most {MAX_DECISIONS_PER_CALL} per call"
    assert all(decision.region == region for decision in decisions), "a log is of one region"
    first: dict[_Key, Decision] = {}
    for decision in decisions:
        first.setdefault(_key(decision), decision)
    rows = [decision.model_dump(mode="json", exclude={"region"}) for decision in first.values()]
    named = {"region": region, "rows": json.dumps(rows)}

    async def work(connection: AsyncConnection) -> dict[_Key, Decision]:
        appended = {_key(row) for row in await connection.execute(_APPEND, named)}
        if len(appended) == len(first):
            return first
        stored = await connection.execute(_STORED, named)
        return {_key(one): one for one in map(_decision, stored.mappings())}

    engine = databases.at_region(region, ROLE)
    stored = await transact(engine, work, doing=f"record decisions of {region}")
    return [stored[_key(decision)] for decision in decisions]


class DecisionLog(Batcher[Decision, Decision]):
    """One region's writer of decisions; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        async def work(decisions: list[Decision]) -> list[Decision]:
            return await record_decisions(databases, region, decisions)

        super().__init__(
            f"decision log of {region}", "decision", work, max_batch=MAX_DECISIONS_PER_CALL
        )


async def read_decisions(
    databases: Databases,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation | None = None,
    attempt: int | None = None,
    last: int = 50,
) -> list[Decision]:
    """The newest decisions on a workload in a region, the newest last."""
    of = {"region": region, "tenant": tenant, "workload": workload}
    which = {"generation": generation, "attempt": attempt, "last": last}

    async def work(connection: AsyncConnection) -> list[Decision]:
        rows = (await connection.execute(_READ, {**of, **which})).mappings()
        return [_decision(row) for row in rows][::-1]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the decisions on {tenant}/{workload}")


def _decision(row: Any) -> Decision:
    return Decision(**dict(row))


def _key(of: Any) -> _Key:
    return (str(of.tenant), str(of.workload), of.generation, of.attempt)

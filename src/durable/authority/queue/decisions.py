"""Decisions, recorded before they are acted on: the first writer of an attempt wins.

A step that crashed after its decision runs again on another cache and may decide differently; it
gets the recorded decision back, and so sends the same intents.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.records import Decision

ROLE = "durable_scheduler"
MAX_DECISIONS_PER_CALL = 500

# In one order, so that two batches with the same attempts wait for each other and never deadlock.
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
_RECORDED = text("""
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

_AttemptKey = tuple[str, str, int, int]


async def record_decisions(
    databases: Databases, region: RegionId, decisions: Sequence[Decision]
) -> list[Decision]:
    """Appends decisions; answers the recorded decision of each attempt, in the same order."""
    assert len(decisions) <= MAX_DECISIONS_PER_CALL, f"at most {MAX_DECISIONS_PER_CALL} per call"
    assert all(decision.region == region for decision in decisions), "a log belongs to one region"
    first: dict[_AttemptKey, Decision] = {}
    for decision in decisions:
        first.setdefault(_key(decision), decision)
    recorded = await _record(databases, region, first)
    return [recorded[_key(decision)] for decision in decisions]


@regional_transaction(ROLE, "record decisions of {region}")
async def _record(
    connection: AsyncConnection, region: RegionId, decisions: Mapping[_AttemptKey, Decision]
) -> Mapping[_AttemptKey, Decision]:
    rows = [decision.model_dump(mode="json", exclude={"region"}) for decision in decisions.values()]
    parameters = {"region": region, "rows": json.dumps(rows)}
    appended = (await connection.execute(_APPEND, parameters)).all()
    if len(appended) == len(decisions):
        return decisions
    recorded = await connection.execute(_RECORDED, parameters)
    return {_key(one): one for one in map(_decision, recorded.mappings())}


class DecisionLog(Batcher[Decision, Decision]):
    """Records one region's decisions; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        super().__init__(
            f"decision log of {region}", "decision", self._record, max_batch=MAX_DECISIONS_PER_CALL
        )

    async def _record(self, decisions: list[Decision]) -> list[Decision]:
        return await record_decisions(self._databases, self._region, decisions)


@regional_transaction("durable_reader", "read the decisions on {tenant}/{workload}")
async def read_decisions(
    connection: AsyncConnection,
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
    rows = (await connection.execute(_READ, {**of, **which})).mappings()
    return [_decision(row) for row in rows][::-1]


def _decision(row: Any) -> Decision:
    return Decision(**dict(row))


def _key(of: Any) -> _AttemptKey:
    return (str(of.tenant), str(of.workload), of.generation, of.attempt)

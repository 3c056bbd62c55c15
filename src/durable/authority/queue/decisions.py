"""Decisions, recorded before they are acted on: the first writer of an attempt wins.

A step that crashed after its decision runs again on another cache and may decide differently; it
gets the recorded decision back, and so sends the same intents. A decision that places nothing and
finds the same as the one before it uses up no attempt: it is counted beside that one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import text

from durable.authority.db.batching import Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.fair_queue import Turn
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.placement.records import Decision

ROLE = "durable_scheduler"
MAX_DECISIONS_PER_CALL = 500

# In one order, so that two batches with the same attempts wait for each other and never deadlock.
_APPEND = text("""
    INSERT INTO regional.decisions
           (region, tenant, workload, generation, attempt, policy_revision, cache_version, evidence,
            decided_at, findings)
    SELECT :region, tenant, workload, generation, attempt, policy_revision, cache_version,
           evidence, decided_at, findings
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, attempt integer,
           policy_revision integer, cache_version bigint, evidence jsonb, decided_at timestamptz,
           findings text)
     ORDER BY tenant, workload, generation, attempt
        ON CONFLICT DO NOTHING
    RETURNING tenant, workload, generation, attempt
""")

_REPEATED_COLUMNS = (
    "tenant text, workload text, generation bigint, attempt integer, cache_version bigint,"
    " decided_at timestamptz, findings text"
)

# Which of them find what the attempt before found; an attempt that was recorded stays what it is.
_COUNT_REPEATS = text(f"""
    INSERT INTO regional.decision_repeats AS r
           (region, tenant, workload, generation, attempt, repeats, cache_version, repeated_at)
    SELECT :region, tenant, workload, generation, before.attempt, 1, row.cache_version,
           row.decided_at
      FROM {sent_rows("rows", "row", _REPEATED_COLUMNS)}
      JOIN regional.decisions AS before USING (tenant, workload, generation)
     WHERE before.region = :region AND before.attempt = row.attempt - 1
       AND before.findings = row.findings
       AND NOT EXISTS (SELECT FROM regional.decisions AS d
                        WHERE d.region = :region AND d.tenant = row.tenant
                          AND d.workload = row.workload AND d.generation = row.generation
                          AND d.attempt = row.attempt)
     ORDER BY tenant, workload, generation, before.attempt
        ON CONFLICT (region, tenant, workload, generation, attempt) DO UPDATE
       SET repeats = r.repeats + 1, cache_version = excluded.cache_version,
           repeated_at = greatest(r.repeated_at, excluded.repeated_at)
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
    SELECT d.*, coalesce(r.repeats, 0) AS repeats, r.repeated_at
      FROM regional.decisions AS d
      LEFT JOIN regional.decision_repeats AS r
           USING (region, tenant, workload, generation, attempt)
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND (CAST(:generation AS bigint) IS NULL OR generation = :generation)
       AND (CAST(:attempt AS integer) IS NULL OR attempt = :attempt)
     ORDER BY generation DESC, attempt DESC LIMIT :last
""")

_NEWEST = text("""
    SELECT coalesce(max(attempt), 0) FROM regional.decisions
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND generation = :generation
""")

_AttemptKey = tuple[str, str, int, int]


async def record_decisions(
    databases: Databases, region: RegionId, decisions: Sequence[Decision]
) -> list[Decision]:
    """Appends decisions; answers the one that counts for each attempt, in the same order.

    That is the decision itself, or the one that was recorded for the attempt before, or that of
    the attempt before it, if it places nothing and finds the same.
    """
    assert len(decisions) <= MAX_DECISIONS_PER_CALL, f"at most {MAX_DECISIONS_PER_CALL} per call"
    assert all(decision.region == region for decision in decisions), "a log belongs to one region"
    first: dict[_AttemptKey, Decision] = {}
    for decision in decisions:
        first.setdefault(_key(decision), decision)
    if all(decision.attempt == 1 for decision in decisions):
        recorded = await _record_first(databases, region, first)
    else:
        recorded = await _record(databases, region, first)
    return [recorded[_key(decision)] for decision in decisions]


@regional_transaction(ROLE, "record decisions of {region}", commits_each=True)
async def _record_first(
    connection: AsyncConnection, region: RegionId, decisions: Mapping[_AttemptKey, Decision]
) -> Mapping[_AttemptKey, Decision]:
    """First attempts repeat nothing: they are appended by one statement."""
    return await _append(connection, region, decisions)


@regional_transaction(ROLE, "record decisions of {region}")
async def _record(
    connection: AsyncConnection, region: RegionId, decisions: Mapping[_AttemptKey, Decision]
) -> Mapping[_AttemptKey, Decision]:
    repeated = await _count_repeats(connection, region, decisions)
    fresh = {key: one for key, one in decisions.items() if key not in repeated}
    return {**await _append(connection, region, fresh), **repeated}


async def _append(
    connection: AsyncConnection, region: RegionId, decisions: Mapping[_AttemptKey, Decision]
) -> Mapping[_AttemptKey, Decision]:
    if not decisions:
        return {}
    parameters = {"region": region, "rows": _rows(decisions.values())}
    appended = (await connection.execute(_APPEND, parameters)).all()
    if len(appended) == len(decisions):
        return decisions
    recorded = await connection.execute(_RECORDED, parameters)
    return {_key(one): one for one in map(_decision, recorded.mappings())}


async def _count_repeats(
    connection: AsyncConnection, region: RegionId, decisions: Mapping[_AttemptKey, Decision]
) -> dict[_AttemptKey, Decision]:
    """Those that find the same as the attempt before, each as a decision of that attempt."""
    maybe = [one for one in decisions.values() if one.findings is not None and one.attempt > 1]
    if not maybe:
        return {}
    parameters = {"region": region, "rows": _rows(maybe)}
    counted = {_key(row) for row in await connection.execute(_COUNT_REPEATS, parameters)}
    before = {key: (*key[:3], key[3] - 1) for key in map(_key, maybe)}
    return {
        key: decisions[key].model_copy(update={"attempt": key[3] - 1})
        for key, earlier in before.items()
        if earlier in counted
    }


class DecisionLog(Batcher[Decision, Decision]):
    """Records one region's decisions; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        super().__init__(
            f"decision log of {region}",
            "decision",
            self._record,
            max_batch=MAX_DECISIONS_PER_CALL,
            turn_of=lambda decision: Turn(decision.tenant),
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


@regional_transaction("durable_reader", "read the newest attempt at {tenant}/{workload}")
async def read_newest_attempt(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> int:
    """The number of the newest decision on a placement, or 0."""
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    return (await connection.execute(_NEWEST, of)).scalar_one()


def _rows(decisions: Iterable[Decision]) -> str:
    fields = {"region", "repeats", "repeated_at"}
    return json.dumps([one.model_dump(mode="json", exclude=fields) for one in decisions])


def _decision(row: Any) -> Decision:
    return Decision(**dict(row))


def _key(of: Any) -> _AttemptKey:
    return (str(of.tenant), str(of.workload), of.generation, of.attempt)

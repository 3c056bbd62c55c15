"""Recovery budgets: capacity that ordinary work may not use, opened by an incident, with an end."""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.quota.quotas import amounts_of, named
from durable.model.ids import ActorId, BudgetId, IncidentId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources

ROLE = "durable_recovery"

_READ = text("""
    SELECT cpu_millis, memory_mib, gpus, used_cpu_millis, used_memory_mib, used_gpus, incident,
           expires_at
      FROM regional.recovery_budgets WHERE region = :region AND budget = :budget
""")

_SET = text("""
    INSERT INTO regional.recovery_budgets
           (region, budget, cpu_millis, memory_mib, gpus, expires_at)
    VALUES (:region, :budget, :cpu_millis, :memory_mib, :gpus, :expires_at)
        ON CONFLICT (region, budget) DO UPDATE
       SET cpu_millis = excluded.cpu_millis, memory_mib = excluded.memory_mib,
           gpus = excluded.gpus, expires_at = excluded.expires_at
""")

_SET_INCIDENT = text("""
    UPDATE regional.recovery_budgets SET incident = :incident
     WHERE region = :region AND budget = :budget
""")


async def set_budget(
    databases: Databases,
    region: RegionId,
    budget: BudgetId,
    amount: Resources,
    *,
    expires_at: datetime,
    actor: ActorId,
) -> None:
    """Keeps capacity of a region for recovery until it expires; never below what is drawn."""
    of = {"region": region, "budget": budget}

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        row = (await connection.execute(_READ, of)).mappings().one_or_none()
        if row is not None and not amounts_of(row, "used_").fits_in(amount):
            raise RefusedError(
                RefusalCode.CAPACITY_IN_USE,
                f"Recovery budget {budget} of {region} has {amounts_of(row, 'used_')} drawn, so it "
                f"cannot shrink to {amount}; release the recovered work first.",
            )
        await advance_region(connection, region)
        await connection.execute(_SET, {**of, **named(amount), "expires_at": expires_at})
        await audit.append(
            connection,
            region,
            actor=actor,
            action="set recovery budget",
            target=f"budget/{budget}",
            before=None if row is None else _told(amounts_of(row), row["expires_at"]),
            after=_told(amount, expires_at),
        )

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"set recovery budget {budget}")


def _told(amount: Resources, expires_at: datetime) -> dict[str, str]:
    return {"amount": str(amount), "expires_at": expires_at.isoformat()}


async def read_budget(
    databases: Databases, region: RegionId, budget: BudgetId
) -> tuple[Resources, datetime, str | None] | None:
    """How much a budget keeps, until when, and for which incident; None if there is none."""

    async def work(connection: AsyncConnection) -> tuple[Resources, datetime, str | None] | None:
        found = await connection.execute(_READ, {"region": region, "budget": budget})
        row = found.mappings().one_or_none()
        return None if row is None else (amounts_of(row), row["expires_at"], row["incident"])

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read recovery budget {budget}")


async def open_budget(
    databases: Databases,
    region: RegionId,
    budget: BudgetId,
    *,
    incident: IncidentId,
    actor: ActorId,
) -> None:
    """Lets one incident draw on a budget; again for the same one changes nothing."""
    await _set_incident(databases, region, budget, (None, incident), incident, actor)


async def close_budget(
    databases: Databases,
    region: RegionId,
    budget: BudgetId,
    *,
    incident: IncidentId,
    actor: ActorId,
) -> None:
    """Ends an incident's draws. It names the incident: a late close must not end another's."""
    await _set_incident(databases, region, budget, (None, incident), None, actor)


async def _set_incident(
    databases: Databases,
    region: RegionId,
    budget: BudgetId,
    expected: tuple[IncidentId | None, ...],
    incident: IncidentId | None,
    actor: ActorId,
) -> None:
    of = {"region": region, "budget": budget}

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        row = (await connection.execute(_READ, of)).mappings().one_or_none()
        if row is None:
            raise RefusedError(
                RefusalCode.UNKNOWN_BUDGET,
                f"{region} has no recovery budget {budget}; set it first.",
            )
        if row["incident"] not in expected:
            raise RefusedError(
                RefusalCode.BUDGET_CLOSED,
                f"Recovery budget {budget} of {region} is open for incident {row['incident']}; "
                "close that one first.",
            )
        if row["incident"] == incident:
            return
        await advance_region(connection, region)
        await connection.execute(_SET_INCIDENT, {**of, "incident": incident})
        await audit.append(
            connection,
            region,
            actor=actor,
            action="close recovery budget" if incident is None else "open recovery budget",
            target=f"budget/{budget}",
            before={"incident": row["incident"]},
            after={"incident": incident},
        )

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"open recovery budget {budget}")

"""Recovery budgets: capacity that only an open incident may draw on, until it expires."""

from datetime import datetime
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.quota.quotas import amount_of, amount_parameters
from durable.model.fleet.capacity import RecoveryBudget
from durable.model.ids import ActorId, BudgetId, IncidentId, OverrideId, RegionId
from durable.model.placement.intents import Draw
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources

ROLE = "durable_recovery"

_READ = text("""
    SELECT * FROM regional.recovery_budgets WHERE region = :region AND budget = :budget
""")

_LIST = text("""
    SELECT * FROM regional.recovery_budgets
     WHERE region = :region AND expires_at > clock_timestamp() ORDER BY budget
""")

_OPEN = text("""
    SELECT * FROM regional.recovery_budgets
     WHERE region = :region AND incident = :incident ORDER BY budget
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


@regional_transaction(ROLE, "set recovery budget {budget}")
async def set_budget(
    connection: AsyncConnection,
    region: RegionId,
    budget: BudgetId,
    amount: Resources,
    *,
    expires_at: datetime,
    actor: ActorId,
) -> None:
    """Keeps capacity of a region for recovery until it expires; never less than what is drawn."""
    await lock_region(connection, region)
    before = await _read(connection, region, budget)
    if before is not None and not before.used.fits_in(amount):
        raise RefusedError(
            RefusalCode.CAPACITY_IN_USE,
            f"Recovery budget {budget} of {region} has {before.used} drawn, so it cannot shrink "
            f"to {amount}; release the recovered work first.",
        )
    await advance_region(connection, region)
    values = {"region": region, "budget": budget, **amount_parameters(amount)}
    await connection.execute(_SET, {**values, "expires_at": expires_at})
    await audit.append(
        connection,
        region,
        actor=actor,
        action="set recovery budget",
        target=f"budget/{budget}",
        before=None if before is None else _describe(before.amount, before.expires_at),
        after=_describe(amount, expires_at),
    )


def _describe(amount: Resources, expires_at: datetime) -> dict[str, str]:
    return {"amount": str(amount), "expires_at": expires_at.isoformat()}


@regional_transaction("durable_reader", "read recovery budget {budget}")
async def read_budget(
    connection: AsyncConnection, region: RegionId, budget: BudgetId
) -> RecoveryBudget | None:
    return await _read(connection, region, budget)


async def _read(
    connection: AsyncConnection, region: RegionId, budget: BudgetId
) -> RecoveryBudget | None:
    found = await connection.execute(_READ, {"region": region, "budget": budget})
    row = found.mappings().one_or_none()
    return None if row is None else budget_of(row)


@regional_transaction("durable_reader", "read the recovery budgets of {region}")
async def list_budgets(connection: AsyncConnection, region: RegionId) -> list[RecoveryBudget]:
    """Those of a region that have not expired."""
    rows = await connection.execute(_LIST, {"region": region})
    return [budget_of(row) for row in rows.mappings()]


@regional_transaction("durable_reader", "read which recovery budgets of {region} are open")
async def list_open_budgets(
    connection: AsyncConnection, region: RegionId, incident: IncidentId
) -> list[RecoveryBudget]:
    """Those of a region that are open for the incident, expired or not."""
    rows = await connection.execute(_OPEN, {"region": region, "incident": incident})
    return [budget_of(row) for row in rows.mappings()]


@regional_transaction("durable_reader", "read the recovery budgets of {region}")
async def find_draw(
    connection: AsyncConnection, region: RegionId, incident: IncidentId, wanted: Resources
) -> Draw | None:
    """The budget that is open for the incident with the most left, if one replica fits in it."""
    rows = await connection.execute(_LIST, {"region": region})
    fitting = [
        (budget.amount.excess_over(budget.used), budget)
        for budget in map(budget_of, rows.mappings())
        if budget.incident == incident
    ]
    fitting = [(left, budget) for left, budget in fitting if wanted.fits_in(left)]
    if not fitting:
        return None
    _, chosen = max(fitting, key=lambda one: one[0].amounts)
    return Draw(budget=chosen.budget, incident=incident)


def budget_of(row: Any) -> RecoveryBudget:
    return RecoveryBudget(
        region=RegionId(row["region"]),
        budget=BudgetId(row["budget"]),
        amount=amount_of(row),
        used=amount_of(row, "used_"),
        expires_at=row["expires_at"],
        incident=row["incident"] and IncidentId(row["incident"]),
        override=row["override"] and OverrideId(row["override"]),
    )


async def open_budget(
    databases: Databases,
    region: RegionId,
    budget: BudgetId,
    *,
    incident: IncidentId,
    actor: ActorId,
) -> None:
    """Lets one incident draw on a budget; opening it again for the same one changes nothing."""
    await _set_incident(databases, region, budget, (None, incident), incident, actor)


async def close_budget(
    databases: Databases,
    region: RegionId,
    budget: BudgetId,
    *,
    incident: IncidentId,
    actor: ActorId,
) -> None:
    """Ends an incident's draws; naming the incident keeps a late close from ending another's."""
    await _set_incident(databases, region, budget, (None, incident), None, actor)


@regional_transaction(ROLE, "open or close recovery budget {budget}")
async def _set_incident(
    connection: AsyncConnection,
    region: RegionId,
    budget: BudgetId,
    expected: tuple[IncidentId | None, ...],
    incident: IncidentId | None,
    actor: ActorId,
) -> None:
    await lock_region(connection, region)
    before = await _read(connection, region, budget)
    if before is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_BUDGET, f"{region} has no recovery budget {budget}; set it first."
        )
    if before.incident not in expected:
        raise RefusedError(
            RefusalCode.BUDGET_CLOSED,
            f"Recovery budget {budget} of {region} is open for incident {before.incident}; "
            "close that one first.",
        )
    if before.incident == incident:
        return
    await advance_region(connection, region)
    values = {"region": region, "budget": budget, "incident": incident}
    await connection.execute(_SET_INCIDENT, values)
    await audit.append(
        connection,
        region,
        actor=actor,
        action="close recovery budget" if incident is None else "open recovery budget",
        target=f"budget/{budget}",
        before={"incident": before.incident},
        after={"incident": incident},
    )

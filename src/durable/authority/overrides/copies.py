"""A region's copy of an override, which its commits obey: written by number, with its effects.

A copy of a higher number replaces an older one and one that has ended stays so, so a copy that was
sent twice or late changes nothing. Commits wait for the region's lock, which this takes first: each
of them sees the override as it was before or as it is after, by the clock that it reads itself.
What travels is how much of it is left, since that clock is not the global side's.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.clock import read_clock, read_regional_time, read_time
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.jumped_clock import settle_clock
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.overrides.rows import ROLE, read_overrides
from durable.authority.reads.claims import ClaimFilter
from durable.authority.slots.marks import Cause, CauseKind, Share, mark_claims, unmark_claims
from durable.failpoints import Failpoint, reach
from durable.model.ids import ActorId, RegionId
from durable.model.overrides.override import Override
from durable.model.states import OverrideState
from durable.model.time_left import TimeLeft
from durable.signals.names import override_id

_NUMBER = text("""
    SELECT number, ended_at FROM regional.overrides WHERE region = :region AND override = :override
""")

_INSERT = text("""
    INSERT INTO regional.overrides
           (region, override, number, kind, scope, effects, actor, reason, since, expires_at,
            ended_at, marked)
    VALUES (:region, :override, :number, :kind, CAST(:scope AS jsonb), CAST(:effects AS jsonb),
            :actor, :reason, :now, :expires_at, :ended_at, :marked)
""")

_CHANGE = text("""
    UPDATE regional.overrides
       SET number = :number, expires_at = :expires_at, ended_at = :ended_at
     WHERE region = :region AND override = :override
""")

_DRAW = text("""
    INSERT INTO regional.emergency_draws
           (region, override, tenant, cpu_millis, memory_mib, gpus, expires_at)
    VALUES (:region, :override, :tenant, :cpu_millis, :memory_mib, :gpus, :expires_at)
""")

_CHANGE_DRAW = text("""
    UPDATE regional.emergency_draws SET expires_at = :expires_at, has_ended = :has_ended
     WHERE region = :region AND override = :override
""")

_BUDGET = text("""
    INSERT INTO regional.recovery_budgets
           (region, budget, cpu_millis, memory_mib, gpus, expires_at, incident, override)
    VALUES (:region, :budget, :cpu_millis, :memory_mib, :gpus, :expires_at, :incident, :override)
""")

_CHANGE_BUDGET = text("""
    UPDATE regional.recovery_budgets
       SET expires_at = :expires_at, incident = CASE WHEN :has_ended THEN NULL ELSE incident END
     WHERE region = :region AND budget = :budget
""")


@dataclass(frozen=True)
class CopyResult:
    """Whether this call changed the copy, and the shares whose claims were marked or unmarked."""

    is_new: bool
    shares: frozenset[Share] = frozenset()


@dataclass(frozen=True)
class Moment:
    """When the copy changed: before every commit of a later version, and by the region's clock.

    The audit keeps the version, so that `durable doctor` can say what was in force at each commit.
    """

    version: int
    now: datetime
    # When the override ends, by the region's clock.
    expires_at: datetime


async def copy_override(databases: Databases, region: RegionId, override: Override) -> CopyResult:
    """Makes the region's copy what the override is, unless the region knows a later state."""
    if databases.is_beside_global(region):
        return await _copy(databases, region, override)
    # In this order: see `TimeLeft`.
    before = await read_regional_time(databases, region)
    left = TimeLeft.of(override.expires_at, await read_time(databases))
    return await _copy(databases, region, override, left, before)


@regional_transaction(ROLE, "copy override {override.id} to {region}")
async def _copy(
    connection: AsyncConnection,
    region: RegionId,
    override: Override,
    left: TimeLeft | None = None,
    before: datetime | None = None,
) -> CopyResult:
    """By the same clock, or with what was left of it after the region's clock was read."""
    await lock_region(connection, region)
    now = await read_clock(connection)
    await settle_clock(connection, region, now)
    of = {"region": region, "override": override.id}
    known = (await connection.execute(_NUMBER, of)).one_or_none()
    if known is not None and (known.number >= override.number or known.ended_at is not None):
        return CopyResult(is_new=False)
    expires_at = override.expires_at
    if left is not None:
        expires_at = left.counted_from(min(now, before or now))
    moment = Moment(await advance_region(connection, region), now, expires_at)
    if known is None and override.has_ended:
        await _bury(connection, region, override, moment)
        return CopyResult(is_new=True)
    if known is None:
        shares = await _put_in_force(connection, region, override, moment)
    else:
        shares = await _change(connection, region, override, moment)
    return CopyResult(is_new=True, shares=shares)


async def copy_overrides(databases: Databases, region: RegionId) -> None:
    """Has a region that was just added obey what is in force, before it can place anything.

    What comes into force from now on finds the region. If this is cut off, loading the fleet again
    or the next resync of each override makes up for it.
    """
    for override in await read_overrides(databases):
        if override.state is OverrideState.ACTIVE and override.regions([region]):
            await copy_override(databases, region, override)


async def _bury(
    connection: AsyncConnection, region: RegionId, override: Override, moment: Moment
) -> None:
    """It ended before the region heard of it: an earlier copy that comes late must find that."""
    row = _row(region, override, moment)
    await connection.execute(_INSERT, {**row, "ended_at": moment.now, "marked": 0})
    actor = override.changed_by or override.actor
    await _audit(connection, region, override, "end override", _shown(override, moment), actor)


async def _put_in_force(
    connection: AsyncConnection, region: RegionId, override: Override, moment: Moment
) -> frozenset[Share]:
    effects, of = override.effects, {"region": region, "override": override.id}
    marked = await _mark(connection, region, override) if effects.moves else []
    row = _row(region, override, moment)
    await connection.execute(_INSERT, {**row, "ended_at": None, "marked": len(marked)})
    if effects.draw is not None:
        draw = {**of, **effects.draw.model_dump(), "tenant": override.scope.tenant}
        await connection.execute(_DRAW, {**draw, "expires_at": moment.expires_at})
    if effects.budget is not None:
        kept = {**effects.budget.amount.model_dump(), "incident": effects.budget.incident}
        named = {**of, "budget": override_id(override.id)}
        await connection.execute(_BUDGET, {**named, **kept, "expires_at": moment.expires_at})
    done = effects.model_dump(mode="json", exclude_defaults=True)
    after = {**_shown(override, moment), "effects": done, "marked": len(marked)}
    actor = override.approver or override.actor
    reach(Failpoint.BEFORE_AUDIT_COPY)
    await _audit(connection, region, override, "put override in force", after, actor)
    return frozenset(marked)


async def _change(
    connection: AsyncConnection, region: RegionId, override: Override, moment: Moment
) -> frozenset[Share]:
    """Extended, or ended: from here on it grants and forbids nothing."""
    has_ended = override.has_ended
    values: dict[str, Any] = {
        "region": region,
        "override": override.id,
        "number": override.number,
        "expires_at": moment.expires_at,
    }
    await connection.execute(_CHANGE, {**values, "ended_at": moment.now if has_ended else None})
    if override.effects.draw is not None:
        await connection.execute(_CHANGE_DRAW, {**values, "has_ended": has_ended})
    if override.effects.budget is not None:
        # What is kept for recovery is free again at once.
        until = min(moment.expires_at, moment.now) if has_ended else moment.expires_at
        named = {"region": region, "budget": override_id(override.id)}
        await connection.execute(
            _CHANGE_BUDGET, {**named, "expires_at": until, "has_ended": has_ended}
        )
    unmarked = frozenset[Share]()
    if has_ended:
        unmarked = await unmark_claims(connection, region, _cause(override))
    action = "end override" if has_ended else "extend override"
    after = {**_shown(override, moment), "unmarked": len(unmarked)}
    actor = override.changed_by or override.actor
    reach(Failpoint.BEFORE_AUDIT_COPY_CHANGE)
    await _audit(connection, region, override, action, after, actor)
    return unmarked


async def _mark(connection: AsyncConnection, region: RegionId, override: Override) -> list[Share]:
    """Once is enough: from this transaction on, the region's commits let nothing new go there."""
    return await mark_claims(
        connection,
        region,
        ClaimFilter(tenant=override.scope.tenant, workload=override.scope.workload),
        _cause(override),
        actor=override.actor,
        reason=override.reason,
        barred_by=override.effects,
    )


def _cause(override: Override) -> Cause:
    return Cause(CauseKind.OVERRIDE, str(override.id))


def _row(region: RegionId, override: Override, moment: Moment) -> dict[str, Any]:
    return {
        "region": region,
        "override": override.id,
        "number": override.number,
        "kind": override.kind,
        "scope": override.scope.model_dump_json(exclude_none=True),
        "effects": override.effects.model_dump_json(exclude_defaults=True),
        "actor": override.actor,
        "reason": override.reason,
        "now": moment.now,
        "expires_at": moment.expires_at,
    }


def _shown(override: Override, moment: Moment) -> dict[str, Any]:
    shown = {"kind", "scope", "state", "number", "outcome"}
    known = override.model_dump(mode="json", include=shown, exclude_none=True)
    # As the commits of the region obey it, by their own clock.
    known["expires_at"] = moment.expires_at.isoformat()
    return {**known, "version": moment.version}


async def _audit(
    connection: AsyncConnection,
    region: RegionId,
    override: Override,
    action: str,
    after: dict[str, Any],
    actor: ActorId,
) -> None:
    await audit.append(
        connection,
        region,
        actor=actor,
        action=action,
        target=override_id(override.id),
        after=after,
    )

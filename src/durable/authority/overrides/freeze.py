"""Whether the policy is frozen: asked before every step that brings one into force.

The global side is asked first. The region's copy has the last word, under the region's lock: a step
that was under way when the freeze came waits for that lock, and finds the freeze there.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.overrides.rows import override_of
from durable.model.ids import ActorId, OverrideId, RegionId
from durable.model.overrides.effects import OverrideScope
from durable.model.overrides.kinds import KINDS
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.text import show_moment

_UNENDED = text("SELECT * FROM global.overrides WHERE ended_at IS NULL ORDER BY override")

# By the clock of this statement, which comes after the lock.
_COPIED = text("""
    SELECT override, actor, scope, reason, expires_at FROM regional.overrides
     WHERE region = :region AND ended_at IS NULL AND expires_at > clock_timestamp()
       AND effects @> '{"freezes_policy": true}'
     ORDER BY override LIMIT 1
""")


async def refuse_while_frozen(connection: AsyncConnection, region: RegionId | None) -> None:
    """Refuses while a freeze of everything, or of this region, is in force."""
    rows = (await connection.execute(_UNENDED)).mappings().all()
    now = await read_clock(connection)
    # What a kind of a newer release does is not known here; the region's copy has its effects.
    for one in (override_of(row) for row in rows if row["kind"] in KINDS):
        concerns = one.scope.region in (None, region)
        if concerns and one.effects.freezes_policy and one.is_in_force(now):
            raise _frozen(one.id, one.actor, one.scope, one.reason, one.expires_at)


@global_transaction("durable_reader", "read where the policy is frozen")
async def read_frozen(
    connection: AsyncConnection, regions: Iterable[RegionId]
) -> dict[RegionId, str]:
    """Which of these are frozen by what the global side knows, and what says so."""
    frozen: dict[RegionId, str] = {}
    for region in regions:
        try:
            await refuse_while_frozen(connection, region)
        except RefusedError as refused:
            frozen[region] = refused.refusal.sentence
    return frozen


@global_transaction("durable_reader", "read whether the policy of {region} is frozen")
async def check_not_frozen(connection: AsyncConnection, region: RegionId) -> None:
    """`refuse_while_frozen`, for a step whose own transaction is in a region."""
    await refuse_while_frozen(connection, region)


async def refuse_while_frozen_here(connection: AsyncConnection, region: RegionId) -> None:
    """Refuses while a freeze that the region knows of is in force; the region is locked."""
    row = (await connection.execute(_COPIED, {"region": region})).one_or_none()
    if row is not None:
        scope = OverrideScope.read(row.scope)
        raise _frozen(row.override, row.actor, scope, row.reason, row.expires_at)


def _frozen(
    override: OverrideId, actor: ActorId, scope: OverrideScope, reason: str, until: datetime
) -> RefusedError:
    where = f"of {scope}" if scope.named else "everywhere"
    return RefusedError(
        RefusalCode.POLICY_FROZEN,
        f"{actor} froze the policy {where} until {show_moment(until)} "
        f"({reason[:200]}); wait, or revoke it: `durable override revoke {override} --reason ...`.",
    )

"""A region's clock that went back: what it wrote before is settled, and the audit says so."""

from datetime import datetime

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.model.fleet.region_life import STEP
from durable.model.ids import ActorId, RegionId
from durable.signals.names import override_id

ACTOR = ActorId("controller:region")

_SETTLE = text("SELECT regional.settle_clock(:region, :before, :now, :step)")


# What is left of it by the clock as it is now: what was in force at a commit is said by versions.
_OVERRIDES = text("""
    SELECT o.override, o.expires_at, r.version
      FROM regional.overrides AS o JOIN regional.regions AS r USING (region)
     WHERE o.region = :region AND o.ended_at IS NULL ORDER BY o.override
""")


async def settle_clock(
    connection: AsyncConnection, region: RegionId, now: datetime, before: datetime | None = None
) -> float | None:
    """If the clock of the locked region went back, by how many seconds.

    Then the lease of the region has ended, and what is left of other limits counts from the last
    moment seen; `before` is one that was read outside of the lock.
    """
    moment = {"region": region, "before": before or now, "now": now, "step": STEP}
    went_back = (await connection.execute(_SETTLE, moment)).scalar_one()
    if went_back is None:
        return None
    said = {"went_back_seconds": went_back, "now": now.isoformat()}
    events = [audit.Event(ACTOR, "settle clock", f"region/{region}", after=said)]
    for row in await connection.execute(_OVERRIDES, {"region": region}):
        after = {"version": row.version, "expires_at": row.expires_at.isoformat()}
        events.append(audit.Event(ACTOR, "settle override", override_id(row.override), after=after))
    await audit.append_all(connection, region, events)
    return went_back

"""What an incident must not leave behind on the global side."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.model.recovery.recoveries import Recovery

# Budgets that were kept for it, and quota that a tenant whose work it moved was given since the
# loss. What else people have overridden meanwhile is none of its concern.
_OVERRIDES = text("""
    SELECT override, kind, expires_at <= clock_timestamp() AS is_overdue
      FROM global.overrides AS o
     WHERE state = 'active'
       AND (kind = 'recovery-budget' AND effect ->> 'incident' = :incident
            OR kind = 'emergency-quota' AND activated_at >= :lost_at
               AND EXISTS (SELECT FROM global.recovery_moves AS m
                            WHERE m.region = :region AND m.epoch = :epoch
                              AND m.tenant = o.scope ->> 'tenant'))
     ORDER BY override LIMIT 20
""")


@global_transaction("durable_reader", "read which overrides {recovery.key.incident} leaves")
async def read_left_overrides(connection: AsyncConnection, recovery: Recovery) -> list[str]:
    """What people gave this recovery beyond the limits and has not ended, in sentences."""
    key = recovery.key
    of = {"incident": key.incident, "region": key.region, "epoch": key.epoch}
    rows = await connection.execute(_OVERRIDES, {**of, "lost_at": recovery.lost_at})
    return [
        f"Override {row.override} ({row.kind}) is past its time."
        if row.is_overdue
        else f"Override {row.override} ({row.kind}) is still in force; revoke it if it was for "
        "this loss."
        for row in rows
    ]

"""What an incident must not leave behind on the global side."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import global_transaction

_OVERRIDES = text("""
    SELECT override, kind, expires_at <= clock_timestamp() AS is_overdue FROM global.overrides
     WHERE state = 'active'
       AND (expires_at <= clock_timestamp() OR kind IN ('emergency_quota', 'recovery_budget'))
     ORDER BY override LIMIT 20
""")


@global_transaction("durable_reader", "read which overrides are left")
async def read_overdue_overrides(connection: AsyncConnection) -> list[str]:
    """Overrides past their time, and emergency quota that is still in force, in sentences."""
    return [
        f"Override {row.override} ({row.kind}) is past its time."
        if row.is_overdue
        else f"Override {row.override} ({row.kind}) is still in force; revoke it if it was for "
        "this loss."
        for row in await connection.execute(_OVERRIDES)
    ]

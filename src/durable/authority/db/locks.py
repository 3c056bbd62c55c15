"""Locks that are rows: only a role that may call the function can hold one, and no reader may."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.model.ids import RegionId

# One change at a time: whether one is left who may manage operators is read before it.
OPERATORS = "operators"
# One order at a time about all revisions.
POLICIES = "policies"

_HOLD = text("SELECT global.hold_lock(:name, :is_shared)")


def fence_of(region: RegionId) -> str:
    """Shared by those who rely on a region's fence, held alone by whoever opens the region."""
    return f"fence of {region}"


async def hold_lock(connection: AsyncConnection, name: str, *, is_shared: bool = False) -> None:
    """Waits for the lock, and holds it until the transaction ends."""
    await connection.execute(_HOLD, {"name": name, "is_shared": is_shared})

"""Overrides as the global side has them."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.model.ids import OverrideId
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode, RefusedError

ROLE = "durable_override"

_COLUMNS = """
    override, kind, scope, effect, actor, reason, ticket, ttl_seconds, approver, changed_by, state,
    number, proposed_at, activated_at, expires_at, latest_expiry, ended_at, outcome
"""

_READ = text(f"SELECT {_COLUMNS} FROM global.overrides WHERE override = :override")

_LOCK = text(f"SELECT {_COLUMNS} FROM global.overrides WHERE override = :override FOR UPDATE")

_LIVE = text(f"""
    SELECT {_COLUMNS} FROM global.overrides WHERE ended_at IS NULL ORDER BY expires_at, override
""")

_LATEST = text(f"""
    SELECT {_COLUMNS} FROM global.overrides WHERE ended_at IS NOT NULL
     ORDER BY proposed_at DESC, override LIMIT :most
""")

_AMONG = text(f"""
    SELECT {_COLUMNS} FROM global.overrides
     WHERE override = ANY(:overrides) AND ended_at IS NOT NULL ORDER BY override
""")


@global_transaction("durable_reader", "read override {override}")
async def read_override(connection: AsyncConnection, override: OverrideId) -> Override | None:
    row = (await connection.execute(_READ, {"override": override})).mappings().one_or_none()
    return None if row is None else override_of(row)


@global_transaction("durable_reader", "read the overrides")
async def read_overrides(
    connection: AsyncConnection, *, ended: int = 0, also: Collection[OverrideId] = ()
) -> list[Override]:
    """Those that are proposed or active; of those that have ended the latest, and some by name."""
    rows = list((await connection.execute(_LIVE)).mappings())
    rows += (await connection.execute(_AMONG, {"overrides": list(also)})).mappings()
    if ended:
        latest = (await connection.execute(_LATEST, {"most": ended})).mappings()
        rows += [row for row in latest if row["override"] not in also]
    return [override_of(row) for row in rows]


async def lock_override(connection: AsyncConnection, override: OverrideId) -> Any | None:
    """Its row, which nothing else changes until this transaction ends."""
    found = await connection.execute(_LOCK, {"override": override})
    return found.mappings().one_or_none()


def override_of(row: Any) -> Override:
    left_out = ("id", "ttl")
    fields = {name: row[name] for name in Override.model_fields if name not in left_out}
    ttl = timedelta(seconds=row["ttl_seconds"])
    return Override.read({**fields, "id": row["override"], "ttl": ttl})


def unknown_override(override: OverrideId) -> RefusedError:
    return RefusedError(
        RefusalCode.UNKNOWN_OVERRIDE,
        f"There is no override {override}; see `durable get overrides --all`.",
    )

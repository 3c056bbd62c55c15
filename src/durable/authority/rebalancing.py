"""Finishes transfers that somebody began and did not live to end."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import Databases, transact
from durable.authority.grants import GrantTransfer, transfer_grant
from durable.authority.quota import amounts_of
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusedError

MAX_RESUMED = 1_000

_OPEN = text("""
    SELECT * FROM global.grant_transfers WHERE tenant = :tenant AND state <> 'settled'
     ORDER BY requested_at LIMIT :most
""")


async def resume_transfers(databases: Databases, tenant: TenantId) -> None:
    """Goes on with every open transfer of a tenant; one that is refused stays open, unharmed."""

    async def work(connection: AsyncConnection) -> list[GrantTransfer]:
        rows = await connection.execute(_OPEN, {"tenant": tenant, "most": MAX_RESUMED})
        return [
            GrantTransfer(
                id=row["transfer"],
                tenant=tenant,
                amount=amounts_of(row),
                from_region=row["from_region"] and RegionId(row["from_region"]),
                to_region=row["to_region"] and RegionId(row["to_region"]),
                actor=ActorId(row["actor"]),
            )
            for row in rows.mappings()
        ]

    engine = databases.at_global("durable_reader")
    for transfer in await transact(engine, work, doing=f"read the transfers of {tenant}"):
        try:
            await transfer_grant(databases, transfer)
        except RefusedError:
            continue

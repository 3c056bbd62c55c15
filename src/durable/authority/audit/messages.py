"""Messages that a workflow refused, put into the audit: none is dropped in silence."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.workloads.rows import ROLE
from durable.model.ids import ActorId, RegionId

_TOLD = text("""
    SELECT EXISTS (SELECT FROM audit.events
                    WHERE chain = :chain AND after ? 'message_key'
                      AND after ->> 'message_key' = :key)
""")


async def audit_message(
    databases: Databases,
    chain: str,
    *,
    actor: ActorId,
    action: str,
    target: str,
    key: str,
    detail: Mapping[str, Any],
) -> bool:
    """Tells of one message, once per its key and chain; answers whether it was told just now.

    The chain is `audit.GLOBAL_CHAIN` for a workload's messages, its region for a placement's.
    """
    of = {"chain": chain, "key": key}

    async def tell(connection: AsyncConnection) -> bool:
        if (await connection.execute(_TOLD, of)).scalar_one():
            return False
        after = {**detail, "message_key": key}
        await audit.append(
            connection, chain, actor=actor, action=action, target=target, after=after
        )
        return True

    if chain == audit.GLOBAL_CHAIN:
        engine = databases.at_global(ROLE)
    else:
        engine = databases.at_region(RegionId(chain), "durable_placement")
    try:
        return await transact(engine, tell, doing=f"put a message into the audit of {chain}")
    except BrokenConstraintError:
        # Somebody told of it between the look and the append, and the index let one through.
        return await transact(engine, tell, doing=f"put a message into the audit of {chain}")

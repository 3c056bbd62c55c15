"""How many transactions a database has committed: the load that a control plane puts on it."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction

_COMMITS = text("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")


@global_transaction("durable_reader", "read how many transactions there were")
async def count_commits(connection: AsyncConnection) -> int:
    """Of the global side's database, since its statistics began."""
    return (await connection.execute(_COMMITS)).scalar_one()

"""The rows of drains: which run, which have ended, and how."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.fleet.drain import Drain, NodesTarget
from durable.model.ids import NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import drain_id

_BY_REQUEST = text("""
    SELECT * FROM regional.drains WHERE region = :region AND request = :request
""")

_RUNNING = text("""
    SELECT * FROM regional.drains WHERE region = :region AND ended_at IS NULL
     ORDER BY started_at
""")

_LATEST = text("""
    SELECT * FROM regional.drains WHERE region = :region AND ended_at IS NOT NULL
     ORDER BY started_at DESC LIMIT :most
""")


@regional_transaction("durable_reader", "read the drains of {region}")
async def read_drains(
    connection: AsyncConnection, region: RegionId, *, ended: int = 0
) -> list[Drain]:
    """Those that run, and the latest of those that have ended."""
    rows = list((await connection.execute(_RUNNING, {"region": region})).mappings())
    if ended:
        rows += (await connection.execute(_LATEST, {"region": region, "most": ended})).mappings()
    return [drain_of(row) for row in rows]


@regional_transaction("durable_reader", "read a drain of {region}")
async def read_drain(connection: AsyncConnection, region: RegionId, request: str) -> Drain | None:
    return await find_drain(connection, region, request)


@regional_transaction("durable_reader", "read the drain of {target}")
async def read_running(
    connection: AsyncConnection, region: RegionId, target: NodesTarget
) -> Drain | None:
    """The drain of just this target that runs now."""
    running = (await connection.execute(_RUNNING, {"region": region})).mappings()
    return next((one for one in map(drain_of, running) if one.target == target), None)


async def find_drain(connection: AsyncConnection, region: RegionId, request: str) -> Drain | None:
    of = {"region": region, "request": request}
    row = (await connection.execute(_BY_REQUEST, of)).mappings().one_or_none()
    return None if row is None else drain_of(row)


async def refuse_while_drained(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeId]
) -> None:
    """Refuses what a drain that runs would be in the way of; the region is locked."""
    for row in (await connection.execute(_RUNNING, {"region": region})).mappings():
        drain = drain_of(row)
        both = sorted(set(nodes) & set(drain.nodes))
        if both:
            raise RefusedError(
                RefusalCode.BEING_DRAINED,
                f"Node {both[0]} is being drained by {drain_id(drain.target)}, which {drain.actor} "
                f"began ({drain.reason[:200]}); wait until it ends, or cancel it.",
            )


def drain_of(row: Any) -> Drain:
    fields = {name: row[name] for name in Drain.model_fields if name != "target"}
    target = {name: row[name] for name in NodesTarget.model_fields}
    return Drain.read({**fields, "target": target})

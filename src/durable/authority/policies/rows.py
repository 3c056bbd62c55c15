"""The rows of revisions on their way, and of the orders that they follow."""

from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.fleet.policies import unknown_revision
from durable.model.ids import ActorId, PolicyRevision
from durable.model.policy.rollout import PolicyRollout, ShadowReport, TakenOrder
from durable.validation.value import Value

LISTED = 100

_READ = text("SELECT * FROM global.policy_rollouts WHERE revision = :revision")

_SHADOWS = text("""
    SELECT shadow.value AS report
      FROM global.policy_rollouts, jsonb_each(shadows) AS shadow
     WHERE revision = :revision ORDER BY shadow.key
""")

_LIST = text("""
    SELECT r.*, p.published_by, p.published_at
      FROM global.policies AS p JOIN global.policy_rollouts AS r USING (revision)
     ORDER BY revision DESC LIMIT :most
""")

_OPEN = text("""
    SELECT revision FROM global.policy_rollouts
     WHERE phase IN ('shadow', 'canary', 'widening', 'rolling_back') ORDER BY revision
""")

_LAST_ORDER = text("""
    SELECT * FROM global.policy_orders WHERE revision = :revision ORDER BY number DESC LIMIT 1
""")

_ORDERS = text("""
    SELECT * FROM global.policy_orders WHERE revision = :revision ORDER BY number DESC LIMIT :most
""")


class ListedPolicy(Value):
    """A revision in a list: where it is, and who published it."""

    rollout: PolicyRollout
    published_by: ActorId
    published_at: AwareDatetime


@global_transaction("durable_reader", "read policy {revision}")
async def read_rollout(connection: AsyncConnection, revision: PolicyRevision) -> PolicyRollout:
    return await find_rollout(connection, revision)


async def find_rollout(connection: AsyncConnection, revision: PolicyRevision) -> PolicyRollout:
    row = (await connection.execute(_READ, {"revision": revision})).mappings().one_or_none()
    if row is None:
        raise await unknown_revision(connection, revision)
    return rollout_of(row)


@global_transaction("durable_reader", "list the policies")
async def list_rollouts(connection: AsyncConnection, most: int = LISTED) -> list[ListedPolicy]:
    """The newest revisions, the newest first."""
    rows = (await connection.execute(_LIST, {"most": most})).mappings()
    return [
        ListedPolicy(
            rollout=rollout_of(row),
            published_by=row["published_by"],
            published_at=row["published_at"],
        )
        for row in rows
    ]


@global_transaction("durable_reader", "read which policies are on their way")
async def unfinished_policies(connection: AsyncConnection) -> list[PolicyRevision]:
    """Those that a workflow has to look after."""
    return list((await connection.execute(_OPEN)).scalars())


@global_transaction("durable_reader", "read the orders about policy {revision}")
async def read_orders(
    connection: AsyncConnection, revision: PolicyRevision, last: int = 20
) -> list[TakenOrder]:
    """The last orders, the newest first."""
    rows = await connection.execute(_ORDERS, {"revision": revision, "most": last})
    return [order_of(row) for row in rows.mappings()]


@global_transaction("durable_reader", "read what policy {revision} would change")
async def read_shadows(
    connection: AsyncConnection, revision: PolicyRevision
) -> tuple[ShadowReport, ...]:
    rows = await connection.execute(_SHADOWS, {"revision": revision})
    return tuple(ShadowReport.read(row.report) for row in rows)


async def last_order(connection: AsyncConnection, revision: PolicyRevision) -> TakenOrder | None:
    row = (await connection.execute(_LAST_ORDER, {"revision": revision})).mappings().one_or_none()
    return None if row is None else order_of(row)


def rollout_of(row: Any) -> PolicyRollout:
    return PolicyRollout.read({name: row[name] for name in PolicyRollout.model_fields})


def order_of(row: Any) -> TakenOrder:
    return TakenOrder.read({name: row[name] for name in TakenOrder.model_fields})

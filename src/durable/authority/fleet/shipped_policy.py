"""The policy that a new fleet starts with: published once, active where none was ever chosen."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.policies import publish_policy, set_policy_state
from durable.model.ids import ActorId, PolicyRevision, RegionId
from durable.model.states import PolicyState
from durable.scheduling.policies import first_policy

FIRST = 1

_REVISIONS = text("SELECT revision, spec FROM global.policies ORDER BY revision")

_CHOSEN = text("""
    SELECT max(revision) FILTER (WHERE state = 'active') AS active, count(*) AS chosen
      FROM regional.policy_states WHERE region = :region
""")


async def use_shipped_policy(
    databases: Databases, regions: Sequence[RegionId], actor: ActorId
) -> None:
    """Which revision is active is the policy's business: only what decides nothing is replaced."""
    published = await _revisions(databases)
    revision = _number(published)
    if revision not in published:
        await publish_policy(databases, revision, _shipped(), actor)
    for region in regions:
        active, is_chosen = await _chosen(databases, region)
        if not is_chosen or (active is not None and published.get(active) == {}):
            await set_policy_state(databases, region, revision, PolicyState.ACTIVE, actor)


def _shipped() -> dict[str, Any]:
    return first_policy().model_dump(mode="json")


def _number(published: dict[PolicyRevision, Any]) -> PolicyRevision:
    """Revision 1; or, where an earlier release published nothing under that number, a later one."""
    if published.get(FIRST) != {}:
        return FIRST
    shipped = _shipped()
    same = (revision for revision, spec in published.items() if spec == shipped)
    return next(same, max(published) + 1)


async def _revisions(databases: Databases) -> dict[PolicyRevision, Any]:
    async def work(connection: AsyncConnection) -> dict[PolicyRevision, Any]:
        return {row.revision: row.spec for row in await connection.execute(_REVISIONS)}

    engine = databases.at_global("durable_reader")
    return await transact(engine, work, doing="read the policies")


async def _chosen(databases: Databases, region: RegionId) -> tuple[PolicyRevision | None, bool]:
    """The revision that is active in a region, and whether any was ever chosen there."""

    async def work(connection: AsyncConnection) -> tuple[PolicyRevision | None, bool]:
        row = (await connection.execute(_CHOSEN, {"region": region})).one()
        return row.active, row.chosen > 0

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the policies of {region}")

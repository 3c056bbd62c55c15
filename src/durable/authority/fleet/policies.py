"""Policy revisions: immutable once published, with a state of their own in every region."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import ActorId, PolicyRevision, RegionId
from durable.model.records import SchedulerPolicy
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import POLICY_MOVES, PolicyState
from durable.scheduling.policies import first_policy

FIRST_REVISION = 1

_PUBLISH = text("""
    INSERT INTO global.policies (revision, spec, published_by, published_at)
    VALUES (:revision, CAST(:spec AS jsonb), :actor, clock_timestamp())
        ON CONFLICT (revision) DO NOTHING
""")

_IS_SAME = text("""
    SELECT spec = CAST(:spec AS jsonb) FROM global.policies WHERE revision = :revision
""")

_READ = text("""
    SELECT revision, spec, published_by, published_at FROM global.policies
     WHERE revision = :revision
""")

_IS_PUBLISHED = text("SELECT EXISTS (SELECT FROM global.policies WHERE revision = :revision)")

_STATE = text("""
    SELECT state FROM regional.policy_states WHERE region = :region AND revision = :revision
""")

_HAS_STATES = text("SELECT EXISTS (SELECT FROM regional.policy_states WHERE region = :region)")

_SET_STATE = text("""
    INSERT INTO regional.policy_states (region, revision, state, changed_by, changed_at)
    VALUES (:region, :revision, :state, :actor, clock_timestamp())
        ON CONFLICT (region, revision) DO UPDATE
       SET state = excluded.state, changed_by = excluded.changed_by,
           changed_at = excluded.changed_at
""")

_SUPERSEDE = text("""
    UPDATE regional.policy_states
       SET state = 'superseded', changed_by = :actor, changed_at = clock_timestamp()
     WHERE region = :region AND revision <> :revision AND state = 'active'
""")


@global_transaction("durable_policy", "publish policy {revision}")
async def publish_policy(
    connection: AsyncConnection, revision: PolicyRevision, spec: Mapping[str, Any], actor: ActorId
) -> None:
    """Adds a revision; again with the same spec is harmless, with another one a refusal."""
    values = {"revision": revision, "spec": json.dumps(spec), "actor": actor}
    if (await connection.execute(_PUBLISH, values)).rowcount:
        await audit.append(
            connection,
            audit.GLOBAL_CHAIN,
            actor=actor,
            action="publish policy",
            target=f"policy/{revision}",
            after=spec,
        )
    elif not (await connection.execute(_IS_SAME, values)).scalar_one():
        raise RefusedError(
            RefusalCode.KEY_CONFLICT,
            f"Policy revision {revision} was published with another spec and never changes; "
            "publish the next number.",
        )


@global_transaction("durable_reader", "read policy {revision}")
async def read_revision(connection: AsyncConnection, revision: PolicyRevision) -> SchedulerPolicy:
    """A published revision. It never changes, so nobody needs to read it twice."""
    found = await connection.execute(_READ, {"revision": revision})
    row = found.mappings().one_or_none()
    if row is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_POLICY,
            f"Policy revision {revision} was never published; publish it first.",
        )
    return SchedulerPolicy(**dict(row))


async def set_policy_state(
    databases: Databases,
    region: RegionId,
    revision: PolicyRevision,
    state: PolicyState,
    actor: ActorId,
) -> None:
    """Moves a published revision in one region along the table of legal moves."""
    # Revisions are never unpublished, so what was true a transaction ago still holds.
    await read_revision(databases, revision)
    await _set_state(databases, region, revision, state, actor)


@regional_transaction("durable_policy", "move policy {revision} in {region}")
async def _set_state(
    connection: AsyncConnection,
    region: RegionId,
    revision: PolicyRevision,
    state: PolicyState,
    actor: ActorId,
) -> None:
    key = {"region": region, "revision": revision}
    await lock_region(connection, region)
    found = (await connection.execute(_STATE, key)).scalar_one_or_none()
    before = PolicyState(found) if found is not None else POLICY_MOVES.start
    if found == state:
        return
    if before is not state and not POLICY_MOVES.allows(before, state):
        raise RefusedError(
            RefusalCode.ILLEGAL_MOVE,
            f"Policy revision {revision} is {before} in {region} and cannot become {state}; "
            "publish another revision.",
        )
    await advance_region(connection, region)
    if state is PolicyState.ACTIVE:
        # In the same transaction, so that there is always exactly one active revision.
        await connection.execute(_SUPERSEDE, {**key, "actor": actor})
    await connection.execute(_SET_STATE, {**key, "state": state.value, "actor": actor})
    await audit.append(
        connection,
        region,
        actor=actor,
        action="set policy state",
        target=f"policy/{revision}",
        before={"state": found},
        after={"state": state},
    )


# ── the policy that is shipped ──────────────────────────────────────────────────────────────────


async def use_shipped_policy(
    databases: Databases, regions: Sequence[RegionId], actor: ActorId
) -> None:
    """Publishes revision 1 and activates it wherever nobody has chosen a revision yet."""
    if not await _is_published(databases, FIRST_REVISION):
        spec = first_policy().model_dump(mode="json")
        await publish_policy(databases, FIRST_REVISION, spec, actor)
    for region in regions:
        if not await _has_policy_states(databases, region):
            await set_policy_state(databases, region, FIRST_REVISION, PolicyState.ACTIVE, actor)


@global_transaction("durable_reader", "read policy {revision}")
async def _is_published(connection: AsyncConnection, revision: PolicyRevision) -> bool:
    return (await connection.execute(_IS_PUBLISHED, {"revision": revision})).scalar_one()


@regional_transaction("durable_reader", "read the policies of {region}")
async def _has_policy_states(connection: AsyncConnection, region: RegionId) -> bool:
    return (await connection.execute(_HAS_STATES, {"region": region})).scalar_one()

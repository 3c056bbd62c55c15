"""Policy revisions: immutable once published, with a state of their own in every region."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import ActorId, PolicyRevision, RegionId
from durable.model.records import SchedulerPolicy
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import POLICY_MOVES, PolicyState

ROLE = "durable_policy"

_PUBLISH = text("""
    INSERT INTO global.policies (revision, spec, published_by, published_at)
    VALUES (:revision, CAST(:spec AS jsonb), :actor, clock_timestamp())
        ON CONFLICT (revision) DO NOTHING
""")

_SAME = text("""
    SELECT spec = CAST(:spec AS jsonb) FROM global.policies WHERE revision = :revision
""")

_READ = text("""
    SELECT revision, spec, published_by, published_at FROM global.policies
     WHERE revision = :revision
""")

_STATE = text("""
    SELECT state FROM regional.policy_states WHERE region = :region AND revision = :revision
""")

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


async def publish_policy(
    databases: Databases, revision: PolicyRevision, spec: Mapping[str, Any], actor: ActorId
) -> None:
    """Adds a revision; again with the same spec is harmless, with another one a refusal."""
    values = {"revision": revision, "spec": json.dumps(spec), "actor": actor}

    async def work(connection: AsyncConnection) -> None:
        if (await connection.execute(_PUBLISH, values)).rowcount:
            await audit.append(
                connection,
                audit.GLOBAL_CHAIN,
                actor=actor,
                action="publish policy",
                target=f"policy/{revision}",
                after=spec,
            )
        elif not (await connection.execute(_SAME, values)).scalar_one():
            raise RefusedError(
                RefusalCode.KEY_CONFLICT,
                f"Policy revision {revision} was published with another spec and never changes; "
                "publish the next number.",
            )

    await transact(databases.at_global(ROLE), work, doing=f"publish policy {revision}")


async def read_revision(databases: Databases, revision: PolicyRevision) -> SchedulerPolicy:
    """A published revision; it never changes, so whoever has read it once need not again."""

    async def work(connection: AsyncConnection) -> SchedulerPolicy:
        found = await connection.execute(_READ, {"revision": revision})
        row = found.mappings().one_or_none()
        if row is None:
            raise RefusedError(
                RefusalCode.UNKNOWN_POLICY,
                f"Policy revision {revision} was never published; publish it first.",
            )
        return SchedulerPolicy(**dict(row))

    engine = databases.at_global("durable_reader")
    return await transact(engine, work, doing=f"read policy {revision}")


async def set_policy_state(
    databases: Databases,
    region: RegionId,
    revision: PolicyRevision,
    state: PolicyState,
    actor: ActorId,
) -> None:
    """Moves a published revision in one region along the table of legal moves."""
    of = {"region": region, "revision": revision}
    # Revisions are never unpublished, so what was seen a transaction ago still holds.
    await read_revision(databases, revision)

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        found = (await connection.execute(_STATE, of)).scalar_one_or_none()
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
            # One revision is active at any moment, and there is none without one.
            await connection.execute(_SUPERSEDE, {**of, "actor": actor})
        await connection.execute(_SET_STATE, {**of, "state": state.value, "actor": actor})
        await audit.append(
            connection,
            region,
            actor=actor,
            action="set policy state",
            target=f"policy/{revision}",
            before={"state": found},
            after={"state": state},
        )

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"move policy {revision} in {region}")

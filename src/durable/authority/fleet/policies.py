"""Policy revisions: immutable once published, with a state of their own in every region."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import ActorId, PolicyRevision, RegionId
from durable.model.overrides.effects import Gate
from durable.model.placement.records import SchedulerPolicy
from durable.model.policy.policy import DEFAULT_GATES
from durable.model.policy.rollout import PolicyPhase
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import POLICY_MOVES, PolicyState
from durable.scheduling.policies import first_policy, read_policy
from durable.signals.names import policy_id

_GATES: TypeAdapter[tuple[Gate, ...]] = TypeAdapter(tuple[Gate, ...])

FIRST_REVISION = 1
REVISIONS_SHOWN = 5

_PUBLISH = text("""
    INSERT INTO global.policies (revision, spec, published_by, published_at)
    VALUES (:revision, CAST(:spec AS jsonb), :actor, clock_timestamp())
        ON CONFLICT (revision) DO NOTHING
""")

_BEGIN = text("""
    INSERT INTO global.policy_rollouts (revision, phase, actor, reason, changed_at, in_force_at)
    VALUES (:revision, :phase, :actor, :reason, clock_timestamp(),
            CASE WHEN :phase = 'everywhere' THEN clock_timestamp() END)
""")

_IS_SAME = text("""
    SELECT spec = CAST(:spec AS jsonb) FROM global.policies WHERE revision = :revision
""")

_READ = text("""
    SELECT revision, spec, published_by, published_at FROM global.policies
     WHERE revision = :revision
""")

_NEWEST = text("SELECT revision FROM global.policies ORDER BY revision DESC LIMIT :most")

_IS_PUBLISHED = text("SELECT EXISTS (SELECT FROM global.policies WHERE revision = :revision)")

# While the one everywhere is rolled back, what it goes back to runs in regions that did already.
_EVERYWHERE = text("""
    SELECT CASE phase WHEN 'rolling_back' THEN to_revision ELSE revision END
      FROM global.policy_rollouts
     WHERE in_force_at IS NOT NULL AND phase IN ('everywhere', 'rolling_back')
     ORDER BY phase = 'everywhere' DESC, in_force_at DESC LIMIT 1
""")

_STATE = text("""
    SELECT state FROM regional.policy_states WHERE region = :region AND revision = :revision
""")

_HAS_STATES = text("SELECT EXISTS (SELECT FROM regional.policy_states WHERE region = :region)")

_SET_STATE = text("""
    INSERT INTO regional.policy_states
           (region, revision, state, changed_by, changed_at, number, overridable_gates)
    VALUES (:region, :revision, :state, :actor, clock_timestamp(), :number, CAST(:gates AS jsonb))
        ON CONFLICT (region, revision) DO UPDATE
       SET state = excluded.state, changed_by = excluded.changed_by,
           changed_at = excluded.changed_at, number = excluded.number,
           overridable_gates = excluded.overridable_gates
""")

_SUPERSEDE = text("""
    UPDATE regional.policy_states
       SET state = 'superseded', changed_by = :actor, changed_at = clock_timestamp()
     WHERE region = :region AND revision <> :revision AND state = 'active'
""")


@global_transaction("durable_policy", "publish policy {revision}")
async def publish_policy(
    connection: AsyncConnection,
    revision: PolicyRevision,
    spec: Mapping[str, Any],
    actor: ActorId,
    *,
    phase: PolicyPhase = PolicyPhase.SHADOW,
) -> None:
    """Adds a revision; again with the same spec is harmless, with another one a refusal."""
    if await add_revision(connection, revision, spec, actor, phase=phase):
        return
    values = {"revision": revision, "spec": json.dumps(spec)}
    if not (await connection.execute(_IS_SAME, values)).scalar_one():
        raise RefusedError(
            RefusalCode.KEY_CONFLICT,
            f"Policy revision {revision} was published with another spec and never changes; "
            "publish the next number.",
        )


async def add_revision(
    connection: AsyncConnection,
    revision: PolicyRevision,
    spec: Mapping[str, Any],
    actor: ActorId,
    *,
    phase: PolicyPhase,
    reason: str = "",
) -> bool:
    """Whether it was added; a number that is taken changes nothing."""
    values = {"revision": revision, "spec": json.dumps(spec), "actor": actor}
    if not (await connection.execute(_PUBLISH, values)).rowcount:
        return False
    begun = {"revision": revision, "phase": phase.value, "actor": actor, "reason": reason}
    await connection.execute(_BEGIN, begun)
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action="publish policy",
        target=policy_id(revision),
        after=spec,
    )
    return True


@global_transaction("durable_reader", "read policy {revision}")
async def read_revision(connection: AsyncConnection, revision: PolicyRevision) -> SchedulerPolicy:
    """A published revision. It never changes, so it is never read twice."""
    found = await connection.execute(_READ, {"revision": revision})
    row = found.mappings().one_or_none()
    if row is None:
        raise await unknown_revision(connection, revision)
    return SchedulerPolicy(**dict(row))


async def unknown_revision(connection: AsyncConnection, revision: PolicyRevision) -> RefusedError:
    newest = list((await connection.execute(_NEWEST, {"most": REVISIONS_SHOWN + 1})).scalars())
    shown = ", ".join(map(str, newest[:REVISIONS_SHOWN])) or "none"
    more = " and older ones" if len(newest) > REVISIONS_SHOWN else ""
    return RefusedError(
        RefusalCode.UNKNOWN_POLICY,
        f"There is no policy revision {revision}; published: {shown}{more}. See `durable policy "
        "list`.",
    )


async def set_policy_state(
    databases: Databases,
    region: RegionId,
    revision: PolicyRevision,
    state: PolicyState,
    actor: ActorId,
) -> None:
    """Moves a published revision in one region along the table of legal moves."""
    gates = await read_gates(databases, revision)
    await _set_state(databases, region, revision, state, actor, gates)


async def read_gates(databases: Databases, revision: PolicyRevision) -> tuple[Gate, ...]:
    """What an override may let work pass under a revision.

    Revisions never change and are never unpublished, so what was true a transaction ago still
    holds.
    """
    listed = (await read_revision(databases, revision)).spec.get("overridable_gates")
    return DEFAULT_GATES if listed is None else _GATES.validate_python(listed)


@regional_transaction("durable_policy", "move policy {revision} in {region}")
async def _set_state(
    connection: AsyncConnection,
    region: RegionId,
    revision: PolicyRevision,
    state: PolicyState,
    actor: ActorId,
    gates: Sequence[Gate],
) -> None:
    await lock_region(connection, region)
    await move_policy(connection, region, revision, state, actor, gates=gates)


async def move_policy(
    connection: AsyncConnection,
    region: RegionId,
    revision: PolicyRevision,
    state: PolicyState,
    actor: ActorId,
    *,
    number: int = 0,
    gates: Sequence[Gate] = (),
) -> None:
    """Moves a revision in a region that is locked.

    The number is that of the order behind it; the gates are those that the region's commits let
    an override pass while the revision is in force.
    """
    key = {"region": region, "revision": revision}
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
    values = {"state": state.value, "actor": actor, "number": number, "gates": json.dumps(gates)}
    await connection.execute(_SET_STATE, {**key, **values})
    await audit.append(
        connection,
        region,
        actor=actor,
        action="set policy state",
        target=policy_id(revision),
        before={"state": found},
        after={"state": state, "order": number},
    )


# ── the policy that is shipped ──────────────────────────────────────────────────────────────────


async def use_shipped_policy(
    databases: Databases, regions: Sequence[RegionId], actor: ActorId
) -> None:
    """Publishes revision 1; a region where none is chosen gets the one that runs elsewhere."""
    if not await _is_published(databases, FIRST_REVISION):
        spec = first_policy().model_dump(mode="json")
        phase = PolicyPhase.EVERYWHERE
        await publish_policy(databases, FIRST_REVISION, spec, actor, phase=phase)
    for region in regions:
        if not await _has_policy_states(databases, region):
            revision = await read_everywhere(databases) or FIRST_REVISION
            await set_policy_state(databases, region, revision, PolicyState.ACTIVE, actor)


@global_transaction("durable_reader", "read which policy runs everywhere")
async def read_everywhere(connection: AsyncConnection) -> PolicyRevision | None:
    """The revision that came into force everywhere last, or what it is rolled back to."""
    return (await connection.execute(_EVERYWHERE)).scalar_one_or_none()


async def read_recovery_policy(databases: Databases) -> RecoveryPolicy:
    """By the revision that runs everywhere: a lost region cannot be asked for its own."""
    revision = await read_everywhere(databases) or FIRST_REVISION
    return read_policy((await read_revision(databases, revision)).spec).recovery


@global_transaction("durable_reader", "read policy {revision}")
async def _is_published(connection: AsyncConnection, revision: PolicyRevision) -> bool:
    return (await connection.execute(_IS_PUBLISHED, {"revision": revision})).scalar_one()


@regional_transaction("durable_reader", "read the policies of {region}")
async def _has_policy_states(connection: AsyncConnection, region: RegionId) -> bool:
    return (await connection.execute(_HAS_STATES, {"region": region})).scalar_one()

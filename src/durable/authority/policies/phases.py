"""Steps of a revision on the global side: the region that is watched, the phase, the shadows.

Each is taken only under the order that it was decided under; a worker that was cut off and comes
back late changes nothing.
"""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.locks import POLICIES, hold_lock
from durable.authority.db.transaction import global_transaction
from durable.authority.overrides.freeze import refuse_while_frozen
from durable.authority.policies.orders import ROLE, write_rollout
from durable.authority.policies.rows import find_rollout
from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.rollout import Bake, PolicyPhase, PolicyRollout, ShadowReport
from durable.signals.names import POLICY_CONTROLLER, policy_id

_SUPERSEDE = text("""
    UPDATE global.policy_rollouts SET phase = 'superseded', changed_at = clock_timestamp()
     WHERE revision <> :revision
       AND (phase = 'everywhere' OR (phase = 'shadow' AND revision < :revision))
""")

_RESTORE = text("""
    UPDATE global.policy_rollouts
       SET phase = 'everywhere', changed_at = clock_timestamp(), in_force_at = clock_timestamp()
     WHERE revision = ANY(:revisions) AND phase = 'superseded'
""")

_COME_INTO_FORCE = text("""
    UPDATE global.policy_rollouts SET in_force_at = clock_timestamp() WHERE revision = :revision
""")

_SHADOW = text("""
    UPDATE global.policy_rollouts SET shadows = shadows || CAST(:report AS jsonb)
     WHERE revision = :revision
""")


@global_transaction(ROLE, "watch policy {rollout.revision} in {region}")
async def watch_region(
    connection: AsyncConnection,
    rollout: PolicyRollout,
    region: RegionId,
    pending_percent: float,
) -> PolicyRollout:
    """Notes what waits in a region before the revision comes into force there."""
    now = await _current(connection, rollout)
    if now.number != rollout.number or (now.bake is not None and now.bake.region == region):
        return now
    # The policy may have been frozen since it was promoted.
    await refuse_while_frozen(connection, region)
    since = await read_clock(connection)
    bake = Bake(region=region, since=since, pending_percent_before=pending_percent)
    await _audit(connection, rollout, "watch policy", bake.model_dump(mode="json"))
    return await write_rollout(connection, now.model_copy(update={"bake": bake}))


@global_transaction(ROLE, "record that policy {rollout.revision} is {phase}")
async def reach_phase(
    connection: AsyncConnection,
    rollout: PolicyRollout,
    phase: PolicyPhase,
    restored: Sequence[PolicyRevision] = (),
) -> PolicyRollout:
    """Records the phase; those that it ends for other revisions in the same transaction."""
    now = await _current(connection, rollout)
    if now.number != rollout.number or now.phase is phase:
        return now
    if phase is PolicyPhase.WIDENING:
        await refuse_while_frozen(connection, now.canary)
    if phase is PolicyPhase.EVERYWHERE:
        await connection.execute(_SUPERSEDE, {"revision": rollout.revision})
        await connection.execute(_COME_INTO_FORCE, {"revision": rollout.revision})
    if restored:
        await connection.execute(_RESTORE, {"revisions": list(restored)})
    before, after = {"phase": now.phase.value}, {"phase": phase.value}
    await _audit(connection, rollout, "reach policy phase", after, before)
    return await write_rollout(connection, now.model_copy(update={"phase": phase}))


@global_transaction(ROLE, "record what policy {revision} would change")
async def record_shadow(
    connection: AsyncConnection, revision: PolicyRevision, report: ShadowReport
) -> None:
    """Keeps the newest comparison of each region."""
    await hold_lock(connection, POLICIES)
    rollout = await find_rollout(connection, revision)
    written = json.dumps({str(report.region): report.model_dump(mode="json")})
    await connection.execute(_SHADOW, {"revision": revision, "report": written})
    counted = {
        "region": report.region,
        "decisions": report.decisions,
        "unrepeatable": report.unrepeatable,
        "workloads changed": len(report.changed),
    }
    await _audit(connection, rollout, "shadow policy", counted)


async def _current(connection: AsyncConnection, rollout: PolicyRollout) -> PolicyRollout:
    await hold_lock(connection, POLICIES)
    return await find_rollout(connection, rollout.revision)


async def _audit(
    connection: AsyncConnection,
    rollout: PolicyRollout,
    action: str,
    after: Mapping[str, object],
    before: Mapping[str, object] | None = None,
) -> None:
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=POLICY_CONTROLLER,
        action=action,
        target=policy_id(rollout.revision),
        before=before,
        after={**after, "order": rollout.number},
    )

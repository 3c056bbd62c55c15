"""A revision in one region: brought into force there, or rolled back, under the region's lock.

No bind can come between: what was reserved under a revision that is rolled back is refused its
binding and decided again, and what was bound goes on. The order's number is compared under the
same lock, so that an older order changes nothing after a later one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.policies import move_policy, read_gates
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.overrides.freeze import refuse_while_frozen_here
from durable.authority.policies.orders import ROLE
from durable.authority.policies.region_reads import find_region_policy, find_report
from durable.authority.reads.claims import ClaimFilter
from durable.authority.slots.marks import Cause, CauseKind, mark_claims
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.overrides.effects import Gate
from durable.model.policy.rollout import (
    MAX_WORKLOADS_REPORTED,
    PolicyRollout,
    RolledBack,
    RolledBackShare,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import PolicyState
from durable.signals.names import POLICY_CONTROLLER, policy_id

_NEWEST_ORDER = text("""
    SELECT coalesce(max(number), 0) FROM regional.policy_states WHERE region = :region
""")

_SETTLE = text("""
    UPDATE regional.policy_states
       SET number = :number, report = CAST(:report AS jsonb), report_count = :count
     WHERE region = :region AND revision = :revision
""")

_CLAIMS = text("""
    SELECT tenant, workload, generation,
           count(*) FILTER (WHERE reservation = 'held') AS decided_again,
           count(*) FILTER (WHERE reservation <> 'held' AND NOT is_marked) AS goes_on,
           count(*) FILTER (WHERE reservation <> 'held' AND is_marked) AS replaced
      FROM regional.live_claims(statement_timestamp())
     WHERE region = :region AND policy_revision = :revision
     GROUP BY tenant, workload, generation
     ORDER BY tenant, workload, generation
""")

Share = tuple[TenantId, WorkloadName, Generation]


@dataclass(frozen=True)
class LeftRegion:
    """What became of each workload, and the shares that have something to do now."""

    report: RolledBack
    shares: tuple[Share, ...] = ()


async def enter_region(
    databases: Databases, region: RegionId, rollout: PolicyRollout, state: PolicyState
) -> None:
    """Decisions in the region are made under the revision from this version on."""
    gates = await read_gates(databases, rollout.revision)
    await _enter(databases, region, rollout, state, gates)


async def leave_region(
    databases: Databases, region: RegionId, rollout: PolicyRollout
) -> LeftRegion:
    """Rolls the revision back; what it has reserved, bound and started is kept apart."""
    target = rollout.to_revision
    gates = () if target is None else await read_gates(databases, target)
    return await _leave(databases, region, rollout, gates)


@regional_transaction(ROLE, "bring policy {rollout.revision} into force in {region}")
async def _enter(
    connection: AsyncConnection,
    region: RegionId,
    rollout: PolicyRollout,
    state: PolicyState,
    gates: Sequence[Gate],
) -> None:
    await lock_region(connection, region)
    await _refuse_old(connection, region, rollout)
    await refuse_while_frozen_here(connection, region)
    revision, number = rollout.revision, rollout.number
    await move_policy(
        connection, region, revision, state, POLICY_CONTROLLER, number=number, gates=gates
    )


@regional_transaction(ROLE, "roll back policy {rollout.revision} in {region}")
async def _leave(
    connection: AsyncConnection, region: RegionId, rollout: PolicyRollout, gates: Sequence[Gate]
) -> LeftRegion:
    await lock_region(connection, region)
    revision, number, actor = rollout.revision, rollout.number, rollout.actor
    before = await find_region_policy(connection, region, revision)
    if before.state is PolicyState.ROLLED_BACK and before.number >= number:
        return LeftRegion(await find_report(connection, region, revision))
    # Only a later order about the same revision forbids it: it may have waited for this region
    # while another one was rolled back here.
    if before.number > number:
        raise _overtaken(region, before.number, rollout)
    if before.state in (PolicyState.CANARY, PolicyState.ACTIVE):
        await _restore(connection, region, rollout, before.state, gates)
    rolled_back = PolicyState.ROLLED_BACK
    await move_policy(connection, region, revision, rolled_back, actor, number=number)
    if rollout.reroll:
        await _mark(connection, region, rollout)
    rows = (await connection.execute(_CLAIMS, {"region": region, "revision": revision})).all()
    became = [
        RolledBackShare(
            region=region,
            tenant=TenantId(row.tenant),
            workload=WorkloadName(row.workload),
            decided_again=row.decided_again,
            goes_on=row.goes_on,
            replaced=row.replaced,
        )
        for row in rows
    ]
    again = before.state is PolicyState.ROLLED_BACK
    earlier = await find_report(connection, region, revision) if again else RolledBack()
    report = await _settle(connection, region, rollout, RolledBack.again(earlier, became))
    shares = ((TenantId(r.tenant), WorkloadName(r.workload), r.generation) for r in rows)
    return LeftRegion(report, tuple(shares))


async def _restore(
    connection: AsyncConnection,
    region: RegionId,
    rollout: PolicyRollout,
    state: PolicyState,
    gates: Sequence[Gate],
) -> None:
    """Activates what the region goes back to; a canary left the active revision in its place."""
    target = rollout.to_revision
    if target is None and state is PolicyState.CANARY:
        return
    assert target is not None, "an order to roll back what is active says where to go back to"
    active = PolicyState.ACTIVE
    actor, number = rollout.actor, rollout.number
    await move_policy(connection, region, target, active, actor, number=number, gates=gates)


async def _mark(connection: AsyncConnection, region: RegionId, rollout: PolicyRollout) -> None:
    """What was reserved and not bound is decided again; a job's replicas run to their end."""
    await mark_claims(
        connection,
        region,
        ClaimFilter(policy_revision=rollout.revision, is_bound=True, is_job=False),
        Cause(CauseKind.POLICY, str(rollout.revision)),
        actor=rollout.actor,
        reason=rollout.reason,
    )
    await advance_region(connection, region)


async def _settle(
    connection: AsyncConnection,
    region: RegionId,
    rollout: PolicyRollout,
    report: RolledBack,
) -> RolledBack:
    kept = report.model_copy(update={"shares": report.shares[:MAX_WORKLOADS_REPORTED]})
    written = [one.model_dump(mode="json", exclude={"region"}) for one in kept.shares]
    await connection.execute(
        _SETTLE,
        {
            "region": region,
            "revision": rollout.revision,
            "number": rollout.number,
            "report": json.dumps(written),
            "count": report.count,
        },
    )
    await audit.append(
        connection,
        region,
        actor=rollout.actor,
        action="roll back policy",
        target=policy_id(rollout.revision),
        after={
            "order": rollout.number,
            "reason": rollout.reason,
            "reroll": rollout.reroll,
            "decided again": sum(one.decided_again for one in report.shares),
            "go on": sum(one.goes_on for one in report.shares),
            "replaced": sum(one.replaced for one in report.shares),
        },
    )
    return kept


async def _refuse_old(
    connection: AsyncConnection, region: RegionId, rollout: PolicyRollout
) -> None:
    newest = (await connection.execute(_NEWEST_ORDER, {"region": region})).scalar_one()
    if newest > rollout.number:
        raise _overtaken(region, newest, rollout)


def _overtaken(region: RegionId, newest: int, rollout: PolicyRollout) -> RefusedError:
    return RefusedError(
        RefusalCode.OVERTAKEN,
        f"Order {newest} is in force in {region}, and this step belongs to order "
        f"{rollout.number}; check again what to do.",
    )

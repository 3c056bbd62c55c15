"""The fence around a region, and its end: first the global side's fact, then the region's copy.

Where the region's database answers, it obeys at once. Where it does not, its lease is not renewed
any more, and after it has lapsed the region takes nothing by itself: its slots may then be handed
over without it. It obeys when it is back, with whatever rows it had. A region that obeys and
answers keeps its lease: what could not be moved out of it is not touched.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import lock_region, read_region
from durable.authority.quota.lapses import settle_lapsed
from durable.authority.recovery.moved_slots import void_moved
from durable.authority.recovery.region_facts import lock_fact, read_fact, wait_for_holders
from durable.model.fleet.capacity import RegionStatus
from durable.model.fleet.region_life import Fence, RegionFact
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState

OBEYS = ActorId("controller:region")

# No lease lasts longer than its length from now, whatever the clock was when it began.
_SET_FACT = text("""
    UPDATE global.regions
       SET epoch = :epoch, state = :state, since = clock_timestamp(), reason = :reason,
           evidence = CAST(:evidence AS jsonb), is_leased_fenced = false,
           lease_expires_at = least(
               lease_expires_at, clock_timestamp() + make_interval(secs => lease_seconds))
     WHERE region = :region
    RETURNING lease_expires_at
""")
_LEASE_FENCED = text("""
    UPDATE global.regions SET is_leased_fenced = :goes_on
     WHERE region = :region AND epoch = :epoch AND state = 'fenced'
       AND is_leased_fenced <> :goes_on
""")
_SET_COPY = text("""
    UPDATE regional.regions SET epoch = :epoch, state = :state, version = version + 1
     WHERE region = :region
""")
# Read when a region is opened: what lapses after the region gave its half would be granted twice.
_HAS_LAPSED = text("""
    SELECT EXISTS (SELECT FROM global.grant_transfers
                    WHERE from_region = :region AND state = 'lapsed')
""")


async def fence(
    databases: Databases,
    region: RegionId,
    *,
    expected_epoch: int,
    actor: ActorId,
    reason: str,
    evidence: Mapping[str, Any] | None = None,
) -> Fence:
    """Raises the epoch: from here on, no writer or node of the old epoch changes anything.

    Fencing the same epoch again answers the same, so a retry is harmless; it may find that the
    region's database answers by now.
    """
    fact = await _fence(databases, region, expected_epoch, actor, reason, evidence or {})
    try:
        await obey(databases, fact, actor)
    except AuthorityUnreachableError:
        await lease_fenced(databases, region, fact.epoch, goes_on=False)
        return Fence(
            region=region, epoch=fact.epoch, is_in_region=False, movable_at=fact.movable_at
        )
    await lease_fenced(databases, region, fact.epoch, goes_on=True)
    return Fence(region=region, epoch=fact.epoch, is_in_region=True, movable_at=fact.read_at)


async def reopen(
    databases: Databases,
    region: RegionId,
    *,
    expected_epoch: int,
    actor: ActorId,
    reason: str,
) -> RegionStatus:
    """Takes new work again; nodes take part as their agents register at this epoch.

    Refused while something runs there under a slot that others own by now, or uses grant that has
    lapsed.
    """
    fact = await read_fact(databases, region)
    if fact.is_fenced:
        await obey(databases, fact, actor)
        await _refuse_claims_left(databases, region)
        await settle_lapsed(databases, region)
    # First: from here on, the region's slots are not handed over without asking it.
    fact = await _open(databases, region, expected_epoch, actor, reason)
    await obey(databases, fact, actor)
    return await read_region(databases, region)


@global_transaction("durable_recovery", "say whether the lease of {region} goes on")
async def lease_fenced(
    connection: AsyncConnection, region: RegionId, epoch: int, *, goes_on: bool
) -> None:
    """Lets a region that was fenced at this epoch keep its lease, or has it lapse."""
    said = {"region": region, "epoch": epoch, "goes_on": goes_on}
    await connection.execute(_LEASE_FENCED, said)


async def obey(databases: Databases, fact: RegionFact, actor: ActorId = OBEYS) -> None:
    """Brings the region's copy to the fact, if it is behind; again is harmless."""
    has = await read_region(databases, fact.region)
    if not _is_behind(has, fact):
        return
    # Also where it never heard of the fence: its rows may be from before it.
    if not fact.is_fenced and (has.state is RegionState.FENCED or has.epoch < fact.epoch):
        await _refuse_claims_left(databases, fact.region)
    await _obey(databases, fact.region, fact, actor)


def _is_behind(has: RegionStatus, fact: RegionFact) -> bool:
    if has.epoch != fact.epoch:
        return has.epoch < fact.epoch
    return (has.state is RegionState.FENCED) != fact.is_fenced


async def _refuse_claims_left(databases: Databases, region: RegionId) -> None:
    left = await void_moved(databases, region)
    if left:
        raise RefusedError(
            RefusalCode.CLAIMS_LEFT,
            f"{left} claims of {region} are of slots that other regions own by now; they are being "
            "stopped and released. Open the region when none is left.",
        )


@global_transaction("durable_recovery", "fence {region}")
async def _fence(
    connection: AsyncConnection,
    region: RegionId,
    expected_epoch: int,
    actor: ActorId,
    reason: str,
    evidence: Mapping[str, Any],
) -> RegionFact:
    was = await lock_fact(connection, region)
    epoch = expected_epoch + 1
    if was.epoch == epoch and was.is_fenced:
        return was
    _refuse_other_epoch(was, expected_epoch)
    if was.is_fenced:
        raise RefusedError(
            RefusalCode.REGION_FENCED, f"{region} is fenced already at epoch {was.epoch}."
        )
    return await _set_fact(
        connection, was, RegionState.FENCED, epoch, actor, reason, evidence, "fence region"
    )


@global_transaction("durable_recovery", "open {region}")
async def _open(
    connection: AsyncConnection,
    region: RegionId,
    expected_epoch: int,
    actor: ActorId,
    reason: str,
) -> RegionFact:
    await wait_for_holders(connection, region)
    was = await lock_fact(connection, region)
    _refuse_other_epoch(was, expected_epoch)
    if not was.is_fenced:
        return was
    if (await connection.execute(_HAS_LAPSED, {"region": region})).scalar_one():
        raise RefusedError(
            RefusalCode.GRANT_IN_USE,
            f"Grant of {region} has lapsed since it was last settled; open the region again, which "
            "settles it first.",
        )
    return await _set_fact(
        connection, was, RegionState.OPEN, was.epoch, actor, reason, {}, "open region"
    )


def _refuse_other_epoch(was: RegionFact, expected_epoch: int) -> None:
    if was.epoch != expected_epoch:
        raise RefusedError(
            RefusalCode.FENCED_WRITER,
            f"{was.region} is at epoch {was.epoch}, not {expected_epoch}; read it again first.",
        )


async def _set_fact(
    connection: AsyncConnection,
    was: RegionFact,
    state: RegionState,
    epoch: int,
    actor: ActorId,
    reason: str,
    evidence: Mapping[str, Any],
    action: str,
) -> RegionFact:
    change = {"state": state, "epoch": epoch, "reason": reason}
    set_fact = await connection.execute(
        _SET_FACT, {"region": was.region, **change, "evidence": json.dumps(evidence)}
    )
    lease_expires_at = set_fact.scalar_one()
    fact = was.model_copy(
        update={**change, "evidence": dict(evidence), "lease_expires_at": lease_expires_at}
    )
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=action,
        target=f"region/{was.region}",
        before={"epoch": was.epoch, "state": was.state},
        after={"epoch": epoch, "state": state, "reason": reason, "evidence": dict(evidence)},
    )
    return fact


@regional_transaction("durable_recovery", "bring {region} to its epoch")
async def _obey(
    connection: AsyncConnection, region: RegionId, fact: RegionFact, actor: ActorId
) -> None:
    was = await lock_region(connection, region)
    if not _is_behind(was, fact):
        return
    state = RegionState.FENCED if fact.is_fenced else RegionState.OPEN
    # Step by step: a region that was away may have missed several fences.
    for epoch in range(min(was.epoch + 1, fact.epoch), fact.epoch + 1):
        await connection.execute(
            _SET_COPY, {"region": region, "epoch": epoch, "state": state.value}
        )
    await audit.append(
        connection,
        region,
        actor=actor,
        action=f"{'fence' if fact.is_fenced else 'open'} region",
        target=f"region/{region}",
        before={"epoch": was.epoch, "state": was.state},
        after={"epoch": fact.epoch, "state": state, "reason": fact.reason},
    )

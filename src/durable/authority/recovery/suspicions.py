"""What regions are taken for, in their rows: the next look goes on where the last one was.

A suspected region's `since` is the loss itself: from there on recovery is measured.
"""

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import ActorId, RegionId
from durable.model.recovery.detection import RegionCondition, Suspicion
from durable.model.states import RegionState

# The epoch is compared: a region that was fenced meanwhile is no longer merely suspected.
_SUSPECT = text("""
    UPDATE global.regions
       SET state = 'suspected', since = :since, reason = :reason,
           evidence = CAST(:evidence AS jsonb)
     WHERE region = :region AND epoch = :epoch AND state IN ('open', 'suspected')
 RETURNING (SELECT state FROM global.regions WHERE region = :region) AS before
""")
_SEEN = text("UPDATE global.regions SET seen = CAST(:seen AS jsonb) WHERE region = :region")
_CLEAR = text("""
    UPDATE global.regions
       SET state = 'open', since = clock_timestamp(), reason = :reason, evidence = '{}'
     WHERE region = :region AND state = 'suspected'
""")


def suspicion_of(fact: RegionFact) -> Suspicion | None:
    """The suspicion that a region is under."""
    if fact.state is not RegionState.SUSPECTED:
        return None
    return Suspicion.read(dict(fact.evidence))


@global_transaction("durable_recovery", "suspect {suspicion.region}")
async def record_suspicion(
    connection: AsyncConnection, suspicion: Suspicion, actor: ActorId
) -> bool:
    """Keeps the suspicion with its evidence; False if the region is past being suspected."""
    found = await connection.execute(
        _SUSPECT,
        {
            "region": suspicion.region,
            "epoch": suspicion.epoch,
            "since": suspicion.lost_at,
            "reason": suspicion.verdict.sentence,
            "evidence": suspicion.model_dump_json(),
        },
    )
    row = found.one_or_none()
    if row is None:
        return False
    if row.before == RegionState.OPEN:
        await audit.append(
            connection,
            audit.GLOBAL_CHAIN,
            actor=actor,
            action="suspect region",
            target=f"region/{suspicion.region}",
            after=suspicion.model_dump(mode="json"),
        )
    return True


@global_transaction("durable_recovery", "keep what {region} is taken for")
async def record_seen(connection: AsyncConnection, region: RegionId, seen: RegionCondition) -> None:
    """For people to read; only suspicions are decided by."""
    await connection.execute(_SEEN, {"region": region, "seen": seen.model_dump_json()})


@global_transaction("durable_recovery", "clear the suspicion of {region}")
async def clear_suspicion(
    connection: AsyncConnection, region: RegionId, actor: ActorId, reason: str
) -> None:
    """Opens a suspected region again; one that is not suspected stays as it is."""
    if not (await connection.execute(_CLEAR, {"region": region, "reason": reason})).rowcount:
        return
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action="clear suspicion",
        target=f"region/{region}",
        after={"reason": reason},
    )

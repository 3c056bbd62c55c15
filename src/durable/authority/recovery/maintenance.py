"""A mark on a region: its nodes will be silent for a while, and that is not its loss.

It has an end of its own, and does not hold up people: whoever may declare a loss still can.
"""

from datetime import timedelta

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import require_right
from durable.authority.operators.refusals import audits_refusals
from durable.authority.recovery.recoveries import ROLE
from durable.authority.recovery.region_facts import lock_fact
from durable.model.ids import ActorId, RegionId
from durable.model.operators.rights import Scope, Verb
from durable.model.recovery.detection import RegionMaintenance
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.quantities import show_duration
from durable.validation.text import PLAIN_TEXT

LONGEST = timedelta(hours=24)

_MARK = text("""
    UPDATE global.regions SET maintenance = CAST(:mark AS jsonb) WHERE region = :region
""")


@audits_refusals
@global_transaction(ROLE, "begin the maintenance of {region}")
async def begin_maintenance(
    connection: AsyncConnection, region: RegionId, *, lasts: timedelta, actor: ActorId, reason: str
) -> RegionMaintenance:
    """From now on for so long, instead of what was said before."""
    await require_right(connection, actor, Verb.CORDON, Scope(region=region))
    if not timedelta(0) < lasts <= LONGEST:
        raise RefusedError(
            RefusalCode.INVALID,
            f"A maintenance lasts longer than 0s and at most 24h, not {show_duration(lasts)}; mark "
            "the region again if it takes longer.",
        )
    fact = await lock_fact(connection, region)
    if fact.is_fenced:
        raise RefusedError(
            RefusalCode.REGION_FENCED,
            f"{region} is fenced, so its work is moved already; see `durable recovery show "
            f"{region}`.",
        )
    # What is extended began when it did: what fell silent since then is one maintenance.
    before, now = fact.current_maintenance, fact.read_at
    since = now if before is None else before.since
    mark = RegionMaintenance(
        since=since, until=now + lasts, reason=PLAIN_TEXT.validate_python(reason), actor=actor
    )
    await _write(connection, region, mark, "begin maintenance", actor, mark.reason)
    return mark


@audits_refusals
@global_transaction(ROLE, "end the maintenance of {region}")
async def end_maintenance(
    connection: AsyncConnection, region: RegionId, *, actor: ActorId, reason: str
) -> bool:
    """Watches the region again as before; False if it was not in maintenance."""
    await require_right(connection, actor, Verb.CORDON, Scope(region=region))
    fact = await lock_fact(connection, region)
    if fact.current_maintenance is None:
        return False
    ended = fact.current_maintenance.model_copy(update={"until": fact.read_at})
    await _write(connection, region, ended, "end maintenance", actor, reason)
    return True


async def _write(
    connection: AsyncConnection,
    region: RegionId,
    mark: RegionMaintenance,
    action: str,
    actor: ActorId,
    reason: str,
) -> None:
    await connection.execute(_MARK, {"region": region, "mark": mark.model_dump_json()})
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=action,
        target=f"region/{region}",
        after={"until": mark.until.isoformat(), "reason": reason},
    )

"""`durable restored`: an operator says which databases were restored from older copies.

What is restored changes nothing from the first step to the last, and each step may be taken again:
a command that was killed is run again. In order: halt, fence, slots, grants, revisions, numbers of
leases; with the last of these the database goes on. A region that was fenced for this is opened by
its lease's controller, once what others own there by now has been released.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import lock_region, read_region, regions_at
from durable.authority.operators.authorization import check_right
from durable.authority.operators.refusals import audits_refusals
from durable.authority.recovery.region_facts import lock_fact, read_facts
from durable.authority.restores.grants import follow_books, follow_region
from durable.authority.restores.slots import ROLE, follow_copies, renumber
from durable.authority.restores.workloads import adopt_lost
from durable.model.fleet.capacity import RegionStatus
from durable.model.fleet.region_life import RegionFact
from durable.model.fleet.restores import GLOBAL_SIDE, RestoredSide, epoch_at
from durable.model.ids import ActorId, RegionId
from durable.model.operators.rights import Scope, Verb
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState

# Above every epoch that agents and workflows may know of what was lost.
EPOCHS_SKIPPED = 1_000
# Of a region of which the restored rows do not know that it was ever leased.
LEASE_SECONDS = 120.0

_HALT = text("""
    UPDATE regional.restores
       SET epoch = greatest(epoch, :epoch),
           went_back_at = coalesce(went_back_at, clock_timestamp()), why = :why
""")
_FENCE_FACT = text("""
    UPDATE global.regions
       SET epoch = :epoch, state = 'fenced', since = clock_timestamp(), reason = :reason,
           evidence = CAST(:evidence AS jsonb), is_leased_fenced = true
     WHERE region = :region
""")
_FENCE_COPY = text("""
    UPDATE regional.regions
       SET epoch = greatest(epoch, :epoch), state = 'fenced',
           version = greatest(version + 1, :floor), tokens_issued = greatest(tokens_issued, :floor)
     WHERE region = :region
""")
_REVISIONS = text("""
    UPDATE global.workloads SET revision = greatest(revision + 1, :epoch) WHERE deleted_at IS NULL
""")
# It may live on a lease that the restored rows do not know: none is handed over before its end.
_NUMBER_FACT = text("""
    UPDATE global.regions
       SET lease_number = greatest(lease_number, :epoch),
           known_number = greatest(known_number, :epoch),
           lease_expires_at = greatest(
               lease_expires_at, clock_timestamp() + make_interval(
                   secs => coalesce(lease_seconds, :seconds)))
     WHERE region = :region
""")
_NUMBER_COPY = text("""
    UPDATE regional.regions
       SET lease_number = greatest(lease_number, :epoch) WHERE region = ANY(:regions)
""")
_GO_ON = text("UPDATE regional.restores SET went_back_at = NULL, why = NULL")


@dataclass(frozen=True)
class RestoreReport:
    """What was declared: under which epoch, for which regions, and which were not in reach."""

    side: str
    epoch: int
    regions: tuple[RegionId, ...]
    # Those that recoveries had fenced stay so: their recoveries open them.
    left_fenced: tuple[RegionId, ...] = ()
    # They are found to be older when they answer again, and have to be declared restored then.
    unreachable: tuple[RegionId, ...] = ()
    # Workloads that regions run and the restored rows do not know: they are being deleted.
    lost: tuple[str, ...] = ()


@dataclass
class _Plan:
    """Which databases change nothing meanwhile, and which regions live in each of them."""

    side: RestoredSide
    epoch: int
    halted: dict[str, Sequence[RegionId]]
    # Of these the rows are older than what agents and workflows know.
    older: frozenset[RegionId]
    # These know better than the global side, which went back.
    newer: frozenset[RegionId]
    unreachable: frozenset[RegionId] = field(default_factory=frozenset[RegionId])


@audits_refusals
async def declare_restored(
    databases: Databases, side: RestoredSide, *, actor: ActorId, reason: str
) -> RestoreReport:
    """Brings both sides to agree on what the restored databases say, and lets them go on."""
    scope = Scope(region=side.region) if side.region is not None else Scope()
    await check_right(databases, actor, Verb.RESTORE, scope)
    plan = await _plan(databases, side)
    why = f"`durable restored {side}` is under way or was interrupted; run it again."
    for url in plan.halted:
        await _halt(databases, url, plan.epoch, why)
    regions = sorted(plan.older | plan.newer)
    kept = [one for one in regions if await _fence(databases, plan, one, reason)]
    lost: list[str] = []
    for region in sorted(plan.newer):
        lost += await adopt_lost(databases, region, actor)
        await follow_copies(databases, region, plan.epoch)
        await follow_region(databases, region)
    for region in regions:
        await renumber(databases, region)
        if region in plan.older:
            await follow_books(databases, region, plan.epoch, actor)
    if not side.is_region:
        await _raise_revisions(databases, plan.epoch)
    done = RestoreReport(
        str(side),
        plan.epoch,
        tuple(regions),
        left_fenced=tuple(kept),
        unreachable=tuple(sorted(plan.unreachable)),
        lost=tuple(sorted(set(lost))),
    )
    for region in (*regions, *sorted(plan.unreachable)):
        await _number_fact(databases, region, plan.epoch)
    # The global side last: until then nothing is divided, and the command can be run again.
    for url, there in reversed(list(plan.halted.items())):
        await _go_on(databases, url, there, done, actor, reason)
    return done


async def _plan(databases: Databases, side: RestoredSide) -> _Plan:
    """Which databases take part; one that must and does not answer is refused by name."""
    epoch = epoch_at(await read_time(databases))
    home, *others = databases.urls
    if side.region is not None:
        return await _plan_region(databases, side, side.region, epoch)
    halted: dict[str, Sequence[RegionId]] = {home: await regions_at(databases, home)}
    for url in others:
        try:
            halted[url] = await regions_at(databases, url)
        except AuthorityUnreachableError:
            if side.is_all:
                raise
    answers = {region for there in halted.values() for region in there}
    older = frozenset(answers if side.is_all else halted[home])
    known = (await read_facts(databases)).keys()
    return _Plan(side, epoch, halted, older, frozenset(answers) - older, frozenset(known - answers))


async def _plan_region(
    databases: Databases, side: RestoredSide, region: RegionId, epoch: int
) -> _Plan:
    url = databases.url_of(region)
    await read_region(databases, region)  # refuses an unknown one
    if url == databases.urls[0]:
        raise RefusedError(
            RefusalCode.INVALID,
            f"{region} lives in the database of the global side, and went back with it; run "
            "`durable restored --global`, or `--all` if every database was restored.",
        )
    there = await regions_at(databases, url)
    return _Plan(side, epoch, {url: there}, frozenset(there), frozenset())


async def _halt(databases: Databases, url: str, epoch: int, why: str) -> None:
    async def halt(connection: AsyncConnection) -> None:
        await connection.execute(_HALT, {"epoch": epoch, "why": why})

    await transact(databases.at(url, ROLE), halt, doing="halt a database that was restored")


async def _fence(databases: Databases, plan: _Plan, region: RegionId, reason: str) -> bool:
    """Fences a region above every epoch; true if a recovery had done so and goes on."""
    has = await read_region(databases, region)
    fact, is_kept = await _fence_fact(databases, region, has, plan, reason)
    floor = 10 * plan.epoch if region in plan.older else 0
    await _fence_copy(databases, region, fact.epoch, floor)
    return is_kept


@global_transaction(ROLE, "fence {region}, which was restored")
async def _fence_fact(
    connection: AsyncConnection, region: RegionId, has: RegionStatus, plan: _Plan, reason: str
) -> tuple[RegionFact, bool]:
    fact = await lock_fact(connection, region)
    if fact.is_fenced and fact.epoch >= has.epoch:
        return fact, not fact.is_restored
    epoch = max(fact.epoch, has.epoch) + (EPOCHS_SKIPPED if plan.side.is_all else 1)
    evidence = {"restored": plan.epoch, "side": str(plan.side)}
    fenced = {"region": region, "epoch": epoch, "reason": reason, "evidence": json.dumps(evidence)}
    await connection.execute(_FENCE_FACT, fenced)
    return fact.model_copy(update={"epoch": epoch, "state": RegionState.FENCED}), False


@regional_transaction(ROLE, "fence {region}, which was restored")
async def _fence_copy(
    connection: AsyncConnection, region: RegionId, epoch: int, floor: int
) -> None:
    await lock_region(connection, region)
    await connection.execute(_FENCE_COPY, {"region": region, "epoch": epoch, "floor": floor})


@global_transaction(ROLE, "raise the revisions of workloads")
async def _raise_revisions(connection: AsyncConnection, epoch: int) -> None:
    """A division of what was lost is older than the next one, and changes nothing."""
    await connection.execute(_REVISIONS, {"epoch": epoch})


@global_transaction(ROLE, "renumber the lease of {region}")
async def _number_fact(connection: AsyncConnection, region: RegionId, epoch: int) -> None:
    await connection.execute(
        _NUMBER_FACT, {"region": region, "epoch": epoch, "seconds": LEASE_SECONDS}
    )


async def _go_on(
    databases: Databases,
    url: str,
    regions: Sequence[RegionId],
    done: RestoreReport,
    actor: ActorId,
    reason: str,
) -> None:
    is_home = url == databases.urls[0]
    chains = [audit.GLOBAL_CHAIN] if is_home else list(map(str, regions))

    async def go_on(connection: AsyncConnection) -> None:
        await connection.execute(
            _NUMBER_COPY, {"epoch": done.epoch, "regions": list(map(str, regions))}
        )
        await connection.execute(_GO_ON)
        after = {
            "side": done.side, "epoch": done.epoch, "reason": reason,
            "regions": list(map(str, done.regions)),
            "unreachable": list(map(str, done.unreachable)), "lost": list(done.lost),
        }  # fmt: skip
        for chain in chains:
            target = GLOBAL_SIDE if chain == audit.GLOBAL_CHAIN else f"region/{chain}"
            await audit.append(
                connection, chain, actor=actor, action="declare restored", target=target,
                after=after,
            )  # fmt: skip

    await transact(databases.at(url, ROLE), go_on, doing="let a restored database go on")

"""The shares of workloads in their regions: what each placement is to run, under a revision.

With them goes the floor: how many replicas voluntary stops must leave serving in the region. A
share is written by its workload and read by its placement, so that no message has to be believed
about it. An older revision never replaces a newer one, however late it comes.
"""

import json
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import text

from durable.authority.db.batching import Batcher, chunks
from durable.authority.db.clock import read_clock
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import lock_region
from durable.authority.slots.assignment import (
    FIRST_NUMBER,
    MAX_SLOTS_PER_CALL,
    ROLE,
    SlotCopies,
    copy_new_slots,
    find_held,
)
from durable.model.ids import Generation, IncidentId, RegionId, TenantId, WorkloadName
from durable.model.work.share import DesiredShare

MAX_SHARES_PER_CALL = 200

_FLOOR = "tenant text, workload text, revision bigint, must_serve integer"

# In one order, so that two batches with the same rows wait for each other and never deadlock.
_PUBLISH = text("""
    INSERT INTO regional.shares AS s
           (region, tenant, workload, generation, revision, slots, spec, release_reason, at_once,
            admitted_at, due_at, incident, moved)
    SELECT :region, tenant, workload, generation, revision, slots, spec, release_reason, at_once,
           admitted_at, due_at, incident, moved
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, revision bigint, slots integer[],
           spec jsonb, release_reason text, at_once integer, admitted_at timestamptz,
           due_at timestamptz, incident text, moved integer[])
     ORDER BY tenant, workload, generation
        ON CONFLICT (region, tenant, workload, generation) DO UPDATE
       SET revision = excluded.revision, slots = excluded.slots, spec = excluded.spec,
           release_reason = excluded.release_reason, at_once = excluded.at_once,
           admitted_at = excluded.admitted_at, due_at = excluded.due_at,
           incident = excluded.incident, moved = excluded.moved
     WHERE s.revision <= excluded.revision AND s.closed_at IS NULL
    RETURNING tenant, workload, generation
""")

# The workload's part of its disruption allowance: what voluntary stops must leave serving. Its row
# also has the number of the workload's newest division in the region, with a floor or without.
_SET_FLOORS = text(f"""
    INSERT INTO regional.disruption_floors AS f (region, tenant, workload, revision, must_serve)
    SELECT :region, tenant, workload, revision, coalesce(must_serve, 0)
      FROM {sent_rows("rows", "row", _FLOOR)}
     ORDER BY tenant, workload
        ON CONFLICT (region, tenant, workload) DO UPDATE
       SET revision = excluded.revision,
           must_serve = coalesce((
               SELECT row.must_serve FROM {sent_rows("rows", "row", _FLOOR)}
                WHERE row.tenant = f.tenant AND row.workload = f.workload), f.must_serve)
     WHERE f.revision <= excluded.revision
    RETURNING tenant, workload
""")

_MARKED = text("""
    SELECT token FROM regional.live_claims(:now)
     WHERE region = :region AND token = ANY(:tokens) AND is_marked
""")

_BEGIN = text("""
    UPDATE regional.replacements SET begun_at = :now
     WHERE region = :region AND token = ANY(:tokens) AND begun_at IS NULL
""")

_MOVED_BY = text("""
    SELECT unnest(moved) FROM regional.shares
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND generation = :generation AND incident = :incident
""")

_OPEN = text("""
    SELECT tenant, workload, generation FROM regional.shares
     WHERE region = :region AND closed_at IS NULL
     ORDER BY tenant, workload, generation
""")


@dataclass(frozen=True)
class PublishedShare:
    """What one placement is to run."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    share: DesiredShare

    @property
    def key(self) -> tuple[str, str, int]:
        return (str(self.tenant), str(self.workload), self.generation)


@dataclass(frozen=True)
class Publication:
    """What one division of a workload writes into a region: its floor, and shares that changed."""

    tenant: TenantId
    workload: WorkloadName
    revision: int
    # How many replicas voluntary stops must leave serving; None leaves it as it is.
    must_serve: int | None = None
    shares: tuple[PublishedShare, ...] = ()
    # Tokens of claims that leave their share for nothing but a mark.
    replaced: tuple[int, ...] = ()
    # Of a new workload: the slots that the region owns from the beginning. Nothing of it runs yet,
    # so no commit can have read its floor.
    first_slots: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return (str(self.tenant), str(self.workload))

    @property
    def copies(self) -> SlotCopies:
        numbers = dict.fromkeys(self.first_slots, FIRST_NUMBER)
        return SlotCopies(self.tenant, self.workload, numbers)

    @property
    def floor(self) -> dict[str, object]:
        return {
            "tenant": str(self.tenant),
            "workload": str(self.workload),
            "revision": self.revision,
            "must_serve": self.must_serve,
        }


@regional_transaction("durable_reader", "read which slots of {workload} were moved to {region}")
async def read_moved(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    incident: IncidentId,
) -> frozenset[int]:
    """The slots that may draw on what is kept for this recovery."""
    of = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    rows = await connection.execute(_MOVED_BY, {**of, "incident": incident})
    return frozenset(rows.scalars())


@regional_transaction(ROLE, "hand shares to {region}")
async def publish(
    connection: AsyncConnection, region: RegionId, publications: Sequence[Publication]
) -> list[bool]:
    """Writes floors and shares, as far as the region does not have newer ones.

    Answers of each whether all of it is in force now; one that came late, or that would replace
    what nobody wants replaced any more, changes nothing. A new workload's slots come with it.
    """
    newest: dict[tuple[str, str], int] = {}
    for one in publications:
        newest[one.key] = max(one.revision, newest.get(one.key, one.revision))
    current = [one for one in publications if one.revision == newest[one.key]]
    changes_floor = any(one.must_serve is not None and not one.first_slots for one in current)
    if changes_floor or any(one.replaced for one in current):
        # A commit that has read the floor before ends before: from here on all obey the new one.
        # Nor is a claim marked or unmarked meanwhile.
        await lock_region(connection, region)
    current = await _still_marked(connection, region, current)
    taken = set(map(id, current))
    numbered = await _number(connection, region, current)
    numbered -= await _not_held(connection, region, current, numbered)
    shares = {share.key: share for one in current if one.key in numbered for share in one.shares}
    written = await _write(connection, region, shares.values())
    return [
        one.revision == newest[one.key]
        and id(one) in taken
        and one.key in numbered
        and all(share.key in written for share in one.shares)
        for one in publications
    ]


async def _still_marked(
    connection: AsyncConnection, region: RegionId, publications: Sequence[Publication]
) -> list[Publication]:
    """Those that replace nothing for a mark that has lapsed since it was read."""
    tokens = [token for one in publications for token in one.replaced]
    if not tokens:
        return list(publications)
    of = {"region": region, "tokens": tokens, "now": await read_clock(connection)}
    marked = set((await connection.execute(_MARKED, of)).scalars())
    kept = [one for one in publications if marked.issuperset(one.replaced)]
    begun = [token for one in kept for token in one.replaced]
    await connection.execute(_BEGIN, {**of, "tokens": begun})
    return kept


async def _number(
    connection: AsyncConnection, region: RegionId, publications: Sequence[Publication]
) -> set[tuple[str, str]]:
    """Writes floors and numbers; of these workloads the region has no newer number.

    Each publication does, or a late one could still insert a share that the region does not have.
    """
    floors: dict[tuple[str, str], dict[str, object]] = {}
    for one in publications:
        if one.must_serve is not None or one.key not in floors:
            floors[one.key] = one.floor
    sent = {"region": region, "rows": json.dumps(list(floors.values()))}
    return {(row.tenant, row.workload) for row in await connection.execute(_SET_FLOORS, sent)}


async def _not_held(
    connection: AsyncConnection,
    region: RegionId,
    publications: Sequence[Publication],
    numbered: Set[tuple[str, str]],
) -> set[tuple[str, str]]:
    """The new workloads whose first slots the region gets, or had, and does not hold any more.

    Those came late: what was handed over or given up since has higher numbers.
    """
    first = [one.copies for one in publications if one.first_slots and one.key in numbered]
    if not first:
        return set()
    slots = sum(len(one.numbers) for one in first)
    if await copy_new_slots(connection, region, first) == slots:
        return set()
    keys = {(str(one.tenant), str(one.workload)) for one in first}
    return keys - await find_held(connection, region, first)


async def _write(
    connection: AsyncConnection, region: RegionId, shares: Collection[PublishedShare]
) -> set[tuple[str, str, int]]:
    """Answers those that the region has like that now; one that is closed stays as it is."""
    if not shares:
        return set()
    sent = {"region": region, "rows": json.dumps(list(map(_row, shares)))}
    rows = await connection.execute(_PUBLISH, sent)
    return {(row.tenant, row.workload, row.generation) for row in rows}


def _row(one: PublishedShare) -> dict[str, object]:
    named = {"tenant": str(one.tenant), "workload": str(one.workload), "generation": one.generation}
    return {**named, **one.share.model_dump(mode="json")}


class ShareWriter(Batcher[Publication, bool]):
    """Writes one region's shares; those that arrive together share a transaction."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        name = f"queue of shares for {region}"
        super().__init__(name, "share", self._publish, max_batch=MAX_SHARES_PER_CALL)

    async def _publish(self, publications: list[Publication]) -> list[bool]:
        answers: list[bool] = []
        for some in chunks(publications, lambda one: len(one.first_slots), most=MAX_SLOTS_PER_CALL):
            answers += await publish(self._databases, self._region, some)
        return answers


@regional_transaction("durable_reader", "read the open shares of {region}")
async def open_shares(
    connection: AsyncConnection, region: RegionId
) -> list[tuple[TenantId, WorkloadName, Generation]]:
    """The shares that need a placement: those whose request was not withdrawn."""
    rows = await connection.execute(_OPEN, {"region": region})
    return [(TenantId(row.tenant), WorkloadName(row.workload), row.generation) for row in rows]

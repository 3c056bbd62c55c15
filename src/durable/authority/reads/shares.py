"""One region's share of one generation, as the authority and the agents know it now."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import text

from durable.authority.db.batching import PATIENT_GATHER_SECONDS, Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.fair_queue import Turn
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.authority.queue.requests import pending_of
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.states import TROUBLED, BindingState, RequestState
from durable.model.work.share import (
    EndedSlots,
    ShareCounts,
    ShareReport,
    ShareRequest,
    SlotsObserved,
)
from durable.validation.text import cut_bytes
from durable.validation.value import Value

SHARES_PER_READ = 200

# In bytes. Evidence travels only where it will be asked for: thousands of slots share one message.
EVIDENCE_KEPT = 200
ShareKey = tuple[str, str, int]


class ShareStatus(Value):
    """A whole share: every slot with a binding, and what the rest waits for."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slots: tuple[ObservedSlot, ...]
    request: ShareRequest | None
    # How many claims its placement may have at once, by what it was told last or obeys still; None
    # if nothing limits that, or nothing was published.
    at_once: int | None = None
    # When the request was withdrawn.
    closed_at: AwareDatetime | None = None
    # Of no earlier version of the region than this; read between these moments, by its own clock.
    as_of: int
    read_at: AwareDatetime
    read_until: AwareDatetime

    @property
    def key(self) -> ShareKey:
        return (str(self.tenant), str(self.workload), self.generation)

    def observed(self) -> SlotsObserved:
        """Its live slots, for its placement."""
        slots = tuple(
            slot.model_copy(
                update={"evidence": _kept_of(slot), "log_directory": None, "since": None}
            )
            for slot in self.slots
        )
        return SlotsObserved(version=self.as_of, at=self.read_at, slots=slots)

    def report(self) -> ShareReport:
        """How far it has come, for its workload."""
        return ShareReport.of(
            (self.region, self.generation),
            self.request,
            self.slots,
            version=self.as_of,
            at=self.read_at,
            at_once=self.at_once,
            closed_at=self.closed_at,
        )

    @property
    def is_settled(self) -> bool:
        """Whether every slot is where it must be, so that nothing has to be done."""
        request = self.request
        arrived = {BindingState.SERVING, BindingState.RUNNING}
        return (
            request is not None
            and request.state is RequestState.PLACED
            and len(self.slots) == request.slots - request.completed - request.given_up
            and all(slot.state in arrived and not slot.stop_requested for slot in self.slots)
        )

    @property
    def has_ended(self) -> bool:
        """Whether its placement has ended, or never began, and nothing is left of it."""
        is_wanted = self.request is not None and self.request.state is not RequestState.WITHDRAWN
        return not is_wanted and not self.slots

    def says_the_same_as(self, other: "ShareStatus | None") -> bool:
        """Whether nothing differs but when it was read."""
        return other is not None and (
            (self.key, self.slots, self.request, self.at_once)
            == (other.key, other.slots, other.request, other.at_once)
        )


def _kept_of(slot: ObservedSlot) -> str:
    return cut_bytes(slot.evidence, EVIDENCE_KEPT) if slot.state in TROUBLED else ""


# Shares that somebody may still care for: those wanted, requested, or with a live binding.
_KEYS = text("""
    SELECT tenant, workload, generation
      FROM (SELECT tenant, workload, generation FROM regional.requests
             WHERE region = :region AND state <> 'withdrawn'
             UNION
            SELECT tenant, workload, generation FROM regional.shares
             WHERE region = :region AND closed_at IS NULL
             UNION
            SELECT tenant, workload, generation FROM regional.reservations
             WHERE region = :region AND freed_version IS NULL AND state = 'bound') AS shares
     WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
       AND (CAST(:workload AS text) IS NULL OR workload = :workload)
     ORDER BY tenant, workload, generation
""")

_WANTED = """
    unnest(CAST(:tenants AS text[]), CAST(:workloads AS text[]), CAST(:generations AS bigint[]))
        AS wanted(tenant, workload, generation)
"""

# With the version: what is read with it or after it is of that version or a later one. The moment
# is that of the transaction, which is this statement alone, and not later than what it sees.
_SLOTS = text(f"""
    SELECT g.version, coalesce(CAST(:now AS timestamptz), now()) AS read_at, c.*
      FROM regional.regions AS g LEFT JOIN (
           SELECT tenant, workload, generation, c.slot, c.token, c.attempt, c.node, c.state,
                  c.evidence, c.log_directory, c.since, c.exit_code, c.is_marked,
                  c.stop_requested_at IS NOT NULL AS stop_requested
             FROM {_WANTED}
             JOIN regional.live_claims(coalesce(CAST(:now AS timestamptz), now()))
                  AS c USING (tenant, workload, generation)
            WHERE c.region = :region AND c.reservation = 'bound') AS c ON true
     WHERE g.region = :region
     ORDER BY c.slot
""")

_REQUESTS = text(f"""
    SELECT wanted.tenant, wanted.workload, wanted.generation, r.state, r.pending_code,
           r.pending_parameters, r.waiting, cardinality(r.completed) AS completed,
           cardinality(r.given_up) AS given_up, r.completed AS completed_slots,
           r.given_up AS given_up_slots, r.ended_at, r.held_back, r.failures,
           greatest(r.at_once, s.at_once) AS at_once,
           s.closed_at, cardinality(r.slots) AS slots, clock_timestamp() AS read_until
      FROM {_WANTED}
      LEFT JOIN regional.requests AS r
        ON (r.region, r.tenant, r.workload, r.generation)
         = (:region, wanted.tenant, wanted.workload, wanted.generation)
      LEFT JOIN regional.shares AS s
        ON (s.region, s.tenant, s.workload, s.generation)
         = (:region, wanted.tenant, wanted.workload, wanted.generation)
""")


async def read_shares(
    databases: Databases,
    region: RegionId,
    tenant: TenantId | None = None,
    workload: WorkloadName | None = None,
    *,
    also: Sequence[ShareKey] = (),
    now: datetime | None = None,
) -> list[ShareStatus]:
    """Every share of a region, or those of one tenant or workload, in the order of their names.

    What is over, with nothing left of it, is read only if it is named.
    """
    keys = await _read_keys(databases, region, tenant, workload)
    return await read_those_shares(databases, region, sorted({*keys, *also}), now=now)


async def read_those_shares(
    databases: Databases,
    region: RegionId,
    keys: Sequence[ShareKey],
    *,
    now: datetime | None = None,
) -> list[ShareStatus]:
    """These shares as they are now, also when nothing is left of them; many are read in parts."""
    shares: list[ShareStatus] = []
    for first in range(0, max(1, len(keys)), SHARES_PER_READ):
        shares += await _read(databases, region, keys[first : first + SHARES_PER_READ], now)
    return shares


class ShareReader(Batcher[ShareKey, ShareStatus]):
    """Reads single shares of one region; those that are asked for together are read together."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        super().__init__(
            f"queue of reads in {region}",
            "read",
            self._read,
            max_batch=SHARES_PER_READ,
            gather_seconds=PATIENT_GATHER_SECONDS,
            turn_of=lambda key: Turn(key[0]),
        )

    async def _read(self, keys: list[ShareKey]) -> list[ShareStatus]:
        return await _read(self._databases, self._region, keys, None)


@regional_transaction("durable_reader", "read the shares of {region}")
async def _read_keys(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId | None,
    workload: WorkloadName | None,
) -> list[ShareKey]:
    of = {"region": region, "tenant": tenant, "workload": workload}
    rows = await connection.execute(_KEYS, of)
    return [(row.tenant, row.workload, row.generation) for row in rows]


@regional_transaction("durable_reader", "read the shares of {region}")
async def _read(
    connection: AsyncConnection, region: RegionId, keys: Sequence[ShareKey], now: datetime | None
) -> list[ShareStatus]:
    wanted = {
        "tenants": [key[0] for key in keys],
        "workloads": [key[1] for key in keys],
        "generations": [key[2] for key in keys],
    }
    of = {"region": region, **wanted}
    claims = (await connection.execute(_SLOTS, {**of, "now": now})).mappings().all()
    if not claims:
        raise unknown_region(region)
    at = claims[0]
    slots: dict[ShareKey, list[ObservedSlot]] = {}
    for row in claims:
        if row["token"] is not None:
            slots.setdefault(_key(row), []).append(_slot(row))
    rows = {_key(row): row for row in (await connection.execute(_REQUESTS, of)).mappings()}
    return [
        ShareStatus(
            region=region,
            tenant=TenantId(key[0]),
            workload=WorkloadName(key[1]),
            generation=key[2],
            slots=tuple(slots.get(key, ())),
            request=request_of(rows[key]),
            at_once=rows[key]["at_once"],
            closed_at=rows[key]["closed_at"],
            as_of=at["version"],
            read_at=at["read_at"],
            read_until=rows[key]["read_until"],
        )
        for key in keys
    ]


def request_of(row: Any) -> ShareRequest | None:
    """What a placement last wrote, from the columns of its request; None if it wrote nothing."""
    if row["state"] is None:
        return None
    said = (*ShareCounts.model_fields, *EndedSlots.model_fields, "ended_at")
    return ShareRequest(
        state=RequestState(row["state"]),
        pending=pending_of(row),
        **{name: row[name] for name in said},
    )


def _key(row: Any) -> ShareKey:
    return (row["tenant"], row["workload"], row["generation"])


def _slot(row: Any) -> ObservedSlot:
    return ObservedSlot(**{name: row[name] for name in ObservedSlot.model_fields if name in row})

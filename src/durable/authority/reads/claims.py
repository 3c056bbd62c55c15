"""Claims as their region knows them: one reader, with a filter, for every part that needs them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import TextClause, text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import (
    ActorId,
    Generation,
    NodeId,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
)
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.intents import Expire
from durable.model.states import BindingState, ReservationState

# What every reader gets of `regional.live_claims(…) AS c`, in the order of `RegionalClaim`.
CLAIM_COLUMNS = """
    c.state, c.reservation, c.devices, c.region, c.token, c.tenant, c.workload, c.generation,
    c.slot, c.attempt, c.node, c.cpu_millis, c.memory_mib, c.gpus, c.policy_revision,
    c.reserved_at, c.expires_at, c.created_version, c.freed_version, c.started_at,
    c.stop_requested_at, c.observer, coalesce(c.evidence, '') AS evidence, c.log_directory,
    c.since, c.exit_code, c.is_marked, c.lease_epoch, c.lease_expires_at, c.read_at
"""
_STATES = {state.value: state for state in BindingState}
_RESERVATIONS = {state.value: state for state in ReservationState}


@dataclass(frozen=True, kw_only=True)
class ClaimFilter:
    """Which claims of a region; without anything, all of them."""

    tenant: TenantId | None = None
    workload: WorkloadName | None = None
    generation: Generation | None = None
    slots: Sequence[Slot] | None = None
    tokens: Sequence[Token] | None = None
    nodes: Sequence[NodeId] | None = None
    policy_revision: PolicyRevision | None = None
    is_bound: bool | None = None
    is_job: bool | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that are given, each of which has its condition."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) is not None)

    @property
    def parameters(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.named}
        lists = ("slots", "tokens", "nodes")
        return {name: list(one) if name in lists else one for name, one in values.items()}


_CONDITIONS = {
    "tenant": "c.tenant = :tenant",
    "workload": "c.workload = :workload",
    "generation": "c.generation = :generation",
    "slots": "c.claimed_slot = ANY(:slots)",
    "tokens": "c.token = ANY(:tokens)",
    "nodes": "c.node = ANY(:nodes)",
    "policy_revision": "c.policy_revision = :policy_revision",
    "is_bound": "(c.reservation = 'bound') = :is_bound",
    "is_job": "c.is_job = :is_job",
}


def conditions(named: Sequence[str]) -> str:
    """Of the claims `c` of one region. Only what is named: the planner then knows its index."""
    return " AND ".join(("c.region = :region", *(_CONDITIONS[name] for name in named)))


@cache
def _read(named: tuple[str, ...], *, and_ended: bool) -> TextClause:
    # With a clock that is not stable the planner could not look into the function.
    now = "coalesce(CAST(:now AS timestamptz), statement_timestamp())"
    # Without a limit: what is missing from the list would be taken for gone. Capacity bounds it.
    return text(f"""
        SELECT {CLAIM_COLUMNS}
          FROM regional.live_claims({now}, {"true" if and_ended else "false"}) AS c
         WHERE {conditions(named)}
         ORDER BY c.tenant, c.workload, c.slot, c.token
    """)


async def find_claims(
    connection: AsyncConnection,
    region: RegionId,
    which: ClaimFilter,
    *,
    and_ended: bool = False,
    now: datetime | None = None,
) -> list[RegionalClaim]:
    """Within a transaction of the caller's; see `read_claims`."""
    statement = _read(which.named, and_ended=and_ended)
    of = {"region": region, "now": now, **which.parameters}
    return [claim_of(row) for row in await connection.execute(statement, of)]


@regional_transaction("durable_reader", "read the claims of {region}")
async def read_claims(
    connection: AsyncConnection,
    region: RegionId,
    which: ClaimFilter = ClaimFilter(),  # noqa: B008 - immutable
    *,
    and_ended: bool = False,
    now: datetime | None = None,
) -> list[RegionalClaim]:
    """The live claims of a region, on request with those that have ended, by workload and slot."""
    return await find_claims(connection, region, which, and_ended=and_ended, now=now)


def claim_of(row: Any) -> RegionalClaim:
    """A row of `CLAIM_COLUMNS`; an ordinal may follow, and then whether it is a job's."""
    state, reservation, devices, *others = row
    return RegionalClaim(_STATES.get(state), _RESERVATIONS[reservation], tuple(devices), *others)


def next_ordinal(steps: str) -> str:
    """A column for the claims `c`: an intent that was refused before has used up its ordinal."""
    return f"""
        (SELECT coalesce(max(i.ordinal), 0) + 1 FROM regional.intents AS i
          WHERE i.region = c.region AND i.tenant = c.tenant AND i.workload = c.workload
            AND i.generation = c.generation AND i.slot = c.slot AND i.attempt = c.attempt
            AND {steps}) AS ordinal
    """


_LAPSED = text(f"""
    SELECT {CLAIM_COLUMNS}, {next_ordinal("i.step = 'expire' AND i.cause = ''")}
      FROM regional.live_claims(statement_timestamp()) AS c
     WHERE c.region = :region AND c.reservation = 'held'
       AND c.expires_at <= statement_timestamp() - make_interval(secs => :grace_seconds)
     ORDER BY c.expires_at LIMIT :most
""")


@regional_transaction("durable_reader", "read the lapsed reservations of {region}")
async def read_lapsed_reservations(
    connection: AsyncConnection, region: RegionId, *, grace_seconds: float, most: int
) -> list[RegionalClaim]:
    """Those whose lease ran out at least so long ago and that were not freed, the oldest first."""
    of = {"region": region, "grace_seconds": grace_seconds, "most": most}
    return [claim_of(row) for row in await connection.execute(_LAPSED, of)]


def expire(claim: RegionalClaim, actor: ActorId, epoch: int) -> Expire:
    """The intent that frees a lapsed reservation."""
    return Expire(
        region=claim.region,
        tenant=claim.tenant,
        workload=claim.workload,
        generation=claim.generation,
        slot=claim.slot,
        attempt=claim.attempt,
        token=claim.token,
        ordinal=claim.ordinal,
        actor=actor,
        epoch=epoch,
        evidence=f"its lease ran out at {claim.expires_at.isoformat()} and it was not freed",
    )

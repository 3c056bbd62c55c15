"""Releases what a fence ended: the claims of a fenced region whose slots go elsewhere.

By the regional commit's own rules, from any worker. A node whose lease has lapsed has stopped what
must not run without one; a node that came back answers for what it runs, so it is asked to stop it.
What is not to move, or is kept for the region's return, is left alone.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.commit.regional_commit import MAX_BATCH, commit_intents
from durable.authority.db.batching import chunks
from durable.authority.db.connection import Databases
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.recovery.moved_slots import void_moved
from durable.authority.recovery.originals import IS_KEPT, SERVED_SLOT
from durable.model.fleet.region_life import FencedClaims
from durable.model.ids import ActorId, Generation, RegionId, Slot, TenantId, Token, WorkloadName
from durable.model.placement.intents import Evict, Granted, Release, ReleaseCause
from durable.validation.value import Value

ACTOR = ActorId("controller:recovery")

# An intent that was refused before has used up its ordinal, whatever its cause was.
_LIVE = text("""
    SELECT r.tenant, r.workload, r.generation, r.slot, r.attempt, r.token,
           coalesce(b.state = 'starting', false) AS is_started,
           b.stop_requested_at IS NOT NULL AS stop_requested,
           coalesce(o.state IN ('stopped', 'failed'), false) AS has_ended,
           l.epoch AS lease_epoch, l.expires_at AS lease_expires_at,
           coalesce(CAST(:now AS timestamptz), statement_timestamp()) AS read_at,
           (SELECT coalesce(max(i.ordinal), 0) + 1 FROM regional.intents AS i
             WHERE i.region = r.region AND i.tenant = r.tenant AND i.workload = r.workload
               AND i.generation = r.generation AND i.slot = r.slot AND i.attempt = r.attempt
               AND i.step IN ('release', 'evict')) AS ordinal
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
     WHERE r.region = :region AND r.freed_version IS NULL
     ORDER BY r.priority DESC, r.token
""")

# Owned elsewhere by now, on its way there, or wanted there, unless the original is to go on.
_LEAVING = text(f"""
    SELECT token FROM {
    sent_rows("rows", "row", "token bigint, tenant text, workload text, slot integer")
}
      LEFT JOIN global.slots AS s USING (tenant, workload, slot)
      LEFT JOIN global.workloads AS w USING (tenant, workload)
     WHERE (s.region IS DISTINCT FROM :region OR s.is_leaving
            OR w.delete_requested_at IS NOT NULL
            OR NOT coalesce(w.share -> :region @> to_jsonb({SERVED_SLOT}), w.workload IS NULL))
       AND NOT (s.region IS NOT DISTINCT FROM :region AND {IS_KEPT})
""")


class _Claim(Value):
    """A live claim, with what shows whether something of it may still run."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    token: Token
    ordinal: int
    is_started: bool
    stop_requested: bool
    has_ended: bool
    lease_epoch: int | None
    lease_expires_at: AwareDatetime | None
    read_at: AwareDatetime

    @property
    def has_lapsed(self) -> bool:
        return self.lease_expires_at is None or self.lease_expires_at <= self.read_at


async def release_fenced(
    databases: Databases,
    region: RegionId,
    *,
    epoch: int,
    most: int,
    now: datetime | None = None,
) -> FencedClaims:
    """Releases what may be released by now, at most so many; the rest is asked to stop, or waits.

    Takes back the copies of slots that others own by now, once nothing claims them.
    """
    live = await _read_live(databases, region, now)
    leaving = await _read_leaving(databases, region, live) if live else frozenset[int]()
    claims = [claim for claim in live if claim.token in leaving][:most]
    intents = [one for claim in claims if (one := next_intent(region, epoch, claim)) is not None]
    engine = databases.at_region(region, "durable_commit")
    released: list[Release] = []
    for some in chunks(intents, lambda _: 1, most=MAX_BATCH):
        outcomes = await commit_intents(engine, region, some, now=now)
        released += [
            intent
            for intent, outcome in zip(some, outcomes, strict=True)
            if isinstance(intent, Release) and isinstance(outcome, Granted)
        ]
    await void_moved(databases, region)
    lapses = [
        claim.lease_expires_at
        for claim in claims
        if claim.lease_expires_at is not None and not claim.has_lapsed
    ]
    return FencedClaims(
        released=len(released),
        waiting=len(leaving) - len(released),
        workloads=frozenset((one.tenant, one.workload) for one in released),
        next_at=min(lapses, default=None),
    )


def next_intent(region: RegionId, epoch: int, claim: _Claim) -> Release | Evict | None:
    """What brings a claim of a fenced region nearer to its end; None: only waiting does."""
    of: dict[str, Any] = {
        "region": region, "tenant": claim.tenant, "workload": claim.workload,
        "generation": claim.generation, "slot": claim.slot, "attempt": claim.attempt,
        "ordinal": claim.ordinal, "token": claim.token, "epoch": epoch, "actor": ACTOR,
    }  # fmt: skip
    why = f"{region} was fenced, and the slot goes elsewhere"
    if not claim.is_started:
        return Release(**of, cause=ReleaseCause.WITHDRAWN, evidence=f"{why}; it was never started")
    if claim.has_ended:
        return Release(**of, cause=ReleaseCause.STOPPED, evidence=f"{why}; its agent saw it end")
    if claim.has_lapsed:
        cause = ReleaseCause.NODE_LOST if claim.lease_epoch == epoch else ReleaseCause.REGION_FENCED
        return Release(**of, cause=cause, evidence=f"{why}; the lease of its node has lapsed")
    if claim.lease_epoch == epoch and not claim.stop_requested:
        return Evict(**of, is_forced=True, evidence=f"{why}; its node came back")
    return None


@regional_transaction("durable_reader", "read the claims of {region}")
async def _read_live(
    connection: AsyncConnection, region: RegionId, now: datetime | None
) -> list[_Claim]:
    rows = (await connection.execute(_LIVE, {"region": region, "now": now})).mappings()
    return [_Claim.read(dict(row)) for row in rows]


@global_transaction("durable_reader", "read which slots leave {region}")
async def _read_leaving(
    connection: AsyncConnection, region: RegionId, claims: Sequence[_Claim]
) -> frozenset[int]:
    keys = {"token", "tenant", "workload", "slot"}
    rows = json.dumps([claim.model_dump(mode="json", include=keys) for claim in claims])
    found = await connection.execute(_LEAVING, {"region": region, "rows": rows})
    return frozenset(found.scalars())

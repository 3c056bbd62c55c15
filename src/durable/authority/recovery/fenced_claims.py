"""Releases what a fence ended: the claims of a fenced region whose slots go elsewhere.

By the regional commit's own rules, from any worker. A node whose lease has lapsed has stopped what
must not run without one; a node that came back answers for what it runs, so it is asked to stop it.
What is not to move, or is kept for the region's return, is left alone.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import text

from durable.authority.commit.regional_commit import MAX_BATCH, commit_intents
from durable.authority.db.batching import chunks
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.reads.claims import CLAIM_COLUMNS, claim_of, next_ordinal
from durable.authority.recovery.moved_slots import void_moved
from durable.authority.recovery.originals import IS_KEPT, SERVED_SLOT
from durable.model.fleet.region_life import FencedClaims
from durable.model.ids import ActorId, RegionId
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.intents import Evict, Granted, Release, ReleaseCause

ACTOR = ActorId("controller:recovery")

_LIVE = text(f"""
    SELECT {CLAIM_COLUMNS}, {next_ordinal("i.step IN ('release', 'evict')")}
      FROM regional.live_claims(
           coalesce(CAST(:now AS timestamptz), statement_timestamp())) AS c
     WHERE c.region = :region
     ORDER BY c.priority DESC, c.token
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
        if claim.lease_expires_at is not None and not claim.has_node_lapsed
    ]
    return FencedClaims(
        released=len(released),
        waiting=len(leaving) - len(released),
        workloads=frozenset((one.tenant, one.workload) for one in released),
        next_at=min(lapses, default=None),
    )


def next_intent(region: RegionId, epoch: int, claim: RegionalClaim) -> Release | Evict | None:
    """What brings a claim of a fenced region nearer to its end; None: only waiting does."""
    of: dict[str, Any] = {
        "region": region, "tenant": claim.tenant, "workload": claim.workload,
        "generation": claim.generation, "slot": claim.slot, "attempt": claim.attempt,
        "ordinal": claim.ordinal, "token": claim.token, "epoch": epoch, "actor": ACTOR,
    }  # fmt: skip
    why = f"{region} was fenced, and the slot goes elsewhere"
    if claim.started_at is None:
        return Release(**of, cause=ReleaseCause.WITHDRAWN, evidence=f"{why}; it was never started")
    if claim.has_ended:
        return Release(**of, cause=ReleaseCause.STOPPED, evidence=f"{why}; its agent saw it end")
    if claim.has_node_lapsed:
        cause = ReleaseCause.NODE_LOST if claim.lease_epoch == epoch else ReleaseCause.REGION_FENCED
        return Release(**of, cause=cause, evidence=f"{why}; the lease of its node has lapsed")
    if claim.lease_epoch == epoch and not claim.stop_requested:
        return Evict(**of, is_forced=True, evidence=f"{why}; its node came back")
    return None


@regional_transaction("durable_reader", "read the claims of {region}")
async def _read_live(
    connection: AsyncConnection, region: RegionId, now: datetime | None
) -> list[RegionalClaim]:
    rows = await connection.execute(_LIVE, {"region": region, "now": now})
    return [claim_of(row) for row in rows]


@global_transaction("durable_reader", "read which slots leave {region}")
async def _read_leaving(
    connection: AsyncConnection, region: RegionId, claims: Sequence[RegionalClaim]
) -> frozenset[int]:
    keys = ("token", "tenant", "workload", "slot")
    rows = json.dumps([{key: getattr(claim, key) for key in keys} for claim in claims])
    found = await connection.execute(_LEAVING, {"region": region, "rows": rows})
    return frozenset(found.scalars())

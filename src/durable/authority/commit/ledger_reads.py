"""Filling the ledger: the region's lock, its clock, then the rows that the batch touches."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeGuard

from sqlalchemy import text

from durable.authority.commit.ledger import (
    Availability,
    BudgetEntry,
    ClaimEntry,
    DrawEntry,
    GrantEntry,
    Ledger,
    NodeEntry,
    NodeHealth,
)
from durable.authority.db.engine import AsyncConnection
from durable.authority.fleet.regions import HELD_LEASE, held_lease
from durable.model.ids import RegionId
from durable.model.overrides.effects import Gate
from durable.model.overrides.in_force import RegionalOverride
from durable.model.placement.intents import AnyIntent, Evict, Release, ReleaseCause, Reserve
from durable.model.states import PolicyState, RegionState

# NO KEY UPDATE: writers of rows that only refer to the region need not wait.
_LOCK = text(f"""
    SELECT region, epoch, version, state, tokens_issued, {HELD_LEASE},
           capacity_cpu_millis, capacity_memory_mib, capacity_gpus,
           used_cpu_millis, used_memory_mib, used_gpus
      FROM regional.regions WHERE region = :region FOR NO KEY UPDATE
""")

# A statement of its own: the locking one would read all of this before the wait for the lock.
_SURROUNDINGS = text("""
    SELECT clock_timestamp() AS now,
           (SELECT coalesce(jsonb_agg(to_jsonb(b)), '[]')
              FROM regional.recovery_budgets AS b WHERE b.region = :region) AS budgets,
           (SELECT jsonb_build_array(coalesce(sum(n.used_cpu_millis), 0),
                                     coalesce(sum(n.used_memory_mib), 0),
                                     coalesce(sum(n.used_gpus), 0))
              FROM regional.nodes AS n
             WHERE n.region = :region AND n.state IN ('unknown', 'lost')) AS silent,
           (SELECT coalesce(jsonb_object_agg(p.revision, p.state), '{}')
              FROM regional.policy_states AS p WHERE p.region = :region) AS policies,
           (SELECT p.overridable_gates FROM regional.policy_states AS p
             WHERE p.region = :region AND p.state IN ('canary', 'active')
             ORDER BY p.state = 'canary' DESC LIMIT 1) AS overridable_gates,
           (SELECT coalesce(jsonb_agg(to_jsonb(o)), '[]') FROM regional.overrides AS o
             WHERE o.region = :region AND o.ended_at IS NULL) AS overrides,
           (SELECT coalesce(jsonb_agg(to_jsonb(e)), '[]') FROM regional.emergency_draws AS e
             WHERE e.region = :region AND (
                   NOT e.has_ended OR e.used_cpu_millis + e.used_memory_mib + e.used_gpus > 0)
           ) AS draws
""")

_CLAIMS = text("""
    SELECT r.token, r.tenant, r.workload, r.generation, r.slot, r.attempt, r.node,
           r.cpu_millis, r.memory_mib, r.gpus, r.budget, r.emergency, r.policy_revision, r.state,
           r.expires_at, n.zone,
           b.state AS binding_state, b.stop_requested_at IS NOT NULL AS stop_requested,
           o.state AS observed, n.state AS node_state, n.cordon_reason,
           l.epoch AS lease_epoch, l.expires_at AS lease_expires_at
      FROM regional.reservations AS r
      JOIN regional.nodes AS n USING (region, node)
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
     WHERE r.region = :region AND r.token = ANY(:tokens)
""")

_HOLD_LEASES = text("""
    SELECT regional.hold_leases(:region, array_agg(node)) FROM regional.reservations
     WHERE region = :region AND token = ANY(:tokens)
""")

_NODES = text("""
    SELECT n.node, n.zone, n.dedicated_to, n.labels, n.state AS node_state, n.cordon_reason,
           l.epoch AS lease_epoch, l.expires_at AS lease_expires_at,
           n.capacity_cpu_millis, n.capacity_memory_mib, n.capacity_gpus,
           n.used_cpu_millis, n.used_memory_mib, n.used_gpus
      FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.region = :region AND n.node = ANY(:nodes)
""")

_FREE_DEVICES = text("""
    SELECT d.node, d.device
      FROM regional.devices AS d JOIN regional.nodes AS n USING (region, node)
      LEFT JOIN regional.device_holds AS h USING (region, node, device)
     WHERE d.region = :region AND d.node = ANY(:nodes) AND h.token IS NULL
       AND NOT d.device = ANY(n.unhealthy_devices)
     ORDER BY d.node, d.device
""")

_GRANTS = text("""
    SELECT tenant, free_cpu_millis, free_memory_mib, free_gpus,
           overdrawn_cpu_millis, overdrawn_memory_mib, overdrawn_gpus
      FROM regional.free_grants(:now) WHERE region = :region AND tenant = ANY(:tenants)
""")

# What serves and was not asked to stop, on nodes that are alive.
_AVAILABILITY = text("""
    SELECT f.tenant, f.workload, f.must_serve, there.serving, there.serving_tokens
      FROM jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(tenant text, workload text)
      JOIN regional.disruption_floors AS f
        ON f.region = :region AND f.tenant = key.tenant AND f.workload = key.workload
     CROSS JOIN LATERAL (
           SELECT count(*) AS serving,
                  array_agg(r.token) FILTER (WHERE r.token = ANY(:tokens)) AS serving_tokens
             FROM regional.reservations AS r
             JOIN regional.bindings AS b USING (region, token)
             JOIN regional.observations AS o USING (region, token)
             JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
            WHERE r.tenant = key.tenant AND r.workload = key.workload
              AND r.claimed_slot IS NOT NULL AND r.region = :region AND b.state = 'starting'
              AND b.stop_requested_at IS NULL AND o.state = 'serving' AND l.expires_at > :now
         ) AS there
""")

# Every claim on a requested slot counts, in whichever region of this database it is. LIMIT keeps
# each a look-up by index: the planner cannot know how few slots a batch requests.
_SLOTS = text("""
    SELECT requested.tenant, requested.workload, requested.slot, claim.token
      FROM jsonb_to_recordset(CAST(:slots AS jsonb))
           AS requested(tenant text, workload text, slot integer)
     CROSS JOIN LATERAL (
           SELECT FROM regional.slots AS s
            WHERE s.tenant = requested.tenant AND s.workload = requested.workload
              AND s.slot = requested.slot AND s.region = :region LIMIT 1) AS owned
      LEFT JOIN LATERAL (
           SELECT r.token FROM regional.reservations AS r
            WHERE r.tenant = requested.tenant AND r.workload = requested.workload
              AND r.claimed_slot = requested.slot LIMIT 1) AS claim ON true
""")

# A gang is moved as a whole, or not at all.
_MOVED = text("""
    SELECT drawing.tenant, drawing.workload, drawing.slot, s.incident
      FROM jsonb_to_recordset(CAST(:slots AS jsonb))
           AS drawing(tenant text, workload text, generation bigint, slot integer)
      JOIN regional.shares AS s
        ON s.region = :region AND s.tenant = drawing.tenant AND s.workload = drawing.workload
       AND s.generation = drawing.generation
     WHERE s.incident IS NOT NULL AND (
           drawing.slot = ANY(s.moved) OR (s.moved <> '{}' AND (
           s.spec ->> 'minimum' IS NOT NULL OR coalesce(s.spec ->> 'all_or_nothing', '') = 'true')))
""")

# What is released because a lease has lapsed needs it to stay so.
_BY_LEASE = frozenset({ReleaseCause.NODE_LOST, ReleaseCause.REGION_FENCED})


async def lock_ledger(
    connection: AsyncConnection, region: RegionId, now: datetime | None
) -> Ledger | None:
    """Takes the region's lock and reads its clock, budgets and policies; None if there is none."""
    row = (await connection.execute(_LOCK, {"region": region})).one_or_none()
    if row is None:
        return None
    around = (await connection.execute(_SURROUNDINGS, {"region": region})).one()
    assert now is None or now.tzinfo is not None, "times are aware"
    return Ledger(
        region=row.region,
        epoch=row.epoch,
        version=row.version,
        state=RegionState(row.state),
        tokens_issued=row.tokens_issued,
        capacity=(row.capacity_cpu_millis, row.capacity_memory_mib, row.capacity_gpus),
        used=(row.used_cpu_millis, row.used_memory_mib, row.used_gpus),
        on_silent_nodes=(around.silent[0], around.silent[1], around.silent[2]),
        now=around.now if now is None else now,
        lease=held_lease(row),
        budgets={entry["budget"]: _budget(entry) for entry in around.budgets},
        policies={int(number): PolicyState(state) for number, state in around.policies.items()},
        overridable_gates=frozenset(Gate(gate) for gate in around.overridable_gates or ()),
        overrides=tuple(RegionalOverride.read(entry) for entry in around.overrides),
        draws={entry["override"]: _draw(entry) for entry in around.draws},
    )


def _budget(entry: dict[str, Any]) -> BudgetEntry:
    return BudgetEntry(
        amount=(entry["cpu_millis"], entry["memory_mib"], entry["gpus"]),
        used=(entry["used_cpu_millis"], entry["used_memory_mib"], entry["used_gpus"]),
        expires_at=datetime.fromisoformat(entry["expires_at"]),
        incident=entry["incident"],
    )


def _draw(entry: dict[str, Any]) -> DrawEntry:
    return DrawEntry(
        override=entry["override"],
        tenant=entry["tenant"],
        amount=(entry["cpu_millis"], entry["memory_mib"], entry["gpus"]),
        used=(entry["used_cpu_millis"], entry["used_memory_mib"], entry["used_gpus"]),
        expires_at=datetime.fromisoformat(entry["expires_at"]),
        has_ended=entry["has_ended"],
    )


async def read_touched(
    connection: AsyncConnection, ledger: Ledger, intents: Sequence[AnyIntent]
) -> None:
    """Reads the claims, nodes, grants and slots that these intents are about.

    Nothing here needs a lock of its own: the region's row covers it, except for leases and
    observations, which are written without that lock. What is seen of them was true at this moment,
    which is all that placing needs; releasing from a lost node needs the lease to stay lapsed, so
    those leases are locked first.
    """
    lost = [intent.token for intent in intents if _relies_on_lapse(intent)]
    if lost:
        await connection.execute(_HOLD_LEASES, {"region": ledger.region, "tokens": lost})
    tokens = [intent.token for intent in intents if not isinstance(intent, Reserve)]
    if tokens:
        await _read_claims(connection, ledger, tokens)
    stops = [intent for intent in intents if isinstance(intent, Evict)]
    if stops:
        await _read_availability(connection, ledger, stops)
    reserves = [intent for intent in intents if isinstance(intent, Reserve)]
    if reserves:
        await _read_nodes(connection, ledger, reserves)
        await _read_grants(connection, ledger, reserves)
        await _read_slots(connection, ledger, reserves)
        await _read_moved(connection, ledger, [one for one in reserves if one.draw is not None])


def _relies_on_lapse(intent: AnyIntent) -> TypeGuard[Release]:
    return isinstance(intent, Release) and intent.cause in _BY_LEASE


async def _read_claims(connection: AsyncConnection, ledger: Ledger, tokens: list[int]) -> None:
    for row in await connection.execute(_CLAIMS, {"region": ledger.region, "tokens": tokens}):
        ledger.claims[row.token] = ClaimEntry(
            token=row.token,
            tenant=row.tenant,
            workload=row.workload,
            generation=row.generation,
            slot=row.slot,
            attempt=row.attempt,
            node=row.node,
            zone=row.zone,
            amounts=(row.cpu_millis, row.memory_mib, row.gpus),
            budget=row.budget,
            emergency=row.emergency,
            policy_revision=row.policy_revision,
            state=row.state,
            expires_at=row.expires_at,
            binding_state=row.binding_state,
            stop_requested=bool(row.stop_requested),
            observed=row.observed,
            health=_health(row),
        )


def _health(row: Any) -> NodeHealth:
    return NodeHealth(
        row.node, row.node_state, row.cordon_reason, row.lease_epoch, row.lease_expires_at
    )


async def _read_nodes(
    connection: AsyncConnection, ledger: Ledger, reserves: Sequence[Reserve]
) -> None:
    names = sorted({str(intent.node) for intent in reserves})
    for row in await connection.execute(_NODES, {"region": ledger.region, "nodes": names}):
        ledger.nodes[row.node] = NodeEntry(
            node=row.node,
            zone=row.zone,
            dedicated_to=row.dedicated_to,
            labels=row.labels,
            health=_health(row),
            capacity=(row.capacity_cpu_millis, row.capacity_memory_mib, row.capacity_gpus),
            used=(row.used_cpu_millis, row.used_memory_mib, row.used_gpus),
        )
    with_gpus = sorted({str(intent.node) for intent in reserves if intent.resources.gpus})
    if with_gpus:
        devices = {"region": ledger.region, "nodes": with_gpus}
        for row in await connection.execute(_FREE_DEVICES, devices):
            ledger.nodes[row.node].free_devices.append(row.device)


async def _read_availability(
    connection: AsyncConnection, ledger: Ledger, stops: Sequence[Evict]
) -> None:
    keys = sorted({(str(intent.tenant), str(intent.workload)) for intent in stops})
    named = json.dumps([{"tenant": tenant, "workload": workload} for tenant, workload in keys])
    of = {
        "region": ledger.region,
        "keys": named,
        "now": ledger.now,
        "tokens": [intent.token for intent in stops],
    }
    for row in await connection.execute(_AVAILABILITY, of):
        ledger.availability[row.tenant, row.workload] = Availability(
            row.serving, row.must_serve, frozenset(row.serving_tokens or ())
        )


async def _read_grants(
    connection: AsyncConnection, ledger: Ledger, reserves: Sequence[Reserve]
) -> None:
    tenants = sorted({str(intent.tenant) for intent in reserves})
    of = {"region": ledger.region, "tenants": tenants, "now": ledger.now}
    for row in await connection.execute(_GRANTS, of):
        ledger.grants[row.tenant] = GrantEntry(
            free=(row.free_cpu_millis, row.free_memory_mib, row.free_gpus),
            overdrawn=(row.overdrawn_cpu_millis, row.overdrawn_memory_mib, row.overdrawn_gpus),
        )


async def _read_slots(
    connection: AsyncConnection, ledger: Ledger, reserves: Sequence[Reserve]
) -> None:
    slots = [{"tenant": i.tenant, "workload": i.workload, "slot": i.slot} for i in reserves]
    requested = {"region": ledger.region, "slots": json.dumps(slots)}
    for row in await connection.execute(_SLOTS, requested):
        slot = (row.tenant, row.workload, row.slot)
        ledger.owned_slots.add(slot)
        if row.token is not None:
            ledger.slot_claims[slot] = row.token


async def _read_moved(
    connection: AsyncConnection, ledger: Ledger, drawing: Sequence[Reserve]
) -> None:
    if not drawing:
        return
    slots = [
        {"tenant": i.tenant, "workload": i.workload, "generation": i.generation, "slot": i.slot}
        for i in drawing
    ]
    of = {"region": ledger.region, "slots": json.dumps(slots)}
    for row in await connection.execute(_MOVED, of):
        ledger.moved_slots[row.tenant, row.workload, row.slot] = row.incident

"""The regional commit: one transaction that turns a batch of intents into truth.

    lock the region  ->  read the clock  ->  recall recorded outcomes  ->  read what the batch
    touches  ->  decide intent by intent  ->  write set by set  ->  record outcomes  ->  COMMIT

READ COMMITTED is chosen: the first statement takes the region's row lock, and every later statement
sees all that earlier holders of the lock committed. Under REPEATABLE READ the snapshot would be as
old as the wait for the lock, and the decisions wrong. The rules decide on rows that nobody else can
change; the schema's constraints would refuse a wrong one, and the batch is then taken apart.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeGuard

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from durable.authority.commit.ledger import BudgetEntry, ClaimEntry, GrantEntry, Ledger, NodeEntry
from durable.authority.commit.reserve_rules import refused
from durable.authority.commit.rules import decide
from durable.authority.db.connection import transact
from durable.authority.db.errors import BrokenConstraintError
from durable.model.ids import RegionId
from durable.model.intents import (
    OUTCOME,
    AnyIntent,
    Granted,
    IntentKey,
    Refused,
    Release,
    ReleaseCause,
    Reserve,
)
from durable.model.refusal import RefusalCode
from durable.model.states import PolicyState, RegionState

MAX_BATCH: Final = 512

# Not recorded: a fenced or mistaken writer changes nothing, not even the list of its own keys.
_UNRECORDED = frozenset({RefusalCode.FENCED_WRITER, RefusalCode.KEY_CONFLICT})


async def commit_intents(
    engine: AsyncEngine,
    region: RegionId,
    intents: Sequence[AnyIntent],
    *,
    now: datetime | None = None,
) -> list[Granted | Refused]:
    """Commits up to MAX_BATCH intents of one region; one outcome per intent, in their order."""
    assert len(intents) <= MAX_BATCH, f"a batch has at most {MAX_BATCH} intents"
    assert all(intent.region == region for intent in intents), "a batch is of one region"
    batch = partial(_commit_batch, region=region, intents=intents, now=now)
    try:
        return await transact(engine, batch, doing=f"commit to {region}")
    except BrokenConstraintError:
        if len(intents) == 1:
            record = partial(_record_broken, region=region, intent=intents[0])
            return [await transact(engine, record, doing=f"commit to {region}")]
    # One of them broke a constraint that the rules should have seen: find it by itself, in the
    # order in which the batch would have been decided.
    alone: dict[int, Granted | Refused] = {}
    for place, intent in sorted(enumerate(intents), key=lambda item: _turn(item[1])):
        (alone[place],) = await commit_intents(engine, region, [intent], now=now)
    return [alone[place] for place in range(len(intents))]


async def _record_broken(
    connection: AsyncConnection, region: RegionId, intent: AnyIntent
) -> Granted | Refused:
    """Keeps the refusal under its key: a resend does not take its neighbours apart again."""
    ledger = await _lock(connection, region, None)
    assert ledger is not None, "a region is never deleted"
    outcomes, fresh = await _recall(connection, ledger, [intent])
    if not fresh:
        return _answer(intent, *outcomes[intent.key])
    broken = refused(
        RefusalCode.BROKEN_CONSTRAINT,
        f"A constraint of the authority refused {intent.key}; nothing changed. "
        "This is a defect: report it with this key.",
    )
    await _write(connection, ledger, [_record(intent, broken)])
    return broken


async def _commit_batch(
    connection: AsyncConnection,
    region: RegionId,
    intents: Sequence[AnyIntent],
    now: datetime | None,
) -> list[Granted | Refused]:
    ledger = await _lock(connection, region, now)
    if ledger is None:
        no = refused(
            RefusalCode.UNKNOWN_REGION,
            f"There is no region {region}; see `durable fleet show`.",
        )
        return [no for _ in intents]

    outcomes, fresh = await _recall(connection, ledger, intents)
    await _read(connection, ledger, fresh)
    recorded: list[dict[str, Any]] = []
    for intent in sorted(fresh, key=_turn):
        outcome = decide(ledger, intent)
        outcomes[intent.key] = (intent.payload_sha256, outcome)
        if isinstance(outcome, Granted) or outcome.refusal.code not in _UNRECORDED:
            recorded.append(_record(intent, outcome))
    await _write(connection, ledger, recorded)
    return [_answer(intent, *outcomes[intent.key]) for intent in intents]


def _record(intent: AnyIntent, outcome: Granted | Refused) -> dict[str, Any]:
    return {
        **intent.key._asdict(),
        "payload_sha256": intent.payload_sha256.hex(),
        "outcome": outcome.model_dump(mode="json"),
    }


def _turn(intent: AnyIntent) -> int:
    """What frees capacity goes first, then the highest priority; equals keep their order."""
    return -intent.priority if isinstance(intent, Reserve) else -1_000_000


def _answer(intent: AnyIntent, digest: bytes, outcome: Granted | Refused) -> Granted | Refused:
    if digest == intent.payload_sha256:
        return outcome
    return refused(
        RefusalCode.KEY_CONFLICT,
        f"{intent.key} was used before for something else; ask again under the next ordinal.",
    )


# ── lock, clock, recall ─────────────────────────────────────────────────────────────────────────

# Of the row, not of its key: whoever writes a row that refers to the region need not wait.
_LOCK = text("""
    SELECT region, epoch, version, state, tokens_issued,
           capacity_cpu_millis, capacity_memory_mib, capacity_gpus,
           used_cpu_millis, used_memory_mib, used_gpus
      FROM regional.regions WHERE region = :region FOR NO KEY UPDATE
""")

# A statement of its own: in the locking one all of it would be read before the wait for the lock.
_SURROUNDINGS = text("""
    SELECT clock_timestamp() AS now,
           (SELECT coalesce(jsonb_agg(to_jsonb(b)), '[]')
              FROM regional.recovery_budgets AS b WHERE b.region = :region) AS budgets,
           (SELECT coalesce(jsonb_object_agg(p.revision, p.state), '{}')
              FROM regional.policy_states AS p WHERE p.region = :region) AS policies
""")

_KEY = """tenant text, workload text, generation bigint, slot integer, attempt integer, step text,
           cause text, ordinal integer"""

# LIMIT keeps each a look-up by index: the planner has no idea how few keys a batch has.
_RECALL = text(f"""
    SELECT sent.place, recorded.payload_sha256, recorded.outcome
      FROM jsonb_to_recordset(CAST(:keys AS jsonb)) AS sent(place integer, {_KEY})
     CROSS JOIN LATERAL (
           SELECT i.payload_sha256, i.outcome FROM regional.intents AS i
            WHERE i.region = :region AND i.tenant = sent.tenant AND i.workload = sent.workload
              AND i.generation = sent.generation AND i.slot = sent.slot
              AND i.attempt = sent.attempt AND i.step = sent.step AND i.cause = sent.cause
              AND i.ordinal = sent.ordinal LIMIT 1) AS recorded
""")


async def _lock(
    connection: AsyncConnection, region: RegionId, now: datetime | None
) -> Ledger | None:
    row = (await connection.execute(_LOCK, {"region": str(region)})).one_or_none()
    if row is None:
        return None
    around = (await connection.execute(_SURROUNDINGS, {"region": str(region)})).one()
    assert now is None or now.tzinfo is not None, "times are aware"
    return Ledger(
        region=row.region,
        epoch=row.epoch,
        version=row.version,
        state=RegionState(row.state),
        tokens_issued=row.tokens_issued,
        capacity=(row.capacity_cpu_millis, row.capacity_memory_mib, row.capacity_gpus),
        used=(row.used_cpu_millis, row.used_memory_mib, row.used_gpus),
        now=around.now if now is None else now,
        budgets={entry["budget"]: _budget(entry) for entry in around.budgets},
        policies={int(number): PolicyState(state) for number, state in around.policies.items()},
    )


def _budget(entry: dict[str, Any]) -> BudgetEntry:
    return BudgetEntry(
        amount=(entry["cpu_millis"], entry["memory_mib"], entry["gpus"]),
        used=(entry["used_cpu_millis"], entry["used_memory_mib"], entry["used_gpus"]),
        expires_at=datetime.fromisoformat(entry["expires_at"]),
        incident=entry["incident"],
    )


async def _recall(
    connection: AsyncConnection, ledger: Ledger, intents: Sequence[AnyIntent]
) -> tuple[dict[IntentKey, tuple[bytes, Granted | Refused]], list[AnyIntent]]:
    """The outcomes recorded for these keys, and the first intent of every key that has none."""
    keys = [{"place": place, **i.key._asdict()} for place, i in enumerate(intents)]
    sent = {"region": ledger.region, "keys": json.dumps(keys)}
    outcomes: dict[IntentKey, tuple[bytes, Granted | Refused]] = {}
    for row in await connection.execute(_RECALL, sent):
        key = intents[int(row.place)].key
        outcomes[key] = (bytes(row.payload_sha256), OUTCOME.validate_python(row.outcome))
    fresh = {intent.key: intent for intent in reversed(intents) if intent.key not in outcomes}
    return outcomes, list(reversed(fresh.values()))


# ── read what the batch touches ─────────────────────────────────────────────────────────────────

_CLAIMS = text("""
    SELECT r.token, r.tenant, r.workload, r.generation, r.slot, r.attempt, r.node,
           r.cpu_millis, r.memory_mib, r.gpus, r.budget, r.policy_revision, r.state, r.expires_at,
           b.state AS binding_state, b.stop_requested_at IS NOT NULL AS stop_requested,
           o.state AS observed, l.epoch AS lease_epoch, l.expires_at AS lease_expires_at
      FROM regional.reservations AS r
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
    SELECT n.node, n.zone, n.dedicated_to, n.labels, n.state, n.cordon_reason,
           l.epoch AS lease_epoch, l.expires_at AS lease_expires_at,
           n.capacity_cpu_millis, n.capacity_memory_mib, n.capacity_gpus,
           n.used_cpu_millis, n.used_memory_mib, n.used_gpus
      FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.region = :region AND n.node = ANY(:nodes)
""")

_FREE_DEVICES = text("""
    SELECT d.node, d.device
      FROM regional.devices AS d LEFT JOIN regional.device_holds AS h USING (region, node, device)
     WHERE d.region = :region AND d.node = ANY(:nodes) AND d.healthy AND h.token IS NULL
     ORDER BY d.node, d.device
""")

_GRANTS = text("""
    SELECT tenant, granted_cpu_millis, granted_memory_mib, granted_gpus,
           used_cpu_millis, used_memory_mib, used_gpus
      FROM regional.grants WHERE region = :region AND tenant = ANY(:tenants)
""")

# Every claim on a wanted slot counts, in whichever region of this database it stands. LIMIT keeps
# each a look-up by index: the planner has no idea how few slots a batch wants.
_SLOTS = text("""
    SELECT wanted.tenant, wanted.workload, wanted.slot, claim.token
      FROM jsonb_to_recordset(CAST(:slots AS jsonb))
           AS wanted(tenant text, workload text, slot integer)
     CROSS JOIN LATERAL (
           SELECT FROM regional.slots AS s
            WHERE s.tenant = wanted.tenant AND s.workload = wanted.workload
              AND s.slot = wanted.slot AND s.region = :region LIMIT 1) AS owned
      LEFT JOIN LATERAL (
           SELECT r.token FROM regional.reservations AS r
            WHERE r.tenant = wanted.tenant AND r.workload = wanted.workload
              AND r.slot = wanted.slot AND r.freed_version IS NULL LIMIT 1) AS claim ON true
""")


async def _read(connection: AsyncConnection, ledger: Ledger, intents: Sequence[AnyIntent]) -> None:
    """Fills the ledger. Nothing here needs a lock of its own: the region's row covers it.

    Leases and observations are written without that lock. What is seen of them here was true at
    this moment, which is all that placing needs; releasing from a lost node needs the lease to stay
    lapsed, so those leases are locked first.
    """
    if not intents:
        return
    of = {"region": ledger.region}
    tokens = [intent.token for intent in intents if not isinstance(intent, Reserve)]
    lost = [intent.token for intent in intents if _says_lost(intent)]
    if lost:
        await connection.execute(_HOLD_LEASES, {**of, "tokens": lost})
    if tokens:
        await _read_claims(connection, ledger, tokens)
    reserves = [intent for intent in intents if isinstance(intent, Reserve)]
    if reserves:
        await _read_candidates(connection, ledger, reserves)


def _says_lost(intent: AnyIntent) -> TypeGuard[Release]:
    return isinstance(intent, Release) and intent.cause is ReleaseCause.NODE_LOST


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
            amounts=(row.cpu_millis, row.memory_mib, row.gpus),
            budget=row.budget,
            policy_revision=row.policy_revision,
            state=row.state,
            expires_at=row.expires_at,
            binding_state=row.binding_state,
            stop_requested=bool(row.stop_requested),
            observed=row.observed,
            lease_epoch=row.lease_epoch,
            lease_expires_at=row.lease_expires_at,
        )


async def _read_candidates(
    connection: AsyncConnection, ledger: Ledger, reserves: Sequence[Reserve]
) -> None:
    of = {"region": ledger.region}
    nodes = sorted({str(intent.node) for intent in reserves})
    for row in await connection.execute(_NODES, {**of, "nodes": nodes}):
        ledger.nodes[row.node] = NodeEntry(
            node=row.node,
            zone=row.zone,
            dedicated_to=row.dedicated_to,
            labels=row.labels,
            state=row.state,
            cordon_reason=row.cordon_reason,
            lease_epoch=row.lease_epoch,
            lease_expires_at=row.lease_expires_at,
            capacity=(row.capacity_cpu_millis, row.capacity_memory_mib, row.capacity_gpus),
            used=(row.used_cpu_millis, row.used_memory_mib, row.used_gpus),
        )
    with_gpus = sorted({str(intent.node) for intent in reserves if intent.resources.gpus})
    if with_gpus:
        for row in await connection.execute(_FREE_DEVICES, {**of, "nodes": with_gpus}):
            ledger.nodes[row.node].free_devices.append(row.device)
    tenants = sorted({str(intent.tenant) for intent in reserves})
    for row in await connection.execute(_GRANTS, {**of, "tenants": tenants}):
        ledger.grants[row.tenant] = GrantEntry(
            granted=(row.granted_cpu_millis, row.granted_memory_mib, row.granted_gpus),
            used=(row.used_cpu_millis, row.used_memory_mib, row.used_gpus),
        )
    wanted = [{"tenant": i.tenant, "workload": i.workload, "slot": i.slot} for i in reserves]
    for row in await connection.execute(_SLOTS, {**of, "slots": json.dumps(wanted)}):
        slot = (row.tenant, row.workload, row.slot)
        ledger.owned_slots.add(slot)
        if row.token is not None:
            ledger.slot_claims[slot] = row.token


# ── write set by set ────────────────────────────────────────────────────────────────────────────

_TAKEN = """FROM jsonb_to_recordset(CAST(:rows AS jsonb))
         AS taken(token bigint, actor text, evidence text)"""

# In this order: a token's steps follow each other, and what is freed is free before it is claimed.
# Triggers follow each claim into the node, grant, budget, device and region, and record it.
_WRITES = {
    "bind": [
        text(f"""
            UPDATE regional.reservations AS r
               SET state = 'bound', ended_at = :now, changed_version = :version,
                   actor = taken.actor, evidence = taken.evidence
              {_TAKEN} WHERE r.region = :region AND r.token = taken.token
        """),
        text(f"""
            INSERT INTO regional.bindings
                   (region, token, bound_at, changed_version, actor, evidence)
            SELECT :region, token, :now, :version, actor, evidence {_TAKEN}
        """),
    ],
    "start": [
        text(f"""
            UPDATE regional.bindings AS b
               SET state = 'starting', started_at = :now, changed_version = :version,
                   actor = taken.actor, evidence = taken.evidence
              {_TAKEN} WHERE b.region = :region AND b.token = taken.token
        """)
    ],
    "evict": [
        text(f"""
            UPDATE regional.bindings AS b
               SET stop_requested_at = :now, stop_reason = taken.evidence,
                   changed_version = :version, actor = taken.actor, evidence = taken.evidence
              {_TAKEN} WHERE b.region = :region AND b.token = taken.token
        """)
    ],
    "release_bound": [
        text(f"""
            UPDATE regional.bindings AS b
               SET state = 'released', released_at = :now, changed_version = :version,
                   actor = taken.actor, evidence = taken.evidence
              {_TAKEN} WHERE b.region = :region AND b.token = taken.token
        """)
    ],
    "release_held": [
        text(f"""
            UPDATE regional.reservations AS r
               SET state = 'released', ended_at = :now, changed_version = :version,
                   freed_version = :version, actor = taken.actor, evidence = taken.evidence
              {_TAKEN} WHERE r.region = :region AND r.token = taken.token
        """)
    ],
    "expire": [
        text(f"""
            UPDATE regional.reservations AS r
               SET state = 'expired', ended_at = :now, changed_version = :version,
                   freed_version = :version, actor = taken.actor, evidence = taken.evidence
              {_TAKEN} WHERE r.region = :region AND r.token = taken.token
        """)
    ],
    "reserve": [
        text("""
            INSERT INTO regional.reservations
                   (region, token, tenant, workload, generation, slot, attempt, node, cpu_millis,
                    memory_mib, gpus, devices, budget, requirements, priority, policy_revision,
                    epoch, reserved_at, expires_at, created_version, changed_version, actor,
                    evidence)
            SELECT :region, token, tenant, workload, generation, slot, attempt, node, cpu_millis,
                   memory_mib, gpus, devices, budget, requirements, priority, policy_revision,
                   :epoch, :now, expires_at, :version, :version, actor, evidence
              FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS taken(
                   token bigint, tenant text, workload text, generation bigint, slot integer,
                   attempt integer, node text, cpu_millis bigint, memory_mib bigint, gpus bigint,
                   devices text[], budget text, requirements jsonb, priority integer,
                   policy_revision integer,
                   expires_at timestamptz, actor text, evidence text)
        """)
    ],
}  # fmt: skip

_RECORDED = f"""
    INSERT INTO regional.intents
           (region, tenant, workload, generation, slot, attempt, step, cause, ordinal,
            payload_sha256, outcome, version, recorded_at)
    SELECT :region, tenant, workload, generation, slot, attempt, step, cause, ordinal,
           decode(payload_sha256, 'hex'), outcome, :version, :now
      FROM jsonb_to_recordset(CAST(:recorded AS jsonb)) AS recorded(
           {_KEY}, payload_sha256 text, outcome jsonb)
"""

_RECORD = text(_RECORDED)

# First of all writes: a reservation may only carry a token that its region has issued.
_ADVANCE = text(f"""
    WITH recorded AS ({_RECORDED})
    UPDATE regional.regions SET version = :version, tokens_issued = :tokens_issued
     WHERE region = :region
""")


async def _write(
    connection: AsyncConnection, ledger: Ledger, recorded: list[dict[str, Any]]
) -> None:
    version = ledger.next_version if ledger.writes else ledger.version
    common = {
        "region": ledger.region,
        "epoch": ledger.epoch,
        "version": version,
        "now": ledger.now,
    }
    outcomes = {**common, "recorded": json.dumps(recorded)}
    if ledger.writes:
        await connection.execute(_ADVANCE, {**outcomes, "tokens_issued": ledger.tokens_issued})
    elif recorded:
        await connection.execute(_RECORD, outcomes)
    for kind, statements in _WRITES.items():
        rows = ledger.writes.get(kind)
        if rows:
            for statement in statements:
                await connection.execute(statement, {**common, "rows": json.dumps(rows)})

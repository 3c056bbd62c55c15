"""What a batch writes: outcomes, recalled when an intent is sent again, and its steps as sets."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from durable.authority.commit.ledger import Ledger
from durable.authority.db.engine import AsyncConnection
from durable.model.placement.intents import OUTCOME, AnyIntent, Granted, IntentKey, Refused

# By key: the hash of the payload that was recorded, and its outcome.
Recorded = dict[IntentKey, tuple[bytes, Granted | Refused]]

# ── outcomes ────────────────────────────────────────────────────────────────────────────────────

_KEY = """tenant text, workload text, generation bigint, slot integer, attempt integer, step text,
           cause text, ordinal integer"""

# LIMIT keeps each a look-up by index: the planner cannot know how few keys a batch has.
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
    UPDATE regional.regions
       SET version = :version, tokens_issued = :tokens_issued,
           clock_seen_at = CASE WHEN clock_seen_at < :now THEN :now ELSE clock_seen_at END
     WHERE region = :region
""")


async def recall_outcomes(
    connection: AsyncConnection, ledger: Ledger, intents: Sequence[AnyIntent]
) -> Recorded:
    """The outcomes that were recorded for the keys of these intents."""
    keys = [{"place": place, **i.key._asdict()} for place, i in enumerate(intents)]
    sent = {"region": ledger.region, "keys": json.dumps(keys)}
    recorded: Recorded = {}
    for row in await connection.execute(_RECALL, sent):
        key = intents[int(row.place)].key
        outcome = OUTCOME.validate_python(row.outcome, extra="ignore")
        recorded[key] = (bytes(row.payload_sha256), outcome)
    return recorded


def outcome_row(intent: AnyIntent, outcome: Granted | Refused) -> dict[str, Any]:
    """An outcome as `write_ledger` records it."""
    return {
        **intent.key._asdict(),
        "payload_sha256": intent.payload_sha256.hex(),
        "outcome": outcome.model_dump(mode="json"),
    }


# ── steps ───────────────────────────────────────────────────────────────────────────────────────

_STEPS = """FROM jsonb_to_recordset(CAST(:rows AS jsonb))
         AS step(token bigint, actor text, evidence text)"""

# In this order: a token's steps follow each other, and capacity is freed before it is claimed.
# Triggers carry each claim into its node, grant, budget, devices and region, and record it.
_WRITES = {
    "bind": [
        text(f"""
            UPDATE regional.reservations AS r
               SET state = 'bound', ended_at = :now, changed_version = :version,
                   actor = step.actor, evidence = step.evidence
              {_STEPS} WHERE r.region = :region AND r.token = step.token
        """),
        text(f"""
            INSERT INTO regional.bindings
                   (region, token, bound_at, changed_version, actor, evidence)
            SELECT :region, token, :now, :version, actor, evidence {_STEPS}
        """),
    ],
    "start": [
        text(f"""
            UPDATE regional.bindings AS b
               SET state = 'starting', started_at = :now, changed_version = :version,
                   actor = step.actor, evidence = step.evidence
              {_STEPS} WHERE b.region = :region AND b.token = step.token
        """)
    ],
    "evict": [
        text(f"""
            UPDATE regional.bindings AS b
               SET stop_requested_at = :now, stop_reason = step.evidence,
                   changed_version = :version, actor = step.actor, evidence = step.evidence
              {_STEPS} WHERE b.region = :region AND b.token = step.token
        """)
    ],
    "release_bound": [
        text(f"""
            UPDATE regional.bindings AS b
               SET state = 'released', released_at = :now, changed_version = :version,
                   actor = step.actor, evidence = step.evidence
              {_STEPS} WHERE b.region = :region AND b.token = step.token
        """)
    ],
    "release_held": [
        text(f"""
            UPDATE regional.reservations AS r
               SET state = 'released', ended_at = :now, changed_version = :version,
                   freed_version = :version, actor = step.actor, evidence = step.evidence
              {_STEPS} WHERE r.region = :region AND r.token = step.token
        """)
    ],
    "expire": [
        text(f"""
            UPDATE regional.reservations AS r
               SET state = 'expired', ended_at = :now, changed_version = :version,
                   freed_version = :version, actor = step.actor, evidence = step.evidence
              {_STEPS} WHERE r.region = :region AND r.token = step.token
        """)
    ],
    "reserve": [
        text("""
            INSERT INTO regional.reservations
                   (region, token, tenant, workload, generation, slot, attempt, node, cpu_millis,
                    memory_mib, gpus, devices, budget, emergency, requirements, priority,
                    policy_revision, epoch, reserved_at, expires_at, created_version,
                    changed_version, actor, evidence)
            SELECT :region, token, tenant, workload, generation, slot, attempt, node, cpu_millis,
                   memory_mib, gpus, devices, budget, emergency, requirements, priority,
                   policy_revision, :epoch, :now, expires_at, :version, :version, actor, evidence
              FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS step(
                   token bigint, tenant text, workload text, generation bigint, slot integer,
                   attempt integer, node text, cpu_millis bigint, memory_mib bigint, gpus bigint,
                   devices text[], budget text, emergency text, requirements jsonb,
                   priority integer, policy_revision integer,
                   expires_at timestamptz, actor text, evidence text)
        """)
    ],
}  # fmt: skip


async def write_ledger(
    connection: AsyncConnection, ledger: Ledger, outcomes: Sequence[dict[str, Any]]
) -> None:
    """Writes the outcomes and every step that the batch's intents have taken on the ledger."""
    common = {
        "region": ledger.region,
        "epoch": ledger.epoch,
        "version": ledger.next_version if ledger.writes else ledger.version,
        "now": ledger.now,
    }
    recorded = {**common, "recorded": json.dumps(outcomes)}
    if ledger.writes:
        await connection.execute(_ADVANCE, {**recorded, "tokens_issued": ledger.tokens_issued})
    elif outcomes:
        await connection.execute(_RECORD, recorded)
    for kind, statements in _WRITES.items():
        rows = ledger.writes.get(kind)
        if rows:
            for statement in statements:
                await connection.execute(statement, {**common, "rows": json.dumps(rows)})

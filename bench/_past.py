"""A long past, written straight into the tables: what a region leaves behind in months of work.

Every row is as the commit would have left it, but no trigger runs and no reference is checked, so
that a million take a minute. A tenth of it is the past of one workload that still runs.
"""

import psycopg

# Past reservations for each workload that is over, and how many of ten belong to a living one.
SLOTS_PER_WORKLOAD = 100

_CLAIMS = """
    WITH past AS (
        SELECT number, number AS token, %(version)s + number - %(first)s AS version,
               CASE WHEN number %% 10 = 0 THEN %(living)s
                    ELSE 'past-' || number / %(slots)s END AS workload,
               number %% %(slots)s AS slot, 1 + number / %(slots)s AS attempt,
               timestamptz '2025-01-01' + number * interval '1 second' AS at
          FROM generate_series(%(first)s + 1, %(first)s + %(count)s) AS number
    )
"""

_STATEMENTS = (
    """
    INSERT INTO regional.reservations
           (region, token, tenant, workload, generation, slot, attempt, node, cpu_millis,
            memory_mib, priority, policy_revision, epoch, state, reserved_at, expires_at, ended_at,
            created_version, changed_version, freed_version, actor, evidence)
    SELECT %(region)s, token, %(tenant)s, workload, 1, slot, attempt,
           nodes[1 + number %% cardinality(nodes)], 500, 512, 100, 1, 1, 'bound', at,
           at + interval '30 s', at, version, version, version, 'controller:placement',
           'release the slot'
      FROM past, (SELECT array_agg(node) AS nodes FROM regional.nodes
                   WHERE region = %(region)s) AS fleet
    """,
    """
    INSERT INTO regional.bindings
           (region, token, state, bound_at, started_at, stop_requested_at, stop_reason, released_at,
            changed_version, actor, evidence)
    SELECT %(region)s, token, 'released', at, at, at, 'scaled down', at, version,
           'controller:placement', 'release the slot'
      FROM past
    """,
    """
    INSERT INTO regional.observations
           (region, token, session, sequence, state, evidence, observer, received_at, written_in)
    SELECT %(region)s, token, 1, 9, 'stopped', 'exit code 0', 'agent', at,
           CAST(CAST(1 + number %% 600 AS text) AS xid8)
      FROM past
    """,
    """
    INSERT INTO regional.intents
           (region, tenant, workload, generation, slot, attempt, step, cause, ordinal,
            payload_sha256, outcome, version, recorded_at)
    SELECT %(region)s, %(tenant)s, workload, 1, slot, attempt, step,
           CASE step WHEN 'release' THEN 'stopped' ELSE '' END, 1, '\\x00',
           jsonb_build_object('kind', 'granted', 'token', token, 'node', 'n1', 'version', version),
           version, at
      FROM past, unnest(ARRAY['reserve', 'release']) AS step
    """,
    """
    INSERT INTO regional.transitions
           (region, version, kind, token, from_state, to_state, actor, evidence, database_role, at)
    SELECT %(region)s, version, 'binding', token, 'bound', 'starting', 'controller:placement',
           'start', 'durable_commit', at
      FROM past
    """,
    """
    INSERT INTO regional.decisions
           (region, tenant, workload, generation, attempt, policy_revision, cache_version, evidence,
            decided_at)
    SELECT %(region)s, %(tenant)s, workload, 1,
           CASE WHEN number %% 10 = 0 THEN number / 10 ELSE 1 + number %% %(slots)s END,
           1, version, '{}', at
      FROM past
    """,
    """
    INSERT INTO audit.events
           (chain, sequence, at, actor, database_role, action, object, after, hash)
    SELECT %(region)s, (SELECT coalesce(max(sequence), 0) FROM audit.events
                         WHERE chain = %(region)s) + number - %(first)s, at, 'alice',
           'durable_placement', 'accept message hold', 'placement/past',
           jsonb_build_object('message_key', token), '\\x00'
      FROM past
    """,
)

# Of workloads, and of what is written once for each of them.
_WORKLOADS = """
    WITH past AS (
        SELECT %(first)s + number AS number, 'past-' || %(first)s + number AS workload,
               timestamptz '2025-01-01' + number * interval '1 second' AS at
          FROM generate_series(1, greatest(1, %(count)s / 10)) AS number
    )
"""

_WORKLOAD_STATEMENTS = (
    """
    INSERT INTO regional.requests
           (region, tenant, workload, generation, slots, priority, state, enqueued_at, deadline,
            spec, written_in)
    SELECT %(region)s, %(tenant)s, workload, 1, '{}', 100, 'withdrawn', at, at + interval '1 hour',
           '{}', CAST(CAST(1 + number %% 600 AS text) AS xid8)
      FROM past
    """,
    """
    INSERT INTO regional.shares
           (region, tenant, workload, generation, revision, slots, spec, closed_at)
    SELECT %(region)s, %(tenant)s, workload, 1, 1, '{}', '{}', at FROM past
    """,
    """
    INSERT INTO regional.slots (tenant, workload, slot, region, number)
    SELECT %(tenant)s, workload, 0, NULL, 1 FROM past
    """,
    """
    INSERT INTO global.slots (tenant, workload, slot, region, number, transfer, since)
    SELECT %(tenant)s, workload, 0, NULL, 1, 'past', at FROM past
    """,
    """
    INSERT INTO global.workloads (tenant, workload, generation, spec, deleted_at)
    SELECT %(tenant)s, workload, 1, '{}', at FROM past
    """,
    """
    INSERT INTO global.operator_requests
           (target, request, message, digest, answer, actor, is_signed, at, kept_until)
    SELECT 'workload/' || %(tenant)s || '/' || workload, 'apply', 'apply', '', '{}', 'alice', false,
           at, clock_timestamp() + interval '31 days'
      FROM past
    """,
    """
    INSERT INTO global.grant_transfers
           (transfer, tenant, to_region, cpu_millis, state, actor, requested_at, settled_at)
    SELECT 'past/' || number, %(tenant)s, %(region)s, 1, 'settled', 'controller:quota', at, at
      FROM past
    """,
    """
    INSERT INTO regional.grant_changes (region, transfer, tenant, cpu_millis, version, at)
    SELECT %(region)s, 'past/' || number, %(tenant)s, 1, number, at FROM past
    """,
    """
    INSERT INTO regional.node_history (region, node, version, attributes)
    SELECT %(region)s, node, %(version)s + number, '{}'
      FROM (SELECT min(node) AS node FROM regional.nodes WHERE region = %(region)s) AS n,
           generate_series(1, greatest(1, %(count)s / 10)) AS number
    """,
)


def add_past(url: str, count: int, *, region: str, tenant: str, living: str) -> None:
    """Adds so many reservations that are over, with all that they left, and analyzes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        row = connection.execute(
            "SELECT tokens_issued, version FROM regional.regions WHERE region = %s", [region]
        ).fetchone()
        assert row is not None, f"there is no region {region}"
        values = {
            "count": count, "first": row[0], "version": row[1], "region": region,
            "tenant": tenant, "living": living, "slots": SLOTS_PER_WORKLOAD,
        }  # fmt: skip
        if count:
            for statement in _STATEMENTS:
                connection.execute((_CLAIMS + statement).encode(), values)
            for statement in _WORKLOAD_STATEMENTS:
                connection.execute((_WORKLOADS + statement).encode(), values)
            connection.execute(
                "UPDATE regional.regions SET tokens_issued = tokens_issued + %(count)s,"
                " version = version + %(count)s WHERE region = %(region)s",
                values,
            )
            connection.execute(
                "INSERT INTO audit.heads SELECT chain, max(sequence), '\\x00' FROM audit.events"
                " WHERE chain = %(region)s GROUP BY chain"
                " ON CONFLICT (chain) DO UPDATE SET sequence = excluded.sequence",
                values,
            )
        connection.execute("VACUUM ANALYZE")

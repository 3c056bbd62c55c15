"""What must be true of overrides: agreed to, in the audit, obeyed while in force, and not after.

What was in force at a commit is exact, whatever the clocks did: each change of a region's copy and
each commit has a version of its own under the region's lock, and the copy's end is compared with
the moment that the commit itself went by. The copy's row knows only its latest end, so its earlier
ones come from the region's audit, which is written in the same transaction.
"""

# One row for each state of a copy: it is obeyed by the commits of the versions in between, for as
# long as their own clock is before `expires_at`.
_COPIES = """
    SELECT o.region, o.override, o.scope, o.effects, a.since_version, a.until_version, a.expires_at
      FROM regional.overrides AS o
      JOIN (SELECT chain, object, action, (after ->> 'version')::bigint AS since_version,
                   (after ->> 'expires_at')::timestamptz AS expires_at,
                   lead((after ->> 'version')::bigint)
                       OVER (PARTITION BY chain, object ORDER BY sequence) AS until_version
              FROM audit.events
             WHERE object LIKE 'override/%'
               AND action IN ('put override in force', 'extend override', 'settle override',
                              'end override')) AS a
        ON a.chain = o.region AND a.object = 'override/' || o.override
     WHERE a.action <> 'end override'
"""

# What a commit granted to a claim until it was started, and the node as that commit saw it.
_STEPS = """
    SELECT t.region, t.token, t.version, t.at, t.to_state, r.tenant, r.workload, r.emergency,
           r.budget, r.node, n.attributes ->> 'zone' AS zone,
           n.attributes ->> 'cordon_reason' IS NOT NULL AS is_cordoned
      FROM regional.transitions AS t
      JOIN regional.reservations AS r USING (region, token)
     CROSS JOIN LATERAL (
           SELECT h.attributes FROM regional.node_history AS h
            WHERE h.region = r.region AND h.node = r.node AND h.version <= t.version
            ORDER BY h.version DESC LIMIT 1) AS n
     WHERE (t.kind, t.to_state) IN (
           ('reservation', 'held'), ('reservation', 'bound'), ('binding', 'starting'))
"""

_IN_FORCE = """c.region = s.region AND s.version > c.since_version
               AND s.version < coalesce(c.until_version, s.version + 1) AND s.at < c.expires_at"""

_CONCERNS = f"""{_IN_FORCE}
               AND coalesce(c.scope ->> 'tenant', s.tenant) = s.tenant
               AND coalesce(c.scope ->> 'workload', s.workload) = s.workload"""

_KEEPS_OFF = """(c.effects -> 'avoid_zones' ? s.zone OR c.effects -> 'avoid_nodes' ? s.node
               OR c.effects ->> 'only_zone' <> s.zone OR c.effects ->> 'only_node' <> s.node)"""

# The gates that were closed to each step, and of those the ones that no override opened. Whether
# the policy of that moment allowed the gate to be overridden is not in the rows any more, so a gate
# counts as open if an override in force names it.
_PAST_A_GATE = f"""
      WITH copies AS MATERIALIZED ({_COPIES}), steps AS NOT MATERIALIZED ({_STEPS}), closed AS (
           SELECT s.*, 'cordon' AS gate FROM steps AS s WHERE s.is_cordoned
            UNION
           SELECT s.*, 'avoided' FROM steps AS s JOIN copies AS c ON {_CONCERNS} AND {_KEEPS_OFF}
            UNION
           SELECT s.*, 'hold' FROM steps AS s JOIN copies AS c
               ON {_CONCERNS} AND (c.effects ->> 'holds')::boolean
            WHERE s.to_state IN ('held', 'bound'))
    SELECT s.region, s.token, s.to_state, s.version, s.gate, s.node FROM closed AS s
     WHERE NOT EXISTS (SELECT FROM copies AS c
                        WHERE {_CONCERNS} AND c.effects -> 'skips' ? s.gate)
"""


# What a commit reserved on a grant, and what left one, where the tenant had an emergency quota.
# What runs on one that is over counts: it is the same sum that `regional.free_grants` takes.
_BEYOND_THE_GRANT = f"""
      WITH copies AS MATERIALIZED ({_COPIES}), drawn AS (
           SELECT DISTINCT region, tenant FROM regional.emergency_draws), steps AS (
           SELECT t.region, r.tenant, t.version, t.at, max(r.cpu_millis) AS cpu,
                  max(r.memory_mib) AS memory, max(r.gpus) AS gpus
             FROM regional.transitions AS t
             JOIN regional.reservations AS r USING (region, token)
             JOIN drawn USING (region, tenant)
            WHERE t.kind = 'reservation' AND t.to_state = 'held' AND r.emergency IS NULL
            GROUP BY t.region, r.tenant, t.version, t.at
            UNION ALL
           SELECT region, tenant, version, at, -cpu_millis, -memory_mib, -gpus
             FROM regional.grant_changes JOIN drawn USING (region, tenant)
            WHERE least(cpu_millis, memory_mib, gpus) < 0)
    SELECT s.region, s.tenant, s.version, used.*, given.* FROM steps AS s
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(r.cpu_millis), 0) AS cpu_used,
                  coalesce(sum(r.memory_mib), 0) AS memory_used,
                  coalesce(sum(r.gpus), 0) AS gpus_used
             FROM regional.reservations AS r
            WHERE r.region = s.region AND r.tenant = s.tenant AND r.created_version <= s.version
              AND (r.freed_version IS NULL OR r.freed_version > s.version)
              AND NOT EXISTS (SELECT FROM copies AS c
                               WHERE c.override = r.emergency AND {_IN_FORCE})) AS used
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(g.cpu_millis), 0) AS cpu_given,
                  coalesce(sum(g.memory_mib), 0) AS memory_given,
                  coalesce(sum(g.gpus), 0) AS gpus_given
             FROM regional.grant_changes AS g
            WHERE g.region = s.region AND g.tenant = s.tenant AND g.version <= s.version) AS given
     WHERE (s.cpu > 0 AND cpu_used > cpu_given) OR (s.memory > 0 AND memory_used > memory_given)
        OR (s.gpus > 0 AND gpus_used > gpus_given)
"""


def _only_in_force(what: str, drawn_on: str) -> str:
    """Steps of claims on an override's draw or budget at a commit that it was not in force at."""
    return f"""
        SELECT s.region, s.token, s.to_state, s.version FROM ({_STEPS}) AS s
         WHERE {what}
           AND NOT EXISTS (SELECT FROM ({_COPIES}) AS c WHERE {_IN_FORCE} AND {drawn_on})
    """


OVERRIDE_INVARIANTS: dict[str, str] = {
    "S3: beside its grant a tenant gets and starts things only on a draw in force": _only_in_force(
        "s.emergency IS NOT NULL",
        "c.override = s.emergency AND c.scope ->> 'tenant' = s.tenant",
    ),
    "S3: what runs on an emergency quota that is over counts against the grant": _BEYOND_THE_GRANT,
    "S7: what an override keeps for recovery is drawn on only while it is in force": (
        _only_in_force(
            "s.budget LIKE 'override/%' AND s.to_state = 'held'",
            "'override/' || c.override = s.budget",
        )
    ),
    "S8: no cordon, avoidance or hold is passed unless an override opens it": _PAST_A_GATE,
    "S8: a region obeys no override past its time limit, nor one that was not agreed to": """
        SELECT r.region, r.override FROM regional.overrides AS r
          LEFT JOIN global.overrides AS g USING (override)
         WHERE (SELECT serves_global FROM regional.deployment)
           AND (g.override IS NULL OR g.activated_at IS NULL OR r.number > g.number
                OR r.expires_at > g.latest_expiry
                OR (g.needs_approval AND g.approver IS NULL))
    """,
    "S8: an override that has ended leaves nothing behind": """
        SELECT o.region, o.override FROM regional.overrides AS o
          LEFT JOIN regional.emergency_draws AS e USING (region, override)
          LEFT JOIN regional.recovery_budgets AS b
            ON b.region = o.region AND b.override = o.override
         WHERE o.ended_at IS NOT NULL
           AND (NOT e.has_ended OR b.expires_at > o.ended_at OR b.incident IS NOT NULL)
         UNION ALL
        SELECT o.region, o.override FROM regional.overrides AS o
          JOIN regional.replacements AS p
            ON p.region = o.region AND p.kind = 'override' AND p.cause = o.override
          JOIN regional.bindings AS b ON b.region = p.region AND b.token = p.token
         WHERE o.ended_at IS NOT NULL AND b.stop_requested_at IS NULL
    """,
    "S8: nothing is replaced for an override past its time": """
        SELECT p.region, p.token, array_agg(p.kind || '/' || p.cause)
          FROM regional.replacements AS p
          LEFT JOIN regional.overrides AS o
            ON o.region = p.region AND p.kind = 'override' AND o.override = p.cause
         WHERE p.begun_at IS NOT NULL
         GROUP BY p.region, p.token
        HAVING bool_and(coalesce(o.expires_at <= p.begun_at, false))
    """,
    "S8: every override and every copy of it is in the audit": """
        SELECT 'global' AS chain, g.override FROM global.overrides AS g
         WHERE NOT EXISTS (SELECT FROM audit.events AS a
                            WHERE a.chain = 'global' AND a.object = 'override/' || g.override
                              AND a.action = 'propose override')
            OR (g.activated_at IS NOT NULL
                AND NOT EXISTS (SELECT FROM audit.events AS a
                                 WHERE a.chain = 'global' AND a.object = 'override/' || g.override
                                   AND a.action = 'activate override'))
         UNION ALL
        SELECT r.region, r.override FROM regional.overrides AS r
         WHERE NOT EXISTS (SELECT FROM audit.events AS a
                            WHERE a.chain = r.region AND a.object = 'override/' || r.override
                              AND a.action IN ('put override in force', 'end override'))
    """,
}

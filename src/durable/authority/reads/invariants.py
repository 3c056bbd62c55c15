"""What must be true of an authority at every moment: one query per invariant, empty when it holds.

Property tests, simulation, chaos tests and `durable doctor` all use these queries. Each recomputes
from the claims themselves, so it does not rely on the counters that it checks.
"""

from dataclasses import dataclass
from itertools import chain

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import READER, Databases, transact
from durable.authority.db.engine import AsyncConnection, Engine
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.everywhere import UnreachableRegions, ask_databases
from durable.authority.db.roles import ROLES
from durable.authority.reads.across import compare_databases
from durable.authority.reads.override_invariants import OVERRIDE_INVARIANTS

MAX_SHOWN = 20


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold, and a row that shows it."""

    invariant: str
    row: str


_CLAIMED = """
    SELECT region, {by}, sum(cpu_millis) AS cpu, sum(memory_mib) AS memory, sum(gpus) AS gpus
      FROM regional.reservations WHERE freed_version IS NULL AND {only} GROUP BY region, {by}
"""


def _counter_is_the_sum(table: str, by: str, only: str = "true") -> str:
    claimed = _CLAIMED.format(by=by, only=only)
    return f"""
        SELECT t.region, t.{by}, t.used_cpu_millis, c.cpu, t.used_memory_mib, c.memory,
               t.used_gpus, c.gpus
          FROM {table} AS t LEFT JOIN ({claimed}) AS c USING (region, {by})
         WHERE (t.used_cpu_millis, t.used_memory_mib, t.used_gpus)
               <> (coalesce(c.cpu, 0), coalesce(c.memory, 0), coalesce(c.gpus, 0))
    """


def _writes_only_what_it_owns() -> str:
    """By the database's own account of privileges, against the table of who writes what."""
    owned = ", ".join(
        f"('{role.name}', '{table}', '{verb}')"
        for role in ROLES
        for table, verbs in role.writes.items()
        for verb in verbs
    )
    roles = ", ".join(f"'{role.name}'" for role in ROLES)
    return f"""
        SELECT r.rolname, t.name, v.verb
          FROM pg_roles AS r
         CROSS JOIN (SELECT c.oid, format('%s.%s', n.nspname, c.relname) AS name
                       FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                      WHERE n.nspname IN ('global', 'regional', 'audit')
                        AND c.relkind IN ('r', 'p') AND NOT c.relispartition) AS t
         CROSS JOIN (VALUES ('INSERT'), ('UPDATE'), ('DELETE')) AS v(verb)
         WHERE r.rolname IN ({roles})
           AND CASE v.verb WHEN 'DELETE' THEN has_table_privilege(r.oid, t.oid, v.verb)
                           ELSE has_any_column_privilege(r.oid, t.oid, v.verb) END
           AND (r.rolname, t.name, v.verb) NOT IN (VALUES {owned})
    """


AUDIT_INVARIANT = "the audit's chains hold"

# Nothing of this release could violate these.
NOT_APPLICABLE = {
    "S9: preemption respects protected capacity and disruption budgets": "nothing is preempted yet",
}

INVARIANTS: dict[str, str] = {
    "S1: a slot has at most one active claim, in all regions together": """
        SELECT tenant, workload, slot, array_agg(region || '/' || token)
          FROM regional.reservations WHERE freed_version IS NULL
         GROUP BY tenant, workload, slot HAVING count(*) > 1
    """,
    "S1: a claim is live only where its slot is owned": """
        SELECT r.region, r.token FROM regional.reservations AS r
          LEFT JOIN regional.slots AS s
            ON (s.region, s.tenant, s.workload, s.slot) = (r.region, r.tenant, r.workload, r.slot)
         WHERE r.freed_version IS NULL AND s.region IS NULL
    """,
    "S1: no region owns a slot against the global side": """
        SELECT s.tenant, s.workload, s.slot, s.region, g.region
          FROM regional.slots AS s JOIN global.slots AS g USING (tenant, workload, slot)
         WHERE s.region IS NOT NULL AND s.region IS DISTINCT FROM g.region
    """,
    "S2: a node's use is the sum of its claims": _counter_is_the_sum("regional.nodes", "node"),
    "S2: a node holds at most its capacity": """
        SELECT region, node FROM regional.nodes
         WHERE used_cpu_millis > capacity_cpu_millis OR used_memory_mib > capacity_memory_mib
            OR used_gpus > capacity_gpus
    """,
    "S2: the devices held are those of the claims": """
        SELECT region, node, device, h.token, c.token
          FROM regional.device_holds AS h
          FULL JOIN (SELECT region, node, unnest(devices) AS device, token
                       FROM regional.reservations WHERE freed_version IS NULL) AS c
         USING (region, node, device)
         WHERE h.token IS DISTINCT FROM c.token
    """,
    "S3: a grant's use is the sum of its claims": _counter_is_the_sum(
        "regional.grants", "tenant", "emergency IS NULL"
    ),
    "S3: an emergency draw's use is the sum of its claims, within it": """
        SELECT e.region, e.override FROM regional.emergency_draws AS e
          LEFT JOIN (SELECT region, emergency AS override, sum(cpu_millis) AS cpu,
                            sum(memory_mib) AS memory, sum(gpus) AS gpus
                       FROM regional.reservations
                      WHERE freed_version IS NULL AND emergency IS NOT NULL
                      GROUP BY region, emergency) AS c USING (region, override)
         WHERE (e.used_cpu_millis, e.used_memory_mib, e.used_gpus)
               <> (coalesce(c.cpu, 0), coalesce(c.memory, 0), coalesce(c.gpus, 0))
            OR c.cpu > e.cpu_millis OR c.memory > e.memory_mib OR c.gpus > e.gpus
    """,
    "S3: a region holds at most the grant it was given": """
        SELECT r.region, r.tenant FROM regional.grants AS r
          LEFT JOIN global.grants AS g USING (region, tenant)
         WHERE (SELECT serves_global FROM regional.deployment)
           AND (r.granted_cpu_millis > coalesce(g.granted_cpu_millis, 0)
                OR r.granted_memory_mib > coalesce(g.granted_memory_mib, 0)
                OR r.granted_gpus > coalesce(g.granted_gpus, 0))
    """,
    "S3: the grants of a tenant sum up within its hard quota": """
        SELECT q.tenant FROM global.quotas AS q
          LEFT JOIN (SELECT tenant, sum(granted_cpu_millis) AS cpu,
                            sum(granted_memory_mib) AS memory, sum(granted_gpus) AS gpus
                       FROM global.grants GROUP BY tenant) AS g USING (tenant)
         WHERE (q.granted_cpu_millis, q.granted_memory_mib, q.granted_gpus)
               <> (coalesce(g.cpu, 0), coalesce(g.memory, 0), coalesce(g.gpus, 0))
            OR g.cpu > q.hard_cpu_millis OR g.memory > q.hard_memory_mib OR g.gpus > q.hard_gpus
    """,
    "S4: work runs only where residency, tenancy and required labels allow": """
        SELECT r.region, r.token, r.node FROM regional.reservations AS r
          JOIN regional.nodes AS n USING (region, node)
         WHERE r.freed_version IS NULL
           AND NOT regional.may_run(
               r.tenant, r.requirements, r.region, n.zone, n.labels, n.dedicated_to)
    """,
    "S5: a controller's role may write only what the controller owns": _writes_only_what_it_owns(),
    "S6: a reservation is bound exactly when it has a binding": """
        SELECT region, token, r.state, b.state
          FROM regional.reservations AS r LEFT JOIN regional.bindings AS b USING (region, token)
         WHERE (r.state = 'bound') <> (b.token IS NOT NULL)
    """,
    "S6: a claim ends exactly when its reservation or binding does": """
        SELECT region, token, r.state, b.state, r.freed_version
          FROM regional.reservations AS r LEFT JOIN regional.bindings AS b USING (region, token)
         WHERE (r.freed_version IS NULL)
               <> (r.state = 'held'
                   OR (r.state = 'bound' AND coalesce(b.state, 'gone') <> 'released'))
    """,
    "S6: every reservation ends at most once": """
        SELECT region, token, count(*) FROM regional.transitions
         WHERE kind = 'reservation' AND to_state <> 'held'
         GROUP BY region, token HAVING count(*) > 1
    """,
    "S7: a budget's use is the sum of its claims, within it": f"""
        SELECT region, budget FROM regional.recovery_budgets
         WHERE used_cpu_millis > cpu_millis OR used_memory_mib > memory_mib OR used_gpus > gpus
         UNION ALL
        SELECT region, budget
          FROM ({_counter_is_the_sum("regional.recovery_budgets", "budget")}) AS wrong
    """,
    **OVERRIDE_INVARIANTS,
    "a region's use and capacity are the sums of its claims and nodes": """
        SELECT g.region FROM regional.regions AS g
          LEFT JOIN (SELECT region, sum(cpu_millis) AS cpu, sum(memory_mib) AS memory,
                            sum(gpus) AS gpus
                       FROM regional.reservations WHERE freed_version IS NULL
                      GROUP BY region) AS c USING (region)
          LEFT JOIN (SELECT region, sum(capacity_cpu_millis) AS cpu,
                            sum(capacity_memory_mib) AS memory, sum(capacity_gpus) AS gpus
                       FROM regional.nodes WHERE state = 'ready'
                      GROUP BY region) AS n USING (region)
         WHERE (g.used_cpu_millis, g.used_memory_mib, g.used_gpus)
               <> (coalesce(c.cpu, 0), coalesce(c.memory, 0), coalesce(c.gpus, 0))
            OR (g.capacity_cpu_millis, g.capacity_memory_mib, g.capacity_gpus)
               <> (coalesce(n.cpu, 0), coalesce(n.memory, 0), coalesce(n.gpus, 0))
    """,
    "every reservation was granted to exactly one intent": """
        SELECT region, token, granted.intents
          FROM regional.reservations
          FULL JOIN (SELECT region, (outcome ->> 'token')::bigint AS token, count(*) AS intents
                       FROM regional.intents
                      WHERE step = 'reserve' AND outcome ->> 'kind' = 'granted'
                      GROUP BY region, (outcome ->> 'token')::bigint) AS granted
         USING (region, token)
         WHERE granted.intents IS DISTINCT FROM 1 OR reserved_at IS NULL
    """,
    "versions and tokens stay behind their region's": """
        SELECT r.region, r.token FROM regional.reservations AS r
          JOIN regional.regions AS g USING (region)
         WHERE r.token > g.tokens_issued OR r.changed_version > g.version
    """,
    "the last recorded transition is the state": """
        SELECT region, token, r.state, last.to_state
          FROM regional.reservations AS r
          FULL JOIN (SELECT DISTINCT ON (region, token) region, token, to_state
                       FROM regional.transitions WHERE kind = 'reservation'
                      ORDER BY region, token, ordinal DESC) AS last
         USING (region, token)
         WHERE last.to_state IS DISTINCT FROM r.state
    """,
}

# Reads everything there is, so it may take longer than a controller's statement.
MAX_SECONDS = 600.0
_RAISE_TIMEOUT = text("SET LOCAL statement_timeout = '10min'")

# One statement, so that all of it is read at one moment and in one round trip.
_ALL = text(
    " UNION ALL ".join(
        f"(SELECT {number} AS invariant, CAST(found AS text) AS shown FROM ({query}) AS found"
        f" LIMIT {MAX_SHOWN})"
        for number, query in enumerate(INVARIANTS.values())
    )
)


async def violations(connection: AsyncConnection) -> list[Violation]:
    """Every invariant that does not hold, with up to MAX_SHOWN rows each."""
    await connection.execute(_RAISE_TIMEOUT)
    names = list(INVARIANTS)
    broken: list[tuple[int, str]] = [(row[0], row[1]) for row in await connection.execute(_ALL)]
    return [
        *(Violation(names[number], shown) for number, shown in broken),
        *(
            Violation(AUDIT_INVARIANT, report.sentence)
            for report in await audit.verify(connection)
            if report.broken_at is not None
        ),
    ]


async def check_invariants(databases: Databases) -> tuple[list[Violation], UnreachableRegions]:
    """The same for every database of an authority, and which regions could not be checked."""

    async def check(url: str) -> list[Violation]:
        return await transact(
            _in_transaction(databases.at(url, READER)),
            violations,
            doing="check the invariants",
            timeout_seconds=MAX_SECONDS,
        )

    found, missing = await ask_databases(databases, check)
    if len(databases.urls) > 1:
        across = await compare_databases(databases)
        found.append([Violation(invariant, shown) for invariant, shown in across])
    return list(chain.from_iterable(found)), missing


def _in_transaction(engine: Engine) -> Engine:
    """Reads are made without one, and a limit that is raised for one of them ends with it."""
    return engine.committing_each(False)


async def violations_everywhere(databases: Databases) -> list[Violation]:
    """The same, for callers who need every region to have been checked."""
    found, missing = await check_invariants(databases)
    for sentence in missing.values():
        raise AuthorityUnreachableError(sentence)
    return found

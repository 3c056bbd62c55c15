"""S5: only the owner of a state may change it, by the database's own account of its privileges."""

from itertools import product

import psycopg
import pytest

from durable.authority.db.roles import ROLES
from durable.authority.migrations import upgrade
from tests.conftest import Copies

# Who writes what, written down again from the state model so that two hands must agree.
# role -> "schema.table" -> verb -> columns; "*" means every column. Every role may read.
RESOURCES = ("cpu_millis", "memory_mib", "gpus")


def amounts(prefix: str = "") -> set[str]:
    return {prefix + resource for resource in RESOURCES}


OWNS: dict[str, dict[str, dict[str, set[str]]]] = {
    "durable_workload": {
        "global.workloads": {
            "INSERT": {"*"},
            "UPDATE": {"generation", "spec", "finalizers", "delete_requested_at", "status",
                       "observed_generation", "share", "revision", "generations",
                       "stable_generation", "rollout", "deleted_at", "admitted_at",
                       "deadline_missed_at", "listed_until", "incident"},
        },
        "global.generations": {
            "INSERT": {"*"}, "UPDATE": {"share", "outcome", "outcome_reason", "completed_at"},
            "DELETE": {"*"},
        },
        "global.operator_requests": {"INSERT": {"*"}},
        "global.slots": {
            "INSERT": {"*"}, "UPDATE": {"region", "number", "transfer", "since", "is_leaving"},
        },
        "regional.slots": {"INSERT": {"*"}, "UPDATE": {"region", "number"}},
        "regional.shares": {
            "INSERT": {"region", "tenant", "workload", "generation", "revision", "slots", "spec",
                       "release_reason", "at_once", "admitted_at", "due_at", "incident", "moved"},
            "UPDATE": {"revision", "slots", "spec", "release_reason", "at_once", "admitted_at",
                       "due_at", "incident", "moved"},
        },
        "regional.disruption_floors": {"INSERT": {"*"}, "UPDATE": {"revision", "must_serve"}},
        "regional.replacements": {"INSERT": {"*"}, "UPDATE": {"begun_at"}},
        "regional.regions": {"UPDATE": {"version"}},
    },
    "durable_placement": {
        "regional.shares": {"UPDATE": {"closed_at"}},
        "regional.requests": {
            "INSERT": {"*"},
            "UPDATE": {"slots", "priority", "state", "pending_code", "pending_parameters",
                       "attempts",
                       "enqueued_at", "deadline", "next_retry_at", "waiting", "completed",
                       "given_up", "ended_at", "held_back", "failures", "at_once",
                       "decided_version"},
            "DELETE": {"*"},
        },
    },
    "durable_commit": {
        "regional.regions": {"UPDATE": {"version", "tokens_issued", "clock_seen_at"}},
        "regional.reservations": {
            "INSERT": {"*"},
            "UPDATE": {"state", "ended_at", "changed_version", "freed_version", "actor",
                       "evidence"},
        },
        "regional.bindings": {
            "INSERT": {"*"},
            "UPDATE": {"state", "started_at", "stop_requested_at", "stop_reason", "released_at",
                       "changed_version", "actor", "evidence"},
        },
        "regional.intents": {"INSERT": {"*"}},
    },
    "durable_scheduler": {
        "regional.decisions": {"INSERT": {"*"}},
        "regional.decision_repeats": {
            "INSERT": {"*"}, "UPDATE": {"repeats", "cache_version", "repeated_at"},
        },
    },
    "durable_agent": {
        "regional.regions": {"UPDATE": {"version"}},
        "regional.nodes": {
            "INSERT": {"region", "node", "zone", "pool", "labels", "taints", "dedicated_to",
                       "changed_version", *amounts("capacity_")},
            "UPDATE": {"zone", "pool", "labels", "taints", "dedicated_to", "state",
                       "unhealthy_devices",
                       "changed_version", *amounts("capacity_")},
        },
        "regional.node_leases": {
            "INSERT": {"*"}, "UPDATE": {"session", "epoch", "host", "renewed_at", "expires_at"},
        },
        "regional.agent_locks": {
            "INSERT": {"*"}, "UPDATE": {"pid", "life_sign", "holder", "held_since"},
        },
        "regional.devices": {"INSERT": {"*"}, "DELETE": {"*"}},
        "regional.observations": {
            "INSERT": {"*"},
            "UPDATE": {
                "session", "sequence", "state", "evidence", "log_directory", "observer",
                "received_at", "exit_code",
            },
        },
    },
    "durable_operator": {
        "global.regions": {"INSERT": {"region"}},
        "regional.regions": {"INSERT": {"region"}, "UPDATE": {"version"}},
        "regional.zones": {"INSERT": {"*"}},
        "regional.nodes": {
            "UPDATE": {"cordon_reason", "cordoned_by", "cordoned_for", "changed_version"},
        },
    },
    "durable_drain": {
        "regional.regions": {"UPDATE": {"version"}},
        "regional.operator_requests": {"INSERT": {"*"}},
        "regional.drains": {"INSERT": {"*"}, "UPDATE": {"state", "ended_at", "outcome"}},
        "regional.nodes": {
            "UPDATE": {"cordon_reason", "cordoned_by", "cordoned_for", "changed_version"},
        },
        "regional.replacements": {"INSERT": {"*"}, "DELETE": {"*"}},
    },
    "durable_region": {
        "global.regions": {
            "UPDATE": {
                "lease_number", "known_number", "lease_holder", "lease_expires_at",
                "lease_seconds", "watched_at",
            },
        },
        "regional.regions": {
            "UPDATE": {
                "version", "lease_expires_at", "lease_seconds", "clock_seen_at", "lease_number",
            },
        },
        "regional.restores": {"UPDATE": {"went_back_at", "why"}},
    },
    "durable_restore": {
        "global.regions": {
            "UPDATE": {
                "epoch", "state", "since", "reason", "evidence", "is_leased_fenced",
                "lease_number", "known_number", "lease_expires_at",
            },
        },
        "global.tenants": {"INSERT": {"*"}},
        "global.slots": {
            "INSERT": {"*"}, "UPDATE": {"region", "number", "transfer", "since", "is_leaving"},
        },
        "global.workloads": {
            "INSERT": {"*"},
            "UPDATE": {
                "revision", "generation", "generations", "stable_generation", "rollout",
            },
        },
        "global.generations": {"INSERT": {"*"}},
        "global.quotas": {
            "INSERT": {"tenant"}, "UPDATE": {"hard_cpu_millis", "hard_memory_mib", "hard_gpus"},
        },
        "global.grants": {
            "INSERT": {
                "tenant", "region", "granted_cpu_millis", "granted_memory_mib", "granted_gpus",
            },
            "UPDATE": {"granted_cpu_millis", "granted_memory_mib", "granted_gpus"},
        },
        "global.grant_transfers": {"INSERT": {"*"}, "UPDATE": {"state", "settled_at"}},
        "regional.restores": {"UPDATE": {"epoch", "went_back_at", "why"}},
        "regional.regions": {
            "UPDATE": {"epoch", "state", "version", "tokens_issued", "lease_number"},
        },
        "regional.slots": {"INSERT": {"*"}, "UPDATE": {"region", "number"}},
        "regional.grants": {
            "INSERT": {
                "region", "tenant", "granted_cpu_millis", "granted_memory_mib", "granted_gpus",
            },
            "UPDATE": {"granted_cpu_millis", "granted_memory_mib", "granted_gpus"},
        },
        "regional.grant_changes": {"INSERT": {"*"}},
    },
    "durable_node_life": {
        "regional.regions": {"UPDATE": {"version"}},
        "regional.nodes": {"UPDATE": {"state", "changed_version"}},
    },
    "durable_recovery": {
        "global.regions": {
            "UPDATE": {
                "epoch", "state", "since", "reason", "evidence", "is_leased_fenced",
                "lease_expires_at", "seen", "maintenance",
            },
        },
        "regional.regions": {"UPDATE": {"version", "epoch", "state"}},
        "global.recoveries": {
            "INSERT": {"*"},
            "UPDATE": {
                "phase", "actor", "reason", "evidence", "lost_at", "changed_at", "fenced_at",
                "movable_at", "moved_at", "back_since", "ended_at", "draws", "findings",
            },
        },
        "global.operator_requests": {"INSERT": {"*"}},
        "global.recovery_moves": {
            "INSERT": {"*"},
            "UPDATE": {
                "slots", "replicas", "moved_at", "serving", "placed", "recovered_at", "whole_at",
                "returned_at", "waits", "tried_at",
            },
        },
        "global.readiness": {
            "INSERT": {"*"}, "UPDATE": {"is_met", "sentence"}, "DELETE": {"*"},
        },
        "global.workloads": {"UPDATE": {"share", "revision", "incident"}},
        "regional.recovery_budgets": {
            "INSERT": {"region", "budget", "expires_at", "incident", *amounts()},
            "UPDATE": {"expires_at", "incident", *amounts()},
        },
    },
    "durable_policy": {
        "global.policies": {"INSERT": {"*"}},
        "global.policy_rollouts": {
            "INSERT": {"*"},
            "UPDATE": {
                "phase", "number", "canary", "bake", "is_paused", "to_revision", "reroll",
                "actor", "reason", "changed_at", "in_force_at", "shadows",
            },
        },
        "global.policy_orders": {"INSERT": {"*"}},
        "global.operator_requests": {"INSERT": {"*"}},
        "regional.policy_states": {
            "INSERT": {"*"},
            "UPDATE": {
                "state", "changed_by", "changed_at", "number", "overridable_gates", "report",
                "report_count",
            },
        },
        "regional.replacements": {"INSERT": {"*"}},
        "regional.regions": {"UPDATE": {"version"}},
    },
    "durable_quota": {
        "global.tenants": {"INSERT": {"*"}},
        "global.quotas": {
            "INSERT": {"tenant", *amounts("hard_"), *amounts("target_"), *amounts("protected_")},
            "UPDATE": {*amounts("hard_"), *amounts("target_"), *amounts("protected_")},
        },
        "global.grants": {
            "INSERT": {"tenant", "region", *amounts("granted_"), *amounts("protected_")},
            "UPDATE": {*amounts("granted_"), *amounts("protected_")},
        },
        "global.grant_transfers": {
            "INSERT": {"*"}, "UPDATE": {"state", "settled_at", *amounts("protected_")},
        },
        "regional.grants": {
            "INSERT": {"region", "tenant", *amounts("granted_"), *amounts("protected_")},
            "UPDATE": {*amounts("granted_"), *amounts("protected_"), *amounts("owed_")},
        },
        "regional.grant_changes": {"INSERT": {"*"}},
        "regional.regions": {"UPDATE": {"version"}},
    },
    "durable_override": {
        "global.operator_requests": {"INSERT": {"*"}},
        "global.overrides": {
            "INSERT": {"*"},
            "UPDATE": {"approver", "changed_by", "state", "number", "activated_at", "expires_at",
                       "latest_expiry", "ended_at", "outcome"},
        },
        "regional.overrides": {
            "INSERT": {"*"}, "UPDATE": {"number", "expires_at", "ended_at"},
        },
        "regional.emergency_draws": {
            "INSERT": {"region", "override", "tenant", *amounts(""), "expires_at"},
            "UPDATE": {"expires_at", "has_ended"},
        },
        "regional.recovery_budgets": {
            "INSERT": {"region", "budget", *amounts(""), "expires_at", "incident", "override"},
            "UPDATE": {"expires_at", "incident"},
        },
        "regional.replacements": {"INSERT": {"*"}, "DELETE": {"*"}},
        "regional.regions": {"UPDATE": {"version"}},
    },
    "durable_operators": {
        "global.operators": {"INSERT": {"*"}, "UPDATE": {"kind", "public_key", "removed_at"}},
        "global.operator_rights": {"INSERT": {"*"}, "DELETE": {"*"}},
    },
    "durable_messages": {"global.operator_requests": {"INSERT": {"*"}}},
    "durable_reader": {},
}  # fmt: skip

COLUMNS = """
    SELECT format('%s.%s', table_schema, table_name), column_name
      FROM information_schema.columns WHERE table_schema IN ('global', 'regional', 'audit')
"""


@pytest.fixture(scope="module")
def migrated_url(copies: Copies, template: str) -> str:
    """For those who only look."""
    return copies.url(copies.make(template))


def test_every_role_is_in_the_table() -> None:
    assert {role.name for role in ROLES} == OWNS.keys()


@pytest.mark.parametrize("role", sorted(OWNS))
def test_a_role_may_write_exactly_what_it_owns(migrated_url: str, role: str) -> None:
    wrong: list[str] = []
    with psycopg.connect(migrated_url) as connection:
        columns = connection.execute(COLUMNS.encode()).fetchall()
        for (name, column), verb in product(columns, ("SELECT", "INSERT", "UPDATE")):
            owned = OWNS[role].get(name, {}).get(verb, set())
            may = verb == "SELECT" or column in owned or "*" in owned
            if asked(connection, "column", role, name, column, verb) != may:
                wrong.append(f"{verb} {name}.{column} should be {may}")
        tables = sorted({name for name, _ in columns})
        assert OWNS[role].keys() <= set(tables)
        for name, verb in product(tables, ("DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")):
            may = verb in OWNS[role].get(name, {})
            if asked(connection, "table", role, name, verb) != may:
                wrong.append(f"{verb} {name} should be {may}")
    assert wrong == []


def asked(connection: psycopg.Connection, kind: str, *arguments: str) -> bool:
    places = ", ".join(["%s"] * len(arguments))
    row = connection.execute(f"SELECT has_{kind}_privilege({places})".encode(), arguments)
    answer = row.fetchone()
    assert answer is not None
    return bool(answer[0])


AUDITS_NOTHING = {
    "durable_messages",
    "durable_commit",
    "durable_scheduler",
    "durable_reader",
}
CALLS = {
    "durable_commit": {"regional.hold_leases", "regional.refresh_statistics"},
    "durable_workload": {"global.hold_lock", "global.forget_requests"},
    "durable_messages": {"global.forget_requests"},
    "durable_region": {"regional.settle_clock"},
    "durable_override": {"regional.settle_clock"},
    **{
        role: {"global.hold_lock"}
        for role in ("durable_recovery", "durable_policy", "durable_quota", "durable_operators")
    },
}
READERS_CALL = {
    "regional.live_claims", "regional.may_run", "regional.overdrawn", "regional.free_grants",
}  # fmt: skip


@pytest.mark.parametrize("role", [*sorted(OWNS), "public"])
def test_a_role_may_call_exactly_what_it_needs(migrated_url: str, role: str) -> None:
    """A trigger's function on a table of one's own would write what one may not."""
    expected = set(READERS_CALL) if role in OWNS else set[str]()
    if role in OWNS and role not in AUDITS_NOTHING:
        expected.add("audit.append")
    expected |= CALLS.get(role, set())
    with psycopg.connect(migrated_url) as connection:
        rows = connection.execute(
            "SELECT pronamespace::regnamespace || '.' || proname FROM pg_proc"
            " WHERE pronamespace::regnamespace::text IN ('global', 'regional', 'audit')"
            "   AND has_function_privilege(%s, oid, 'EXECUTE')",
            [role],
        ).fetchall()
    assert {name for (name,) in rows} == expected


def test_no_role_can_make_anything_of_its_own(database_url: str) -> None:
    upgrade(database_url)  # what a role may do to a database does not come with its template
    with psycopg.connect(database_url) as connection:
        name = connection.info.dbname
        for role in OWNS:
            assert not asked(connection, "database", role, name, "TEMPORARY")
            assert not asked(connection, "database", role, name, "CREATE")
            for schema in ("global", "regional", "audit", "public"):
                assert not asked(connection, "schema", role, schema, "CREATE")


def test_migrating_takes_back_what_was_granted_by_hand(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("GRANT UPDATE ON regional.grants TO PUBLIC")
        connection.execute("GRANT CREATE ON SCHEMA regional TO PUBLIC")
        connection.execute("GRANT durable_commit TO durable_agent")
    try:
        upgrade(database_url)
        with psycopg.connect(database_url) as connection:
            for role in ("durable_reader", "durable_agent"):
                assert not asked(connection, "table", role, "regional.grants", "UPDATE")
                assert not asked(connection, "schema", role, "regional", "CREATE")
            assert not asked(connection, "table", "durable_agent", "regional.intents", "INSERT")
    finally:
        with psycopg.connect(database_url) as connection:
            connection.execute("REVOKE durable_commit FROM durable_agent")


def test_no_role_is_a_superuser_or_may_log_in_by_itself(migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        rows = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'durable\\_%' AND "
            "(rolsuper OR rolcreaterole OR rolcreatedb OR rolcanlogin OR rolbypassrls)"
        ).fetchall()
        members = connection.execute(
            "SELECT member::regrole FROM pg_auth_members "
            "WHERE member::regrole::text LIKE 'durable\\_%'"
        ).fetchall()
    assert (rows, members) == ([], [])


def test_the_public_may_do_nothing(migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        rows = connection.execute(
            "SELECT table_schema, table_name, privilege_type "
            "  FROM information_schema.role_table_grants "
            " WHERE grantee = 'PUBLIC' AND table_schema IN ('global', 'regional', 'audit')"
        ).fetchall()
    assert rows == []

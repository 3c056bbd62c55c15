"""Who may write what: one Postgres role per controller, granted exactly the columns it owns.

The table below is the state model's column "Owner" in the database's own terms. Counters and
device holds appear nowhere: triggers alone write them.
"""

from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["INSERT", "UPDATE", "DELETE"]
Side = Literal["global", "regional"]
ALL = ("*",)

# What a workflow received, from any sender; the name after it may be anything.
_MESSAGES = ("accept message %", "reject message %")

_AMOUNTS = ("cpu_millis", "memory_mib", "gpus")


def _each(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{dimension}" for dimension in _AMOUNTS)


@dataclass(frozen=True)
class Role:
    """A controller and its writes: table -> verb -> columns. Every role may read everything.

    `audits` are the actions that it may append to the audit, as patterns of LIKE: to the chain of
    the global side, or to those of regions. `calls` are the functions that write or lock for it
    what it may not write itself.
    """

    name: str
    writes: dict[str, dict[Verb, tuple[str, ...]]] = field(
        default_factory=dict[str, dict[Verb, tuple[str, ...]]]
    )
    audits: dict[Side, tuple[str, ...]] = field(default_factory=dict[Side, tuple[str, ...]])
    calls: tuple[str, ...] = ()


# A regional transaction locks the region's row and advances its version, so every writer of a
# regional object may do that; the rest of the row is its owner's.
_SETTLES = ("settle clock", "settle override")
_ADVANCE: dict[Verb, tuple[str, ...]] = {"UPDATE": ("version",)}

ROLES: tuple[Role, ...] = (
    Role(
        "durable_workload",
        {
            "global.workloads": {
                "INSERT": ALL,
                "UPDATE": (
                    "generation", "spec", "finalizers", "delete_requested_at", "status",
                    "observed_generation", "share", "revision", "generations",
                    "stable_generation", "rollout", "deleted_at", "admitted_at",
                    "deadline_missed_at", "listed_until", "incident",
                ),
            },
            "global.generations": {
                "INSERT": ALL, "UPDATE": ("share", "outcome", "outcome_reason", "completed_at"),
                "DELETE": ALL,
            },
            "global.operator_requests": {"INSERT": ALL},
            "global.slots": {
                "INSERT": ALL, "UPDATE": ("region", "number", "transfer", "since", "is_leaving"),
            },
            "regional.slots": {"INSERT": ALL, "UPDATE": ("region", "number")},
            "regional.shares": {
                "INSERT": (
                    "region", "tenant", "workload", "generation", "revision", "slots", "spec",
                    "release_reason", "at_once", "admitted_at", "due_at", "incident",
                    "moved",
                ),
                "UPDATE": (
                    "revision", "slots", "spec", "release_reason", "at_once", "admitted_at",
                    "due_at", "incident", "moved",
                ),
            },
            "regional.disruption_floors": {
                "INSERT": ALL, "UPDATE": ("revision", "must_serve"),
            },
            "regional.replacements": {"INSERT": ALL, "UPDATE": ("begun_at",)},
            "regional.regions": _ADVANCE,
        },
        audits={
            "global": (
                "apply workload", "delete workload", "finish deleting workload", "finish job",
                "miss deadline",
                "transfer slots", "pause rollout", "resume rollout", "promote rollout",
                "roll back", "begin rollback", "complete rollout", "replace slots", *_MESSAGES,
            ),
        },
        calls=("global.hold_lock", "global.forget_requests"),
    ),
    Role(
        "durable_placement",
        {
            "regional.shares": {"UPDATE": ("closed_at",)},
            "regional.requests": {
                "INSERT": ALL,
                "UPDATE": (
                    "slots", "priority", "state", "pending_code", "pending_parameters",
                    "attempts", "enqueued_at",
                    "deadline", "next_retry_at", "waiting", "completed", "given_up",
                    "ended_at", "held_back", "failures", "at_once", "decided_version",
                ),
                "DELETE": ALL,
            },
        },
        audits={"regional": _MESSAGES},
    ),
    Role(
        "durable_commit",
        {
            "regional.regions": {"UPDATE": ("version", "tokens_issued", "clock_seen_at")},
            "regional.reservations": {
                "INSERT": ALL,
                "UPDATE": (
                    "state", "ended_at", "changed_version", "freed_version", "actor", "evidence",
                ),
            },
            "regional.bindings": {
                "INSERT": ALL,
                "UPDATE": (
                    "state", "started_at", "stop_requested_at", "stop_reason", "released_at",
                    "changed_version", "actor", "evidence",
                ),
            },
            "regional.intents": {"INSERT": ALL},
        },
        calls=("regional.hold_leases", "regional.refresh_statistics"),
    ),
    Role(
        "durable_scheduler",
        {
            "regional.decisions": {"INSERT": ALL},
            "regional.decision_repeats": {
                "INSERT": ALL, "UPDATE": ("repeats", "cache_version", "repeated_at"),
            },
        },
    ),
    Role(
        "durable_agent",
        {
            "regional.regions": _ADVANCE,
            "regional.nodes": {
                "INSERT": (
                    "region", "node", "zone", "pool", *_each("capacity_"), "labels", "taints",
                    "dedicated_to", "changed_version",
                ),
                "UPDATE": (
                    "zone", "pool", *_each("capacity_"), "labels", "taints", "dedicated_to",
                    "unhealthy_devices", "state", "changed_version",
                ),
            },
            "regional.node_leases": {
                "INSERT": ALL, "UPDATE": ("session", "epoch", "host", "renewed_at", "expires_at"),
            },
            "regional.agent_locks": {
                "INSERT": ALL, "UPDATE": ("pid", "life_sign", "holder", "held_since"),
            },
            "regional.devices": {"INSERT": ALL, "DELETE": ALL},
            "regional.observations": {
                "INSERT": ALL,
                "UPDATE": (
                    "session", "sequence", "state", "evidence", "log_directory", "observer",
                    "received_at", "exit_code",
                ),
            },
        },
        audits={"regional": ("declare nodes",)},
    ),
    Role(
        "durable_operator",
        {
            "global.regions": {"INSERT": ("region",)},
            "regional.regions": {"INSERT": ("region",), **_ADVANCE},
            "regional.zones": {"INSERT": ALL},
            "regional.nodes": {
                "UPDATE": ("cordon_reason", "cordoned_by", "cordoned_for", "changed_version"),
            },
        },
        audits={"regional": ("add region", "declare zones", "cordon nodes", "uncordon nodes")},
    ),
    Role(
        "durable_drain",
        {
            "regional.operator_requests": {"INSERT": ALL},
            "regional.drains": {"INSERT": ALL, "UPDATE": ("state", "ended_at", "outcome")},
            "regional.nodes": {
                "UPDATE": ("cordon_reason", "cordoned_by", "cordoned_for", "changed_version"),
            },
            "regional.replacements": {"INSERT": ALL, "DELETE": ALL},
            "regional.regions": _ADVANCE,
        },
        audits={"regional": ("begin drain", "mark claims", "end drain")},
    ),
    Role(
        "durable_recovery",
        {
            "global.regions": {
                "UPDATE": (
                    "epoch", "state", "since", "reason", "evidence", "is_leased_fenced",
                    "lease_expires_at", "seen", "maintenance",
                ),
            },
            "regional.regions": {"UPDATE": ("version", "epoch", "state")},
            "global.recoveries": {
                "INSERT": ALL,
                "UPDATE": (
                    "phase", "actor", "reason", "evidence", "lost_at", "changed_at", "fenced_at",
                    "movable_at", "moved_at", "back_since", "ended_at", "draws", "findings",
                ),
            },
            "global.operator_requests": {"INSERT": ALL},
            "global.readiness": {
                "INSERT": ALL, "UPDATE": ("is_met", "sentence"), "DELETE": ALL,
            },
            "global.recovery_moves": {
                "INSERT": ALL,
                "UPDATE": (
                    "slots", "replicas", "tried_at", "moved_at", "serving", "placed",
                    "recovered_at", "whole_at", "returned_at", "waits",
                ),
            },
            # A move gives slots to other regions, under a revision of its own.
            "global.workloads": {"UPDATE": ("share", "revision", "incident")},
            "regional.recovery_budgets": {
                "INSERT": ("region", "budget", *_AMOUNTS, "expires_at", "incident"),
                "UPDATE": (*_AMOUNTS, "expires_at", "incident"),
            },
        },
        audits={
            "global": (
                "suspect region", "clear suspicion", "confirm recovery", "veto recovery",
                "failback recovery", "settle recovery", "reach recovery phase",
                "move out of region", "move back to region", "fence region", "open region",
                "begin maintenance", "end maintenance",
                *_MESSAGES,
            ),
            "regional": (
                "fence region", "open region", "set recovery budget", "open recovery budget",
                "close recovery budget",
            ),
        },
        calls=("global.hold_lock",),
    ),
    Role(
        "durable_region",
        {
            "global.regions": {"UPDATE": (
                "lease_number", "known_number", "lease_holder", "lease_expires_at",
                "lease_seconds", "watched_at",
            )},
            "regional.regions": {
                "UPDATE": (
                    "version", "lease_expires_at", "lease_seconds", "clock_seen_at", "lease_number",
                ),
            },
            # It may find that a database went back, and never that it did not.
            "regional.restores": {"UPDATE": ("went_back_at", "why")},
        },
        audits={"global": ("find restored",), "regional": (*_SETTLES, "find restored")},
        calls=("regional.settle_clock",),
    ),
    # What goes on after a restore goes on above every copy: its steps are not bound by the others'.
    Role(
        "durable_restore",
        {
            "global.regions": {"UPDATE": (
                "epoch", "state", "since", "reason", "evidence", "is_leased_fenced",
                "lease_number", "known_number", "lease_expires_at",
            )},
            "global.tenants": {"INSERT": ALL},
            "global.slots": {
                "INSERT": ALL, "UPDATE": ("region", "number", "transfer", "since", "is_leaving"),
            },
            "global.workloads": {
                "INSERT": ALL,
                "UPDATE": (
                    "revision", "generation", "generations", "stable_generation", "rollout",
                ),
            },
            "global.generations": {"INSERT": ALL},
            "global.quotas": {"INSERT": ("tenant",), "UPDATE": _each("hard_")},
            "global.grants": {
                "INSERT": ("tenant", "region", *_each("granted_")), "UPDATE": _each("granted_"),
            },
            "global.grant_transfers": {"INSERT": ALL, "UPDATE": ("state", "settled_at")},
            "regional.restores": {"UPDATE": ("epoch", "went_back_at", "why")},
            "regional.regions": {
                "UPDATE": ("epoch", "state", "version", "tokens_issued", "lease_number"),
            },
            "regional.slots": {"INSERT": ALL, "UPDATE": ("region", "number")},
            "regional.grants": {
                "INSERT": ("region", "tenant", *_each("granted_")), "UPDATE": _each("granted_"),
            },
            "regional.grant_changes": {"INSERT": ALL},
        },
        audits={"global": ("declare restored",), "regional": ("declare restored",)},
    ),
    Role(
        "durable_node_life",
        {
            "regional.nodes": {"UPDATE": ("state", "changed_version")},
            "regional.regions": _ADVANCE,
        },
        audits={"regional": ("lose nodes",)},
    ),
    Role(
        "durable_policy",
        {
            "global.policies": {"INSERT": ALL},
            "global.policy_rollouts": {
                "INSERT": ALL,
                "UPDATE": (
                    "phase", "number", "canary", "bake", "is_paused", "to_revision", "reroll",
                    "actor", "reason", "changed_at", "in_force_at", "shadows",
                ),
            },
            "global.policy_orders": {"INSERT": ALL},
            "global.operator_requests": {"INSERT": ALL},
            "regional.policy_states": {
                "INSERT": ALL,
                "UPDATE": (
                    "state", "changed_by", "changed_at", "number", "overridable_gates", "report",
                    "report_count",
                ),
            },
            "regional.replacements": {"INSERT": ALL},
            "regional.regions": _ADVANCE,
        },
        audits={
            "global": (
                "publish policy", "promote policy", "pause policy", "roll back policy",
                "reach policy phase", "watch policy", "shadow policy", *_MESSAGES,
            ),
            "regional": ("set policy state", "roll back policy"),
        },
        calls=("global.hold_lock",),
    ),
    Role(
        "durable_quota",
        {
            "global.tenants": {"INSERT": ALL},
            "global.quotas": {
                "INSERT": ("tenant", *_each("hard_"), *_each("target_"), *_each("protected_")),
                "UPDATE": (*_each("hard_"), *_each("target_"), *_each("protected_")),
            },
            "global.grants": {
                "INSERT": ("tenant", "region", *_each("granted_"), *_each("protected_")),
                "UPDATE": (*_each("granted_"), *_each("protected_")),
            },
            "global.grant_transfers": {
                "INSERT": ALL, "UPDATE": ("state", "settled_at", *_each("protected_")),
            },
            "regional.grants": {
                "INSERT": ("region", "tenant", *_each("granted_"), *_each("protected_")),
                "UPDATE": (*_each("granted_"), *_each("protected_"), *_each("owed_")),
            },
            "regional.grant_changes": {"INSERT": ALL},
            "regional.regions": _ADVANCE,
        },
        audits={"global": ("set quota", "transfer grant", "lapse grant")},
        calls=("global.hold_lock",),
    ),
    Role(
        "durable_override",
        {
            "global.operator_requests": {"INSERT": ALL},
            "global.overrides": {
                "INSERT": ALL,
                "UPDATE": (
                    "approver", "changed_by", "state", "number", "activated_at", "expires_at",
                    "latest_expiry", "ended_at", "outcome",
                ),
            },
            "regional.overrides": {
                "INSERT": ALL, "UPDATE": ("number", "expires_at", "ended_at"),
            },
            "regional.emergency_draws": {
                "INSERT": ("region", "override", "tenant", *_AMOUNTS, "expires_at"),
                "UPDATE": ("expires_at", "has_ended"),
            },
            "regional.recovery_budgets": {
                "INSERT": ("region", "budget", *_AMOUNTS, "expires_at", "incident", "override"),
                "UPDATE": ("expires_at", "incident"),
            },
            "regional.replacements": {"INSERT": ALL, "DELETE": ALL},
            "regional.regions": _ADVANCE,
        },
        audits={
            "global": (
                "propose override", "activate override", "extend override", "end override",
                *_MESSAGES,
            ),
            "regional": (
                "put override in force", "extend override", "end override", *_SETTLES,
            ),
        },
        calls=("regional.settle_clock",),
    ),
    Role(
        "durable_operators",
        {
            "global.operators": {
                "INSERT": ALL, "UPDATE": ("kind", "public_key", "removed_at"),
            },
            "global.operator_rights": {"INSERT": ALL, "DELETE": ALL},
        },
        audits={
            "global": (
                "add operator", "remove operator", "grant right", "revoke right", "set key",
                "refuse command",
            ),
        },
        calls=("global.hold_lock",),
    ),
    Role(
        "durable_messages",
        {"global.operator_requests": {"INSERT": ALL}},
        calls=("global.forget_requests",),
    ),
    Role("durable_reader"),
)  # fmt: skip

_SCHEMAS = ("global", "regional", "audit")

# Everything else is for triggers: a role that could attach one of those to a table of its own could
# write through it what it may not.
_FOR_READERS = (
    "regional.live_claims", "regional.may_run", "regional.overdrawn", "regional.free_grants",
)  # fmt: skip
_FOR_AUDITORS = ("audit.append",)


def grant_statements() -> list[str]:
    """Statements that make the database's privileges equal to this table, whatever they were.

    Names come from the constants above alone; nothing here is a value from outside.
    """
    statements: list[str] = [
        *(
            f"REVOKE ALL ON {what}SCHEMA {schema} FROM PUBLIC"
            for schema in _SCHEMAS
            for what in ("", "ALL TABLES IN ", "ALL SEQUENCES IN ", "ALL FUNCTIONS IN ")
        ),
        # No role of ours is a member of another: it would have the privileges of both.
        "DO $$ DECLARE pair record; BEGIN FOR pair IN"
        " SELECT r.rolname AS role, m.rolname AS member FROM pg_auth_members AS a"
        " JOIN pg_roles AS r ON r.oid = a.roleid JOIN pg_roles AS m ON m.oid = a.member"
        " WHERE starts_with(r.rolname, 'durable_') AND starts_with(m.rolname, 'durable_')"
        " LOOP EXECUTE format('REVOKE %I FROM %I', pair.role, pair.member); END LOOP; END $$",
        "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC',"
        " current_database()); END $$",
    ]
    rights = ", ".join(
        f"('{role.name}', '{side}', '{action}')"
        for role in ROLES
        for side, actions in role.audits.items()
        for action in actions
    )
    statements += [
        "DELETE FROM audit.rights",
        f"INSERT INTO audit.rights (role, side, action) VALUES {rights}",
    ]
    for role in ROLES:
        statements.append(
            f"DO $$ BEGIN CREATE ROLE {role.name} NOLOGIN;"
            " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )
        # A superuser may assume any role; any other login only those it is a member of.
        statements.append(f"GRANT {role.name} TO CURRENT_USER")
        # The first connection compares the schema with its own release.
        statements.append(f"GRANT SELECT ON alembic_version TO {role.name}")
        for schema in _SCHEMAS:
            statements += [
                f"REVOKE ALL ON SCHEMA {schema} FROM {role.name}",
                f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role.name}",
                f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {role.name}",
                f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM {role.name}",
                f"GRANT USAGE ON SCHEMA {schema} TO {role.name}",
                f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role.name}",
            ]
        for table, verbs in role.writes.items():
            for verb, columns in verbs.items():
                listed = "" if columns == ALL else f" ({', '.join(columns)})"
                statements.append(f"GRANT {verb}{listed} ON {table} TO {role.name}")
        statements += [
            f"GRANT EXECUTE ON FUNCTION {function} TO {role.name}" for function in callable_by(role)
        ]
    return statements


def callable_by(role: Role) -> tuple[str, ...]:
    """The functions that a role may call."""
    return (
        *_FOR_READERS,
        *(_FOR_AUDITORS if role.audits else ()),
        *role.calls,
    )

"""The tables of the authority: what is true, and the shapes that untruth cannot take.

Two sides that never meet in one transaction: `global` (tenants, quotas, policies, overrides) and
`regional` (nodes, grants, reservations, bindings). They may live in one database or in several.
Counters (`used_*`, `granted_*` sums) are written by the triggers of `guards.sql` alone.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP
from sqlalchemy.types import TypeEngine

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_index",
        "uq": "%(table_name)s_%(column_0_N_name)s_unique",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_%(column_0_N_name)s_reference",
        "pk": "%(table_name)s_key",
    }
)

DIMENSIONS = ("cpu_millis", "memory_mib", "gpus")


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _integer(name: str, *, nullable: bool = False, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable, server_default=default and text(default))


def _time(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, TIMESTAMP(timezone=True), nullable=nullable)


def _json(name: str, *, nullable: bool = False, default: str | None = None) -> Column[object]:
    return Column(name, JSONB, nullable=nullable, server_default=default and text(default))


def _derived(name: str, kind: type[TypeEngine[Any]], expression: str) -> Column[Any]:
    return Column(name, kind, Computed(expression, persisted=True))


def _amounts(prefix: str = "") -> list[Column[int]]:
    return [_integer(f"{prefix}{dimension}", default="0") for dimension in DIMENSIONS]


def _bounded(name: str, low: str, high: str | None = None) -> CheckConstraint:
    """0 <= low, and low <= high, in every dimension."""
    parts = [f"{low}{d} >= 0" for d in DIMENSIONS]
    if high is not None:
        parts += [f"{low}{d} <= {high}{d}" for d in DIMENSIONS]
    return CheckConstraint(" AND ".join(parts), name=name)


def _one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


# ── global side ─────────────────────────────────────────────────────────────────────────────────

tenants = Table(
    "tenants", metadata, Column("tenant", Text, primary_key=True), _time("created_at"),
    schema="global",
)  # fmt: skip

# `hard` is the limit in force; `target` is what was asked. They differ while a lowered quota waits
# for usage to fall, and the difference is the sentence that says so.
quotas = Table(
    "quotas",
    metadata,
    Column("tenant", Text, ForeignKey("global.tenants.tenant"), primary_key=True),
    *_amounts("hard_"),
    *_amounts("target_"),
    *_amounts("protected_"),
    *_amounts("granted_"),
    _bounded("granted_within_hard", "granted_", "hard_"),
    _bounded("target_within_hard", "target_", "hard_"),
    _bounded("protected_within_target", "protected_", "target_"),
    schema="global",
)

grants_by_region = Table(
    "grants",
    metadata,
    Column("tenant", Text, ForeignKey("global.quotas.tenant"), nullable=False),
    _text("region"),
    *_amounts("granted_"),
    *_amounts("held_"),
    _bounded("held_within_granted", "held_", "granted_"),
    PrimaryKeyConstraint("tenant", "region"),
    schema="global",
)

grant_transfers = Table(
    "grant_transfers",
    metadata,
    Column("transfer", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("global.quotas.tenant"), nullable=False),
    _text("from_region", nullable=True),
    _text("to_region", nullable=True),
    *_amounts(),
    _text("state"),
    _text("actor"),
    _time("requested_at"),
    _time("settled_at", nullable=True),
    _bounded("amount_whole", ""),
    _one_of("state", "requested", "moved", "settled"),
    CheckConstraint("(state = 'settled') = (settled_at IS NOT NULL)", name="settled_at"),
    CheckConstraint("from_region IS DISTINCT FROM to_region", name="ends_differ"),
    Index("grant_transfers_open", "tenant", postgresql_where=text("state <> 'settled'")),
    schema="global",
)

workloads = Table(
    "workloads",
    metadata,
    Column("tenant", Text, ForeignKey("global.tenants.tenant"), nullable=False),
    _text("workload"),
    _integer("generation"),
    _json("spec"),
    Column("finalizers", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    _time("delete_requested_at", nullable=True),
    _json("status", default="'{}'"),
    _integer("observed_generation", default="0"),
    CheckConstraint("generation >= 1 AND observed_generation <= generation", name="generation"),
    PrimaryKeyConstraint("tenant", "workload"),
    schema="global",
)

# Which region may bind a slot is one fact with one row; a transfer is the only way to change it.
# `number` counts the owners so far: a hand-over that arrives late is known by its old number. The
# row stays when nobody owns the slot, so that numbers never start again.
slot_owners = Table(
    "slots",
    metadata,
    Column("tenant", Text, ForeignKey("global.tenants.tenant"), nullable=False),
    _text("workload"),
    Column("slot", Integer, nullable=False),
    _text("region", nullable=True),
    _integer("number"),
    _text("transfer"),
    _time("since"),
    CheckConstraint("slot >= 0 AND number >= 1", name="slot_whole"),
    PrimaryKeyConstraint("tenant", "workload", "slot"),
    schema="global",
)

policies = Table(
    "policies",
    metadata,
    Column("revision", Integer, primary_key=True, autoincrement=False),
    _json("spec"),
    _text("published_by"),
    _time("published_at"),
    CheckConstraint("revision >= 1", name="revision_positive"),
    schema="global",
)

overrides = Table(
    "overrides",
    metadata,
    Column("override", Text, primary_key=True),
    _text("kind"),
    _json("scope"),
    _json("effect"),
    _text("actor"),
    _text("reason"),
    Column("needs_approval", Boolean, nullable=False),
    _text("approver", nullable=True),
    _text("state"),
    _time("proposed_at"),
    _time("activated_at", nullable=True),
    _time("expires_at"),
    _time("latest_expiry"),
    _time("ended_at", nullable=True),
    _one_of("state", "proposed", "active", "expired", "revoked", "rejected"),
    CheckConstraint("length(btrim(reason)) > 0", name="reason_given"),
    CheckConstraint("approver IS NULL OR approver <> actor", name="second_person"),
    CheckConstraint(
        "state <> 'active' OR NOT needs_approval OR approver IS NOT NULL", name="approved"
    ),
    CheckConstraint(
        "proposed_at < expires_at AND expires_at <= latest_expiry", name="time_limited"
    ),
    CheckConstraint("(ended_at IS NULL) = (state IN ('proposed', 'active'))", name="ended"),
    schema="global",
)

# ── regional side ───────────────────────────────────────────────────────────────────────────────

# One row, written by the migration: whether this database serves the global side too.
deployment = Table(
    "deployment",
    metadata,
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("serves_global", Boolean, nullable=False),
    CheckConstraint("singleton", name="one_row"),
    schema="regional",
)

# The coordination boundary: every regional transaction begins by locking this row.
regions = Table(
    "regions",
    metadata,
    Column("region", Text, primary_key=True),
    _integer("epoch", default="1"),
    _integer("version", default="0"),
    _integer("tokens_issued", default="0"),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    *_amounts("capacity_"),
    *_amounts("used_"),
    _one_of("state", "open", "fenced"),
    CheckConstraint("epoch >= 1 AND version >= 0 AND tokens_issued >= 0", name="counters"),
    CheckConstraint("region <> 'global'", name="name_free"),
    _bounded("used_whole", "used_"),
    schema="regional",
)

nodes = Table(
    "nodes",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    _text("node"),
    _text("zone"),
    _text("pool"),
    *_amounts("capacity_"),
    *_amounts("used_"),
    _json("labels", default="'{}'"),
    _json("taints", default="'[]'"),
    _text("dedicated_to", nullable=True),
    Column("state", Text, nullable=False, server_default=text("'ready'")),
    _text("cordon_reason", nullable=True),
    _text("cordoned_by", nullable=True),
    _integer("changed_version"),
    _bounded("used_within_capacity", "used_", "capacity_"),
    _one_of("state", "ready", "unknown", "lost", "removed"),
    CheckConstraint("(cordon_reason IS NULL) = (cordoned_by IS NULL)", name="cordon_owned"),
    CheckConstraint("state <> 'removed' OR used_cpu_millis + used_memory_mib + used_gpus = 0",
                    name="removed_empty"),
    PrimaryKeyConstraint("region", "node"),
    schema="regional",
    # Counters change at every placement: room on the page keeps those updates off the indexes.
    postgresql_with={"fillfactor": 70},
)  # fmt: skip

# What a node looked like at each version, so that an old snapshot can be rebuilt.
node_history = Table(
    "node_history",
    metadata,
    _text("region"),
    _text("node"),
    _integer("version"),
    _json("attributes"),
    PrimaryKeyConstraint("region", "node", "version"),
    schema="regional",
)

# Apart from `nodes`: heartbeats take no region lock and must not queue behind placements.
node_leases = Table(
    "node_leases",
    metadata,
    _text("region"),
    _text("node"),
    _integer("session"),
    _integer("epoch"),
    _time("renewed_at"),
    _time("expires_at"),
    CheckConstraint("session >= 1 AND epoch >= 1", name="counters"),
    ForeignKeyConstraint(["region", "node"], ["regional.nodes.region", "regional.nodes.node"]),
    PrimaryKeyConstraint("region", "node"),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)

devices = Table(
    "devices",
    metadata,
    _text("region"),
    _text("node"),
    _text("device"),
    Column("healthy", Boolean, nullable=False, server_default=text("true")),
    ForeignKeyConstraint(["region", "node"], ["regional.nodes.region", "regional.nodes.node"]),
    PrimaryKeyConstraint("region", "node", "device"),
    schema="regional",
)

device_holds = Table(
    "device_holds",
    metadata,
    _text("region"),
    _text("node"),
    _text("device"),
    _integer("token"),
    ForeignKeyConstraint(
        ["region", "node", "device"],
        ["regional.devices.region", "regional.devices.node", "regional.devices.device"],
    ),
    PrimaryKeyConstraint("region", "node", "device"),
    Index(None, "region", "token"),
    schema="regional",
)

grants = Table(
    "grants",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    _text("tenant"),
    *_amounts("granted_"),
    *_amounts("used_"),
    *_amounts("protected_"),
    _bounded("used_within_granted", "used_", "granted_"),
    _bounded("protected_within_granted", "protected_", "granted_"),
    PrimaryKeyConstraint("region", "tenant"),
    schema="regional",
    postgresql_with={"fillfactor": 50},
)

# One row per half of a transfer that reached this region, less than zero where it was taken: sent
# again it changes nothing, and their sum up to a version is the grant at that version.
grant_changes = Table(
    "grant_changes",
    metadata,
    _text("region"),
    _text("transfer"),
    _text("tenant"),
    *_amounts(),
    _integer("version"),
    _time("at"),
    PrimaryKeyConstraint("region", "transfer"),
    schema="regional",
)

# A region's copy of the slots it owns. One row per slot, whatever the region: two regions that
# share a database can never both own it. A slot that was taken away keeps its row and number.
slots = Table(
    "slots",
    metadata,
    _text("tenant"),
    _text("workload"),
    Column("slot", Integer, nullable=False),
    _text("region", nullable=True),
    _integer("number"),
    PrimaryKeyConstraint("tenant", "workload", "slot"),
    UniqueConstraint("region", "tenant", "workload", "slot"),
    schema="regional",
)

recovery_budgets = Table(
    "recovery_budgets",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    _text("budget"),
    *_amounts(),
    *_amounts("used_"),
    _time("expires_at"),
    _text("incident", nullable=True),
    _bounded("used_within_budget", "used_", ""),
    PrimaryKeyConstraint("region", "budget"),
    schema="regional",
)

policy_states = Table(
    "policy_states",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    Column("revision", Integer, nullable=False),
    _text("state"),
    _text("changed_by"),
    _time("changed_at"),
    _one_of("state", "published", "shadow", "canary", "active", "superseded", "rolled_back"),
    PrimaryKeyConstraint("region", "revision"),
    Index(
        "policy_states_one_active", "region", unique=True,
        postgresql_where=text("state = 'active'"),
    ),
    schema="regional",
)  # fmt: skip

requests = Table(
    "requests",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    _text("tenant"),
    _text("workload"),
    _integer("generation"),
    Column("slots", ARRAY(Integer), nullable=False),
    Column("priority", Integer, nullable=False),
    _text("state"),
    _text("pending_reason", nullable=True),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    _time("enqueued_at"),
    _time("deadline"),
    _time("next_retry_at", nullable=True),
    _one_of("state", "pending", "reserved", "bound", "placed", "withdrawn", "timed_out"),
    CheckConstraint("state <> 'pending' OR pending_reason IS NOT NULL", name="waits_with_reason"),
    CheckConstraint("enqueued_at < deadline", name="waits_with_deadline"),
    PrimaryKeyConstraint("region", "tenant", "workload", "generation"),
    schema="regional",
)

# `freed_version` is the version at which the claim on capacity, quota, devices and slot ended;
# while it is null the claim counts, whether the reservation is held or has become a binding.
reservations = Table(
    "reservations",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    _integer("token"),
    _text("tenant"),
    _text("workload"),
    _integer("generation"),
    Column("slot", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    _text("node"),
    *_amounts(),
    Column("devices", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    _text("budget", nullable=True),
    _json("requirements", default="'{}'"),
    Column("priority", Integer, nullable=False),
    Column("policy_revision", Integer, nullable=False),
    _integer("epoch"),
    Column("state", Text, nullable=False, server_default=text("'held'")),
    _time("reserved_at"),
    _time("expires_at"),
    _time("ended_at", nullable=True),
    _integer("created_version"),
    _integer("changed_version"),
    _integer("freed_version", nullable=True),
    _text("actor"),
    _text("evidence"),
    _derived("claimed_slot", Integer, "CASE WHEN freed_version IS NULL THEN slot END"),
    _derived("bound_token", BigInteger, "CASE WHEN state = 'bound' THEN token END"),
    _one_of("state", "held", "bound", "released", "expired"),
    _bounded("amount_whole", ""),
    CheckConstraint("cardinality(devices) = gpus", name="devices_match_gpus"),
    CheckConstraint("reserved_at < expires_at", name="lease_has_length"),
    CheckConstraint("(state = 'held') = (ended_at IS NULL)", name="ended_when_not_held"),
    CheckConstraint("state <> 'held' OR freed_version IS NULL", name="held_claims"),
    CheckConstraint(
        "state NOT IN ('released', 'expired') OR freed_version IS NOT NULL", name="ended_frees"
    ),
    PrimaryKeyConstraint("region", "token"),
    UniqueConstraint("region", "token", "state"),
    ForeignKeyConstraint(
        ["region", "tenant", "workload", "claimed_slot"],
        [f"regional.slots.{column}" for column in ("region", "tenant", "workload", "slot")],
    ),
    # A bound reservation has a binding. Both rows arrive in one transaction, so it is checked at
    # its end; the other direction is the binding's own reference.
    ForeignKeyConstraint(
        ["region", "bound_token"],
        ["regional.bindings.region", "regional.bindings.token"],
        deferrable=True,
        initially="DEFERRED",
        use_alter=True,
    ),
    Index(
        "reservations_one_claim_per_slot", "tenant", "workload", "slot",
        unique=True, postgresql_where=text("freed_version IS NULL"),
    ),
    Index(
        "reservations_claims_by_node", "region", "node",
        postgresql_where=text("freed_version IS NULL"),
    ),
    Index("reservations_changes", "region", "changed_version"),
    Index(
        "reservations_leases", "region", "expires_at", postgresql_where=text("state = 'held'")
    ),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)  # fmt: skip

# One row per reservation that became bound. It has the authority's part of the state only: what
# runs, is ready or serves is observed, and `binding_status` merges the two.
bindings = Table(
    "bindings",
    metadata,
    _text("region"),
    _integer("token"),
    _derived("reservation_state", Text, "'bound'::text"),
    Column("state", Text, nullable=False, server_default=text("'bound'")),
    _time("bound_at"),
    _time("started_at", nullable=True),
    _time("stop_requested_at", nullable=True),
    _text("stop_reason", nullable=True),
    _time("released_at", nullable=True),
    _integer("changed_version"),
    _text("actor"),
    _text("evidence"),
    _one_of("state", "bound", "starting", "released"),
    CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released_at"),
    CheckConstraint("state <> 'starting' OR started_at IS NOT NULL", name="started_at"),
    CheckConstraint("(stop_requested_at IS NULL) = (stop_reason IS NULL)", name="stop_reason"),
    ForeignKeyConstraint(
        ["region", "token", "reservation_state"],
        [f"regional.reservations.{column}" for column in ("region", "token", "state")],
    ),
    PrimaryKeyConstraint("region", "token"),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)

observations = Table(
    "observations",
    metadata,
    _text("region"),
    _integer("token"),
    _integer("session"),
    _integer("sequence"),
    _text("state"),
    _text("evidence"),
    _text("observer"),
    _time("received_at"),
    _one_of("state", "starting", "running", "ready", "serving", "failed", "stopped"),
    ForeignKeyConstraint(
        ["region", "token"], ["regional.bindings.region", "regional.bindings.token"]
    ),
    PrimaryKeyConstraint("region", "token"),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)

# ── append-only records ─────────────────────────────────────────────────────────────────────────

intents = Table(
    "intents",
    metadata,
    _text("region"),
    _text("key"),
    Column("payload_sha256", LargeBinary, nullable=False),
    _json("outcome"),
    _integer("version"),
    _time("recorded_at"),
    PrimaryKeyConstraint("region", "key"),
    schema="regional",
)

transitions = Table(
    "transitions",
    metadata,
    _text("region"),
    _integer("version"),
    Column("ordinal", BigInteger, Identity(always=True), nullable=False),
    _text("object"),
    _text("from_state", nullable=True),
    _text("to_state"),
    _text("actor"),
    _text("evidence"),
    _text("database_role"),
    _time("at"),
    PrimaryKeyConstraint("region", "version", "ordinal"),
    Index(None, "region", "object"),
    schema="regional",
)

decisions = Table(
    "decisions",
    metadata,
    _text("region"),
    _text("tenant"),
    _text("workload"),
    _integer("generation"),
    Column("attempt", Integer, nullable=False),
    Column("policy_revision", Integer, nullable=False),
    _integer("cache_version"),
    _json("evidence"),
    _time("decided_at"),
    PrimaryKeyConstraint("region", "tenant", "workload", "generation", "attempt"),
    schema="regional",
)

# One chain per region and one for the global side; each event's hash covers the one before it.
audit_events = Table(
    "events",
    metadata,
    _text("chain"),
    _integer("sequence"),
    _time("at"),
    _text("actor"),
    _text("database_role"),
    _text("action"),
    _text("object"),
    _json("before", nullable=True),
    _json("after", nullable=True),
    Column("hash", LargeBinary, nullable=False),
    CheckConstraint("sequence >= 1", name="sequence_positive"),
    PrimaryKeyConstraint("chain", "sequence"),
    schema="audit",
)

audit_heads = Table(
    "heads",
    metadata,
    Column("chain", Text, primary_key=True),
    _integer("sequence"),
    Column("hash", LargeBinary, nullable=False),
    schema="audit",
)

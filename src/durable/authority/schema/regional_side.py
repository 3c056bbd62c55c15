"""Nodes, grants, claims and what is observed of them: everything one region decides alone."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from durable.authority.schema.columns import (
    amount_columns,
    bounded,
    derived_column,
    integer_column,
    json_column,
    metadata,
    one_of,
    text_column,
    time_column,
    written_in_column,
)

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
    integer_column("epoch", default="1"),
    integer_column("version", default="0"),
    integer_column("tokens_issued", default="0"),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    # Until when the global side leaves the region to itself; a region without one is on none yet.
    time_column("lease_expires_at", nullable=True),
    *amount_columns("capacity_"),
    *amount_columns("used_"),
    one_of("state", "open", "fenced"),
    CheckConstraint("epoch >= 1 AND version >= 0 AND tokens_issued >= 0", name="counters"),
    CheckConstraint("region <> 'global'", name="name_not_reserved"),
    bounded("used_not_negative", "used_"),
    schema="regional",
)

# The zones that the fleet declares for a region; nodes register in no other.
zones = Table(
    "zones",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("zone"),
    PrimaryKeyConstraint("region", "zone"),
    schema="regional",
)

nodes = Table(
    "nodes",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("node"),
    text_column("zone"),
    text_column("pool"),
    *amount_columns("capacity_"),
    *amount_columns("used_"),
    json_column("labels", default="'{}'"),
    json_column("taints", default="'[]'"),
    text_column("dedicated_to", nullable=True),
    # Of the node's row, so that a change has a version and the past can be rebuilt.
    Column("unhealthy_devices", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("state", Text, nullable=False, server_default=text("'ready'")),
    text_column("cordon_reason", nullable=True),
    text_column("cordoned_by", nullable=True),
    integer_column("changed_version"),
    bounded("used_within_capacity", "used_", "capacity_"),
    one_of("state", "ready", "unknown", "lost", "removed"),
    CheckConstraint("(cordon_reason IS NULL) = (cordoned_by IS NULL)", name="cordon_owned"),
    CheckConstraint("state <> 'removed' OR used_cpu_millis + used_memory_mib + used_gpus = 0",
                    name="removed_empty"),
    PrimaryKeyConstraint("region", "node"),
    Index("nodes_changes", "region", "changed_version"),
    Index("nodes_silent", "region", postgresql_where=text("state IN ('unknown', 'lost')")),
    schema="regional",
    # Counters change at every placement: free space on a page keeps those updates off the indexes.
    postgresql_with={"fillfactor": 70},
)  # fmt: skip

# What a node looked like at each version, so that an old snapshot can be rebuilt.
node_history = Table(
    "node_history",
    metadata,
    text_column("region"),
    text_column("node"),
    integer_column("version"),
    json_column("attributes"),
    PrimaryKeyConstraint("region", "node", "version"),
    schema="regional",
)

# Apart from `nodes`: heartbeats take no region lock and must not queue behind placements.
node_leases = Table(
    "node_leases",
    metadata,
    text_column("region"),
    text_column("node"),
    integer_column("session"),
    integer_column("epoch"),
    # Who hosts the node: another agent may not, for as long as the lease lasts.
    text_column("host"),
    time_column("renewed_at"),
    time_column("expires_at"),
    CheckConstraint("session >= 1 AND epoch >= 1", name="counters"),
    ForeignKeyConstraint(["region", "node"], ["regional.nodes.region", "regional.nodes.node"]),
    PrimaryKeyConstraint("region", "node"),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)

# Which agent hosts the region's declared nodes; it counts while that agent's connection lives.
agent_locks = Table(
    "agent_locks",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    Column("pid", Integer, nullable=False),
    # The number of an advisory lock that the holder's connection holds.
    integer_column("life_sign"),
    text_column("holder"),
    time_column("held_since"),
    PrimaryKeyConstraint("region"),
    schema="regional",
)

devices = Table(
    "devices",
    metadata,
    text_column("region"),
    text_column("node"),
    text_column("device"),
    ForeignKeyConstraint(["region", "node"], ["regional.nodes.region", "regional.nodes.node"]),
    PrimaryKeyConstraint("region", "node", "device"),
    schema="regional",
)

device_holds = Table(
    "device_holds",
    metadata,
    text_column("region"),
    text_column("node"),
    text_column("device"),
    integer_column("token"),
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
    text_column("tenant"),
    *amount_columns("granted_"),
    *amount_columns("used_"),
    *amount_columns("protected_"),
    # What a lowered quota wants back as soon as it is free: nothing new may be reserved from it.
    *amount_columns("owed_"),
    bounded("used_within_granted", "used_", "granted_"),
    bounded("protected_within_granted", "protected_", "granted_"),
    bounded("owed_within_granted", "owed_", "granted_"),
    PrimaryKeyConstraint("region", "tenant"),
    schema="regional",
    postgresql_with={"fillfactor": 50},
)

# One row per half of a transfer that reached this region, negative where grant was taken: a resend
# changes nothing, and the sum up to a version is the grant at that version.
grant_changes = Table(
    "grant_changes",
    metadata,
    text_column("region"),
    text_column("transfer"),
    text_column("tenant"),
    *amount_columns(),
    integer_column("version"),
    time_column("at"),
    PrimaryKeyConstraint("region", "transfer"),
    schema="regional",
)

# A region's copy of the slots it owns. One row per slot, whatever the region, so that two regions
# that share a database can never both own it. A slot that was taken away keeps its row and number.
slots = Table(
    "slots",
    metadata,
    text_column("tenant"),
    text_column("workload"),
    Column("slot", Integer, nullable=False),
    text_column("region", nullable=True),
    integer_column("number"),
    PrimaryKeyConstraint("tenant", "workload", "slot"),
    UniqueConstraint("region", "tenant", "workload", "slot"),
    schema="regional",
)

recovery_budgets = Table(
    "recovery_budgets",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("budget"),
    *amount_columns(),
    *amount_columns("used_"),
    time_column("expires_at"),
    text_column("incident", nullable=True),
    bounded("used_within_budget", "used_", ""),
    PrimaryKeyConstraint("region", "budget"),
    schema="regional",
)

policy_states = Table(
    "policy_states",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    Column("revision", Integer, nullable=False),
    text_column("state"),
    text_column("changed_by"),
    time_column("changed_at"),
    # Of the order that it follows: an older one changes nothing in this region any more.
    integer_column("number", default="0"),
    # What an override may let work pass here while this revision is in force.
    json_column("overridable_gates", default="'[]'"),
    # What became of each workload when it was rolled back.
    json_column("report", nullable=True),
    Column("report_count", Integer, nullable=False, server_default=text("0")),
    one_of("state", "published", "shadow", "canary", "active", "superseded", "rolled_back"),
    PrimaryKeyConstraint("region", "revision"),
    Index(
        "policy_states_one_active", "region", unique=True,
        postgresql_where=text("state = 'active'"),
    ),
    Index(
        "policy_states_one_canary", "region", unique=True,
        postgresql_where=text("state = 'canary'"),
    ),
    CheckConstraint("number >= 0", name="number_not_negative"),
    schema="regional",
)  # fmt: skip

# What a workload wants of the region: written by the workload under its revision, read by the
# placement, and closed with the withdrawal of the placement's request.
shares = Table(
    "shares",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    integer_column("revision"),
    Column("slots", ARRAY(Integer), nullable=False),
    json_column("spec"),
    text_column("release_reason", nullable=True),
    # Of a job: how many of its slots may have a claim at once, and from when to when it is to run.
    Column("at_once", Integer, nullable=True),
    time_column("admitted_at", nullable=True),
    time_column("due_at", nullable=True),
    # The recovery on whose budgets the slots that it moved may draw.
    text_column("incident", nullable=True),
    Column("moved", ARRAY(Integer), nullable=False, server_default=text("'{}'")),
    time_column("closed_at", nullable=True),
    CheckConstraint("revision >= 1", name="revision_positive"),
    CheckConstraint("at_once >= 0", name="at_once_not_negative"),
    PrimaryKeyConstraint("region", "tenant", "workload", "generation"),
    Index(
        "shares_open", "region", "tenant", "workload", postgresql_where=text("closed_at IS NULL")
    ),
    schema="regional",
)

# How many replicas of a workload voluntary stops must leave serving here: its part of the
# disruption allowance, as escrow. Written by the workload, read by the commit.
disruption_floors = Table(
    "disruption_floors",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("tenant"),
    text_column("workload"),
    integer_column("revision"),
    Column("must_serve", Integer, nullable=False),
    CheckConstraint("must_serve >= 0", name="must_serve_not_negative"),
    PrimaryKeyConstraint("region", "tenant", "workload"),
    schema="regional",
)

requests = Table(
    "requests",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    Column("slots", ARRAY(Integer), nullable=False),
    Column("priority", Integer, nullable=False),
    text_column("state"),
    # Why it waits; it becomes words only where people read it.
    text_column("pending_code", nullable=True),
    json_column("pending_parameters", nullable=True),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    time_column("enqueued_at"),
    time_column("deadline"),
    time_column("next_retry_at", nullable=True),
    # What its agents run; a placement's generation never changes what it runs.
    json_column("spec", default="'{}'"),
    Column("waiting", Integer, nullable=False, server_default=text("0")),
    Column("completed", Integer, nullable=False, server_default=text("0")),
    # Of a job: how many slots were given up, how many wait until others have ended, how often its
    # slots failed in all, and the limit on its claims that it obeys.
    Column("given_up", Integer, nullable=False, server_default=text("0")),
    Column("held_back", Integer, nullable=False, server_default=text("0")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("at_once", Integer, nullable=True),
    integer_column("decided_version", default="0"),
    written_in_column(),
    one_of("state", "pending", "reserved", "bound", "placed", "withdrawn", "timed_out"),
    CheckConstraint("state <> 'pending' OR pending_code IS NOT NULL", name="waits_with_reason"),
    CheckConstraint(
        "(pending_code IS NULL) = (pending_parameters IS NULL)", name="reason_whole"
    ),
    CheckConstraint("enqueued_at < deadline", name="waits_with_deadline"),
    CheckConstraint("waiting >= 0", name="waiting_not_negative"),
    CheckConstraint(
        "completed >= 0 AND given_up >= 0 AND completed + given_up <= cardinality(slots)",
        name="ended_within_slots",
    ),
    CheckConstraint("held_back >= 0 AND failures >= 0", name="job_not_negative"),
    PrimaryKeyConstraint("region", "tenant", "workload", "generation"),
    Index(None, "region", "written_in"),
    Index(
        "requests_queue", "region", "priority", "enqueued_at",
        postgresql_where=text("state IN ('pending', 'timed_out')"),
    ),
    Index(
        "requests_live", "region", "tenant", "workload", "generation",
        postgresql_where=text("state <> 'withdrawn'"),
    ),
    schema="regional",
)  # fmt: skip

# `freed_version` is the version at which the claim on capacity, quota, devices and slot ended;
# while it is null the claim counts, whether the reservation is held or has become a binding.
reservations = Table(
    "reservations",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    integer_column("token"),
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    Column("slot", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    text_column("node"),
    *amount_columns(),
    Column("devices", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    text_column("budget", nullable=True),
    # The emergency draw that it counts against, instead of the grant.
    text_column("emergency", nullable=True),
    json_column("requirements", default="'{}'"),
    Column("priority", Integer, nullable=False),
    Column("policy_revision", Integer, nullable=False),
    integer_column("epoch"),
    Column("state", Text, nullable=False, server_default=text("'held'")),
    time_column("reserved_at"),
    time_column("expires_at"),
    time_column("ended_at", nullable=True),
    integer_column("created_version"),
    integer_column("changed_version"),
    integer_column("freed_version", nullable=True),
    text_column("actor"),
    text_column("evidence"),
    derived_column("claimed_slot", Integer, "CASE WHEN freed_version IS NULL THEN slot END"),
    derived_column("bound_token", BigInteger, "CASE WHEN state = 'bound' THEN token END"),
    one_of("state", "held", "bound", "released", "expired"),
    bounded("amount_not_negative", ""),
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
    ForeignKeyConstraint(
        ["region", "emergency"],
        ["regional.emergency_draws.region", "regional.emergency_draws.override"],
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
    # Whoever looks for claims by name says `claimed_slot`, and finds them here: what is over is not
    # in it. The reference of claims to their slots is checked by it, too.
    Index(
        "reservations_one_claim_per_slot", "tenant", "workload", "claimed_slot",
        unique=True, postgresql_where=text("claimed_slot IS NOT NULL"),
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
    text_column("region"),
    integer_column("token"),
    derived_column("reservation_state", Text, "'bound'::text"),
    Column("state", Text, nullable=False, server_default=text("'bound'")),
    time_column("bound_at"),
    time_column("started_at", nullable=True),
    time_column("stop_requested_at", nullable=True),
    text_column("stop_reason", nullable=True),
    time_column("released_at", nullable=True),
    integer_column("changed_version"),
    text_column("actor"),
    text_column("evidence"),
    one_of("state", "bound", "starting", "released"),
    CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released_at"),
    CheckConstraint("state <> 'starting' OR started_at IS NOT NULL", name="started_at"),
    CheckConstraint("(stop_requested_at IS NULL) = (stop_reason IS NULL)", name="stop_reason"),
    ForeignKeyConstraint(
        ["region", "token", "reservation_state"],
        [f"regional.reservations.{column}" for column in ("region", "token", "state")],
    ),
    PrimaryKeyConstraint("region", "token"),
    Index("bindings_changes", "region", "changed_version"),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)

# Claims that somebody asked to have replaced, one row for each who did: a cause that ends takes
# back its own mark and no other. A trigger drops the rows when the claim ends.
replacements = Table(
    "replacements",
    metadata,
    text_column("region"),
    integer_column("token"),
    # Who can take it back: a drain, an override, a policy's rollback, or one request.
    text_column("cause"),
    text_column("actor"),
    text_column("reason"),
    time_column("requested_at"),
    # When its workload began to act on it.
    time_column("begun_at", nullable=True),
    ForeignKeyConstraint(
        ["region", "token"], ["regional.reservations.region", "regional.reservations.token"]
    ),
    PrimaryKeyConstraint("region", "token", "cause"),
    Index(None, "region", "cause"),
    schema="regional",
)

# Nodes that are being emptied, and those that were: one row for each order.
drains = Table(
    "drains",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("request"),
    text_column("kind"),
    text_column("name"),
    text_column("actor"),
    text_column("reason"),
    Column("wait_for_jobs", Boolean, nullable=False),
    Column("nodes", ARRAY(Text), nullable=False),
    # Those that it cordoned itself: others stay cordoned when it is cancelled.
    Column("cordoned", ARRAY(Text), nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'draining'")),
    time_column("started_at"),
    time_column("deadline_at"),
    time_column("ended_at", nullable=True),
    Column("outcome", Text, nullable=False, server_default=text("''")),
    one_of("kind", "node", "zone", "pool"),
    one_of("state", "draining", "drained", "cancelled", "gave_up"),
    CheckConstraint("(state = 'draining') = (ended_at IS NULL)", name="ended_at"),
    CheckConstraint("started_at < deadline_at", name="deadline_after_start"),
    PrimaryKeyConstraint("region", "request"),
    Index("drains_latest", "region", "started_at"),
    Index(
        "drains_one_at_a_time", "region", "kind", "name",
        unique=True, postgresql_where=text("ended_at IS NULL"),
    ),
    schema="regional",
)  # fmt: skip

observations = Table(
    "observations",
    metadata,
    text_column("region"),
    integer_column("token"),
    integer_column("session"),
    integer_column("sequence"),
    text_column("state"),
    text_column("evidence"),
    text_column("log_directory", nullable=True),
    text_column("observer"),
    time_column("received_at"),
    # That its process has ended with; none while it runs, and if a signal ended it.
    Column("exit_code", Integer, nullable=True),
    written_in_column(),
    one_of("state", "starting", "running", "ready", "serving", "failed", "stopped"),
    CheckConstraint(
        "exit_code IS NULL OR (exit_code BETWEEN 0 AND 255 AND state IN ('failed', 'stopped'))",
        name="exit_code_of_an_end",
    ),
    ForeignKeyConstraint(
        ["region", "token"], ["regional.bindings.region", "regional.bindings.token"]
    ),
    PrimaryKeyConstraint("region", "token"),
    Index(None, "region", "written_in"),
    schema="regional",
    postgresql_with={"fillfactor": 70},
)

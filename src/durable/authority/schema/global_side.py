"""Tenants, quotas, grants, slots, workloads, policies, overrides: facts that no region owns."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from durable.authority.schema.columns import (
    amount_columns,
    bounded,
    integer_column,
    json_column,
    metadata,
    one_of,
    text_column,
    time_column,
)

tenants = Table(
    "tenants", metadata, Column("tenant", Text, primary_key=True), time_column("created_at"),
    schema="global",
)  # fmt: skip

# `hard` is the limit in force, `target` the one that was requested. They differ while a lowered
# quota waits for usage to fall.
quotas = Table(
    "quotas",
    metadata,
    Column("tenant", Text, ForeignKey("global.tenants.tenant"), primary_key=True),
    *amount_columns("hard_"),
    *amount_columns("target_"),
    *amount_columns("protected_"),
    *amount_columns("granted_"),
    bounded("granted_within_hard", "granted_", "hard_"),
    bounded("target_within_hard", "target_", "hard_"),
    bounded("protected_within_target", "protected_", "target_"),
    schema="global",
)

grants_by_region = Table(
    "grants",
    metadata,
    Column("tenant", Text, ForeignKey("global.quotas.tenant"), nullable=False),
    text_column("region"),
    *amount_columns("granted_"),
    *amount_columns("held_"),
    bounded("held_within_granted", "held_", "granted_"),
    PrimaryKeyConstraint("tenant", "region"),
    schema="global",
)

grant_transfers = Table(
    "grant_transfers",
    metadata,
    Column("transfer", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("global.quotas.tenant"), nullable=False),
    text_column("from_region", nullable=True),
    text_column("to_region", nullable=True),
    *amount_columns(),
    text_column("state"),
    text_column("actor"),
    time_column("requested_at"),
    time_column("settled_at", nullable=True),
    bounded("amount_not_negative", ""),
    one_of("state", "requested", "moved", "settled", "refused"),
    CheckConstraint("(state = 'settled') = (settled_at IS NOT NULL)", name="settled_at"),
    CheckConstraint("from_region IS DISTINCT FROM to_region", name="ends_differ"),
    Index(
        "grant_transfers_open",
        "tenant",
        postgresql_where=text("state IN ('requested', 'moved')"),
    ),
    schema="global",
)

workloads = Table(
    "workloads",
    metadata,
    Column("tenant", Text, ForeignKey("global.tenants.tenant"), nullable=False),
    text_column("workload"),
    integer_column("generation"),
    json_column("spec"),
    Column("finalizers", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    time_column("delete_requested_at", nullable=True),
    json_column("status", default="'{}'"),
    integer_column("observed_generation", default="0"),
    # Which slots each region must run.
    json_column("share", default="'{}'"),
    # Of the newest division of the slots: an older one changes nothing any more.
    integer_column("revision", default="0"),
    # How many generations there were; the wanted one may be an older one, when a rollout is undone.
    integer_column("generations", default="1"),
    # The last one of which every replica served at once.
    integer_column("stable_generation", nullable=True),
    # The rollout that is under way.
    json_column("rollout", nullable=True),
    # The row stays as a tombstone, so that generations never start again.
    time_column("deleted_at", nullable=True),
    # When this generation was admitted: a deadline counts from here.
    time_column("admitted_at", default="clock_timestamp()"),
    time_column("deadline_missed_at", nullable=True),
    # Until when a job that has ended is listed; none: for ever.
    time_column("listed_until", nullable=True),
    CheckConstraint(
        "generation BETWEEN 1 AND generations AND observed_generation <= generations"
        " AND stable_generation <= generations",
        name="generation",
    ),
    CheckConstraint("deleted_at IS NULL OR finalizers = '{}'", name="deleted_has_no_finalizers"),
    PrimaryKeyConstraint("tenant", "workload"),
    Index("workloads_live", "tenant", "workload", postgresql_where=text("deleted_at IS NULL")),
    Index("workloads_ended", "listed_until", postgresql_where=text("deleted_at IS NOT NULL")),
    schema="global",
)

# Requests about a workload with their answers: the same request again gets the same answer.
workload_requests = Table(
    "workload_requests",
    metadata,
    text_column("tenant"),
    text_column("workload"),
    text_column("request"),
    text_column("kind"),
    Column("payload_sha256", LargeBinary, nullable=False),
    json_column("answer"),
    text_column("actor"),
    time_column("at"),
    ForeignKeyConstraint(
        ["tenant", "workload"], ["global.workloads.tenant", "global.workloads.workload"]
    ),
    one_of("kind", "apply", "scale", "delete", "pause", "resume", "promote", "rollback", "replace"),
    PrimaryKeyConstraint("tenant", "workload", "request"),
    Index("workload_requests_age", "tenant", "workload", "at"),
    schema="global",
)

# What a workload was, generation by generation; the last ones are kept.
generations = Table(
    "generations",
    metadata,
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    json_column("spec"),
    text_column("actor"),
    text_column("reason"),
    time_column("admitted_at"),
    text_column("outcome"),
    Column("outcome_reason", Text, nullable=False, server_default=text("''")),
    # When every replica served at once.
    time_column("completed_at", nullable=True),
    ForeignKeyConstraint(
        ["tenant", "workload"], ["global.workloads.tenant", "global.workloads.workload"]
    ),
    one_of("outcome", "progressing", "complete", "superseded", "rolled_back"),
    CheckConstraint("outcome <> 'complete' OR completed_at IS NOT NULL", name="complete"),
    PrimaryKeyConstraint("tenant", "workload", "generation"),
    schema="global",
)

# Which region may bind a slot is one row, and only a transfer changes it. `number` counts owners so
# far, so a transfer that arrives late is recognised by its old number. The row stays when no region
# owns the slot, so that numbers never start again.
slot_owners = Table(
    "slots",
    metadata,
    Column("tenant", Text, ForeignKey("global.tenants.tenant"), nullable=False),
    text_column("workload"),
    Column("slot", Integer, nullable=False),
    text_column("region", nullable=True),
    integer_column("number"),
    text_column("transfer"),
    time_column("since"),
    # Its region's copy may have been taken back; a division that keeps it there hands it out anew.
    Column("is_leaving", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("slot >= 0 AND number >= 1", name="counters"),
    PrimaryKeyConstraint("tenant", "workload", "slot"),
    schema="global",
)

policies = Table(
    "policies",
    metadata,
    Column("revision", Integer, primary_key=True, autoincrement=False),
    json_column("spec"),
    text_column("published_by"),
    time_column("published_at"),
    CheckConstraint("revision >= 1", name="revision_positive"),
    schema="global",
)

overrides = Table(
    "overrides",
    metadata,
    Column("override", Text, primary_key=True),
    text_column("kind"),
    json_column("scope"),
    json_column("effect"),
    text_column("actor"),
    text_column("reason"),
    Column("needs_approval", Boolean, nullable=False),
    text_column("approver", nullable=True),
    text_column("state"),
    time_column("proposed_at"),
    time_column("activated_at", nullable=True),
    time_column("expires_at"),
    time_column("latest_expiry"),
    time_column("ended_at", nullable=True),
    one_of("state", "proposed", "active", "expired", "revoked", "rejected"),
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

"""Tenants, quotas, slots, workloads, policies, operators: facts no region owns."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
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
    integer_column,
    json_column,
    metadata,
    one_of,
    text_column,
    time_column,
)

# Every region that was ever declared: whether it may take part, and until when its lease lasts. The
# fact; a region's own row has a copy of epoch and state, and obeys a lease that ends no later.
regions_known = Table(
    "regions",
    metadata,
    Column("region", Text, primary_key=True),
    integer_column("epoch", default="1"),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    time_column("since", default="clock_timestamp()"),
    Column("reason", Text, nullable=False, server_default=text("''")),
    # What led to the state.
    json_column("evidence", default="'{}'"),
    # How often the lease was renewed, by which worker last, and until when it lasts; none so far: a
    # region that was never leased cannot be waited out.
    integer_column("lease_number", default="0"),
    text_column("lease_holder", nullable=True),
    time_column("lease_expires_at", nullable=True),
    # How long it lasts from a renewal.
    Column("lease_seconds", Double, nullable=True),
    # While it is fenced: whether its own database has the fence and answers, so that its lease may
    # be extended, and what could not be moved goes on. A lease that has lapsed is not begun anew.
    Column("is_leased_fenced", Boolean, nullable=False, server_default=text("false")),
    # When its worker last saw the region as it was.
    time_column("watched_at", nullable=True),
    # What whoever watches it from outside takes it for, in a sentence, and since when.
    json_column("seen", nullable=True),
    one_of("state", "open", "suspected", "fenced"),
    CheckConstraint("epoch >= 1 AND lease_number >= 0", name="counters"),
    CheckConstraint("(lease_number = 0) = (lease_expires_at IS NULL)", name="leased"),
    CheckConstraint("region <> 'global'", name="name_not_reserved"),
    schema="global",
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
    one_of("state", "requested", "moved", "lapsed", "settled", "refused"),
    CheckConstraint("(state = 'settled') = (settled_at IS NOT NULL)", name="settled_at"),
    CheckConstraint("from_region IS DISTINCT FROM to_region", name="ends_differ"),
    Index(
        "grant_transfers_open",
        "tenant",
        postgresql_where=text("state IN ('requested', 'moved')"),
    ),
    # Given back without the region, which follows when it answers again.
    Index("grant_transfers_lapsed", "from_region", postgresql_where=text("state = 'lapsed'")),
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
    # The recovery that moved it, on whose budgets it may draw.
    text_column("incident", nullable=True),
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
    # Whether its sender proved to be the actor: a repetition then has to, as well.
    Column("is_signed", Boolean, nullable=False),
    time_column("at"),
    ForeignKeyConstraint(
        ["tenant", "workload"], ["global.workloads.tenant", "global.workloads.workload"]
    ),
    one_of("kind", "apply", "scale", "delete", "pause", "resume", "promote", "rollback", "replace"),
    PrimaryKeyConstraint("tenant", "workload", "request"),
    Index("workload_requests_age", "tenant", "workload", "at"),
    schema="global",
)

# Whether critical work would come back if a region were lost now, as it was last simulated.
readiness = Table(
    "readiness",
    metadata,
    text_column("tenant"),
    text_column("workload"),
    Column("is_met", Boolean, nullable=False),
    text_column("sentence"),
    ForeignKeyConstraint(
        ["tenant", "workload"], ["global.workloads.tenant", "global.workloads.workload"]
    ),
    PrimaryKeyConstraint("tenant", "workload"),
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
    # Which slots each region had when the generation was left; where they go back to.
    json_column("share", default="'{}'"),
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

# How far a revision has come, and by which order; one at a time is on its way through the regions.
policy_rollouts = Table(
    "policy_rollouts",
    metadata,
    Column("revision", Integer, ForeignKey("global.policies.revision"), primary_key=True),
    text_column("stage"),
    integer_column("number", default="0"),
    text_column("canary", nullable=True),
    # The region that is watched now, since when, and what waited there before.
    json_column("bake", nullable=True),
    Column("is_paused", Boolean, nullable=False, server_default=text("false")),
    Column("to_revision", Integer, nullable=True),
    Column("reroll", Boolean, nullable=False, server_default=text("false")),
    text_column("actor"),
    Column("reason", Text, nullable=False, server_default=text("''")),
    time_column("changed_at"),
    # When it last came into force everywhere; a rollback goes to no revision that never was.
    time_column("in_force_at", nullable=True),
    # By region, what it would have changed of recent decisions.
    json_column("shadows", default="'{}'"),
    one_of(
        "stage", "shadow", "canary", "widening", "everywhere", "superseded", "rolling_back",
        "rolled_back",
    ),
    CheckConstraint("number >= 0", name="number_not_negative"),
    CheckConstraint("stage <> 'canary' OR canary IS NOT NULL", name="canary_has_region"),
    Index(
        "policy_rollouts_one_under_way", text("(true)"), unique=True,
        postgresql_where=text("stage IN ('canary', 'widening')"),
    ),
    schema="global",
)  # fmt: skip

# Orders about revisions, in the order in which they were taken: of two at once, one is told of the
# other.
policy_orders = Table(
    "policy_orders",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("revision", Integer, ForeignKey("global.policies.revision"), nullable=False),
    text_column("kind"),
    json_column("payload"),
    text_column("actor"),
    text_column("reason"),
    text_column("request"),
    Column("is_signed", Boolean, nullable=False),
    time_column("at"),
    one_of("kind", "promote", "pause", "rollback"),
    CheckConstraint("number >= 1", name="number_positive"),
    UniqueConstraint("request"),
    Index(None, "revision", "number"),
    schema="global",
)

# A region that was lost, and how far its work has come; one of a region is under way.
recoveries = Table(
    "recoveries",
    metadata,
    text_column("region"),
    integer_column("epoch"),
    text_column("stage"),
    text_column("actor"),
    text_column("reason"),
    json_column("evidence", default="'{}'"),
    time_column("lost_at"),
    time_column("started_at"),
    time_column("changed_at"),
    time_column("fenced_at", nullable=True),
    time_column("movable_at", nullable=True),
    time_column("moved_at", nullable=True),
    time_column("back_since", nullable=True),
    time_column("ended_at", nullable=True),
    # Which budgets of other regions are open for it, and what was left behind at its end.
    json_column("draws", default="'[]'"),
    json_column("findings", default="'[]'"),
    one_of(
        "stage", "suspected", "confirmed", "moving", "holding", "failing_back", "settling",
        "failed_back", "settled", "vetoed", "dismissed", "superseded",
    ),
    CheckConstraint("epoch >= 2", name="epoch_fences"),
    CheckConstraint(
        "(ended_at IS NOT NULL) = (stage IN"
        " ('failed_back', 'settled', 'vetoed', 'dismissed', 'superseded'))",
        name="ended",
    ),
    PrimaryKeyConstraint("region", "epoch"),
    Index("recoveries_open", "region", postgresql_where=text("ended_at IS NULL")),
    schema="global",
)  # fmt: skip

recovery_orders = Table(
    "recovery_orders",
    metadata,
    text_column("region"),
    integer_column("epoch"),
    text_column("request"),
    text_column("kind"),
    text_column("actor"),
    text_column("reason"),
    time_column("at"),
    PrimaryKeyConstraint("region", "epoch", "request"),
    one_of("kind", "confirm", "veto", "failback", "settle"),
    ForeignKeyConstraint(
        ["region", "epoch"], ["global.recoveries.region", "global.recoveries.epoch"]
    ),
    schema="global",
)

# What a recovery moves of each workload.
recovery_moves = Table(
    "recovery_moves",
    metadata,
    text_column("region"),
    integer_column("epoch"),
    text_column("tenant"),
    text_column("workload"),
    text_column("kind"),
    Column("priority", Integer, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("slots", ARRAY(Integer), nullable=False),
    time_column("tried_at", nullable=True),
    time_column("moved_at", nullable=True),
    Column("serving", Integer, nullable=False, server_default=text("0")),
    Column("placed", Integer, nullable=False, server_default=text("0")),
    time_column("recovered_at", nullable=True),
    time_column("whole_at", nullable=True),
    time_column("returned_at", nullable=True),
    Column("waits", Text, nullable=False, server_default=text("''")),
    one_of("kind", "service", "job"),
    PrimaryKeyConstraint("region", "epoch", "tenant", "workload"),
    ForeignKeyConstraint(
        ["region", "epoch"], ["global.recoveries.region", "global.recoveries.epoch"]
    ),
    schema="global",
)

# Who may ask for changes. A row stays when its operator is removed: the audit names it.
operators = Table(
    "operators",
    metadata,
    Column("operator", Text, primary_key=True),
    text_column("kind"),
    text_column("public_key", nullable=True),
    text_column("created_by"),
    time_column("created_at"),
    time_column("removed_at", nullable=True),
    # One key proves to be one person: two operators who share one are no two people.
    UniqueConstraint("public_key"),
    one_of("kind", "person", "service"),
    schema="global",
)

# A verb, or '*' for all of them; of a tenant, in a region, or without both for everything: ''.
operator_rights = Table(
    "operator_rights",
    metadata,
    Column("operator", Text, ForeignKey("global.operators.operator"), nullable=False),
    text_column("verb"),
    Column("tenant", Text, nullable=False, server_default=text("''")),
    Column("region", Text, nullable=False, server_default=text("''")),
    text_column("granted_by"),
    time_column("granted_at"),
    PrimaryKeyConstraint("operator", "verb", "tenant", "region"),
    schema="global",
)

# Which installation this is: what is signed for one counts in no other.
deployment = Table(
    "deployment",
    metadata,
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("id", Text, nullable=False, server_default=text("gen_random_uuid()::text")),
    CheckConstraint("singleton", name="one_row"),
    schema="global",
)

# Requests that a workflow counts itself, and the run that had them first: reset, or terminated and
# started again, it remembers none of them.
taken_requests = Table(
    "taken_requests",
    metadata,
    text_column("workflow_id"),
    text_column("request"),
    text_column("run"),
    integer_column("number"),
    text_column("message"),
    text_column("actor"),
    time_column("at"),
    PrimaryKeyConstraint("workflow_id", "request"),
    Index("taken_requests_age", "at"),
    schema="global",
)

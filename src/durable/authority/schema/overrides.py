"""Overrides: what people decided for a while, each region's copy of it, and emergency draws."""

from sqlalchemy import (
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
    text,
)

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

overrides = Table(
    "overrides",
    metadata,
    Column("override", Text, primary_key=True),
    text_column("kind"),
    json_column("scope"),
    json_column("effect"),
    text_column("actor"),
    text_column("reason"),
    Column("ticket", Text, nullable=False, server_default=text("''")),
    integer_column("ttl_seconds"),
    Column("needs_approval", Boolean, nullable=False),
    text_column("approver", nullable=True),
    # Who made its latest change.
    text_column("changed_by"),
    text_column("state"),
    # It grows with every change: a region replaces the copy of a smaller one, never the reverse.
    integer_column("number", default="1"),
    time_column("proposed_at"),
    time_column("activated_at", nullable=True),
    # While it is proposed: when the proposal lapses.
    time_column("expires_at"),
    time_column("latest_expiry"),
    time_column("ended_at", nullable=True),
    Column("outcome", Text, nullable=False, server_default=text("''")),
    # By request id, what was asked and answered: the same request again gets the same answer.
    json_column("requests", default="'{}'"),
    one_of("state", "proposed", "active", "expired", "revoked", "rejected"),
    CheckConstraint("length(btrim(reason)) > 0", name="reason_given"),
    CheckConstraint("approver IS NULL OR approver <> actor", name="second_person"),
    CheckConstraint(
        "state <> 'active' OR NOT needs_approval OR approver IS NOT NULL", name="approved"
    ),
    CheckConstraint(
        "proposed_at < expires_at AND expires_at <= latest_expiry", name="time_limited"
    ),
    CheckConstraint("ttl_seconds > 0 AND number >= 1", name="counters"),
    CheckConstraint("state <> 'active' OR activated_at IS NOT NULL", name="activated"),
    CheckConstraint("(ended_at IS NULL) = (state IN ('proposed', 'active'))", name="ended"),
    Index("overrides_live", "expires_at", postgresql_where=text("ended_at IS NULL")),
    Index("overrides_latest", "proposed_at"),
    schema="global",
)

# The region's copy of the overrides that concern it, which its commits obey; see `number` there.
regional_overrides = Table(
    "overrides",
    metadata,
    Column("region", Text, ForeignKey("regional.regions.region"), nullable=False),
    text_column("override"),
    integer_column("number"),
    text_column("kind"),
    json_column("scope"),
    json_column("effects"),
    text_column("actor"),
    text_column("reason"),
    time_column("since"),
    time_column("expires_at"),
    time_column("ended_at", nullable=True),
    # How many claims were to be replaced because of it.
    Column("marked", Integer, nullable=False, server_default=text("0")),
    CheckConstraint("number >= 1 AND marked >= 0", name="counters"),
    PrimaryKeyConstraint("region", "override"),
    Index("overrides_in_force", "region", postgresql_where=text("ended_at IS NULL")),
    schema="regional",
)

# What a tenant may use beside its grant while an emergency quota is in force. It has a counter of
# its own, so that the rules of grants stay as they are.
emergency_draws = Table(
    "emergency_draws",
    metadata,
    text_column("region"),
    text_column("override"),
    text_column("tenant"),
    *amount_columns(),
    *amount_columns("used_"),
    time_column("expires_at"),
    Column("is_over", Boolean, nullable=False, server_default=text("false")),
    bounded("used_within_draw", "used_", ""),
    ForeignKeyConstraint(
        ["region", "override"], ["regional.overrides.region", "regional.overrides.override"]
    ),
    PrimaryKeyConstraint("region", "override"),
    Index(
        "emergency_draws_live", "region", "tenant",
        postgresql_where=text(
            "NOT is_over OR used_cpu_millis + used_memory_mib + used_gpus > 0"
        ),
    ),
    schema="regional",
)  # fmt: skip

"""What is only ever appended: outcomes, transitions, decisions and the audit; and their repeats."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from durable.authority.schema.columns import (
    integer_column,
    json_column,
    metadata,
    one_of,
    text_column,
    time_column,
)

intents = Table(
    "intents",
    metadata,
    text_column("region"),
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    Column("slot", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    text_column("step"),
    # Why a release was safe, empty for every other step: part of the key, so that a release for one
    # cause does not use up the key of a release for another.
    text_column("cause"),
    Column("ordinal", Integer, nullable=False),
    Column("payload_sha256", LargeBinary, nullable=False),
    json_column("outcome"),
    integer_column("version"),
    time_column("recorded_at"),
    one_of("step", "reserve", "bind", "start", "evict", "release", "expire"),
    CheckConstraint("(step = 'release') = (cause <> '')", name="cause_of_release"),
    PrimaryKeyConstraint(
        "region", "tenant", "workload", "generation", "slot", "attempt", "step", "cause", "ordinal"
    ),
    schema="regional",
)

transitions = Table(
    "transitions",
    metadata,
    text_column("region"),
    integer_column("version"),
    Column("ordinal", BigInteger, Identity(always=True), nullable=False),
    text_column("kind"),
    integer_column("token"),
    text_column("from_state", nullable=True),
    text_column("to_state"),
    text_column("actor"),
    text_column("evidence"),
    text_column("database_role"),
    time_column("at"),
    one_of("kind", "reservation", "binding"),
    PrimaryKeyConstraint("region", "version", "ordinal"),
    schema="regional",
)

decisions = Table(
    "decisions",
    metadata,
    text_column("region"),
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    Column("attempt", Integer, nullable=False),
    Column("policy_revision", Integer, nullable=False),
    integer_column("cache_version"),
    json_column("evidence"),
    time_column("decided_at"),
    # A digest of what was found, where nothing was placed: the same again is counted below.
    text_column("findings", nullable=True),
    PrimaryKeyConstraint("region", "tenant", "workload", "generation", "attempt"),
    # What was decided last, for whoever compares revisions.
    Index("decisions_recent", "region", "decided_at"),
    schema="regional",
)

# How often a decision that placed nothing was made again with the same findings; no append, or a
# request that nothing can help would fill the disk by waiting.
decision_repeats = Table(
    "decision_repeats",
    metadata,
    text_column("region"),
    text_column("tenant"),
    text_column("workload"),
    integer_column("generation"),
    Column("attempt", Integer, nullable=False),
    integer_column("repeats"),
    integer_column("cache_version"),
    time_column("repeated_at"),
    CheckConstraint("repeats >= 1", name="repeats_positive"),
    PrimaryKeyConstraint("region", "tenant", "workload", "generation", "attempt"),
    schema="regional",
)

# One chain per region and one for the global side; each event's hash covers the one before it.
audit_events = Table(
    "events",
    metadata,
    text_column("chain"),
    integer_column("sequence"),
    time_column("at"),
    text_column("actor"),
    text_column("database_role"),
    text_column("action"),
    text_column("object"),
    json_column("before", nullable=True),
    json_column("after", nullable=True),
    Column("hash", LargeBinary, nullable=False),
    CheckConstraint("sequence >= 1", name="sequence_positive"),
    # What every reader's calendar has: no infinity, and no year before the first.
    CheckConstraint(
        "at BETWEEN '0002-01-01 00:00:00+00' AND '9999-01-01 00:00:00+00'", name="at_readable"
    ),
    PrimaryKeyConstraint("chain", "sequence"),
    Index(
        "events_messages", "chain", text("(after ->> 'message_key')"),
        unique=True, postgresql_where=text("after ? 'message_key'"),
    ),
    schema="audit",
)  # fmt: skip

audit_heads = Table(
    "heads",
    metadata,
    Column("chain", Text, primary_key=True),
    integer_column("sequence"),
    Column("hash", LargeBinary, nullable=False),
    schema="audit",
)

# Which role may append which actions, to the global side's chain or to regions'; from `roles.py`.
audit_rights = Table(
    "rights",
    metadata,
    text_column("role"),
    text_column("side"),
    text_column("action"),
    one_of("side", "global", "regional"),
    PrimaryKeyConstraint("role", "side", "action"),
    schema="audit",
)

-- What is only ever appended, but for the counts of repeats.

CREATE SCHEMA audit;

CREATE TABLE regional.intents (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    slot INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step TEXT NOT NULL,
    -- Why a release was safe, empty for every other step: part of the key, so that a release for one
    -- cause does not use up the key of a release for another.
    cause TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    payload_sha256 BYTEA NOT NULL,
    outcome JSONB NOT NULL,
    version BIGINT NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT intents_key PRIMARY KEY
        (region, tenant, workload, generation, slot, attempt, step, cause, ordinal),
    CONSTRAINT intents_step_known
        CHECK (step IN ('reserve', 'bind', 'start', 'evict', 'release', 'expire')),
    CONSTRAINT intents_cause_of_release CHECK ((step = 'release') = (cause <> ''))
);

CREATE TABLE regional.transitions (
    region TEXT NOT NULL,
    version BIGINT NOT NULL,
    ordinal BIGINT GENERATED ALWAYS AS IDENTITY,
    kind TEXT NOT NULL,
    token BIGINT NOT NULL,
    from_state TEXT,
    to_state TEXT NOT NULL,
    actor TEXT NOT NULL,
    evidence TEXT NOT NULL,
    database_role TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT transitions_key PRIMARY KEY (region, version, ordinal),
    CONSTRAINT transitions_kind_known CHECK (kind IN ('reservation', 'binding'))
);

CREATE TABLE regional.decisions (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    policy_revision INTEGER NOT NULL,
    cache_version BIGINT NOT NULL,
    evidence JSONB NOT NULL,
    decided_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- A digest of what was found, where nothing was placed: the same again is counted below.
    findings TEXT,
    CONSTRAINT decisions_key PRIMARY KEY (region, tenant, workload, generation, attempt)
);
-- What was decided last, for a comparison of revisions.
CREATE INDEX decisions_recent ON regional.decisions (region, decided_at);

-- How often a decision that placed nothing was made again with the same findings; no append, or a
-- request that nothing can help would fill the disk by waiting.
CREATE TABLE regional.decision_repeats (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    repeats BIGINT NOT NULL,
    cache_version BIGINT NOT NULL,
    repeated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT decision_repeats_key
        PRIMARY KEY (region, tenant, workload, generation, attempt),
    CONSTRAINT decision_repeats_repeats_positive CHECK (repeats >= 1)
);

-- One chain per region and one for the global side; each event's hash covers the one before it.
CREATE TABLE audit.events (
    chain TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    actor TEXT NOT NULL,
    database_role TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    before JSONB,
    after JSONB,
    hash BYTEA NOT NULL,
    CONSTRAINT events_key PRIMARY KEY (chain, sequence),
    CONSTRAINT events_sequence_positive CHECK (sequence >= 1),
    -- What every reader's calendar has: no infinity, and no year before the first.
    CONSTRAINT events_at_readable
        CHECK (at BETWEEN '0002-01-01 00:00:00+00' AND '9999-01-01 00:00:00+00')
);
CREATE UNIQUE INDEX events_messages
    ON audit.events (chain, (after ->> 'message_key')) WHERE after ? 'message_key';

CREATE TABLE audit.heads (
    chain TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    CONSTRAINT heads_key PRIMARY KEY (chain)
);

-- Which role may append which actions, to the global side's chain or to regions'; from `roles.py`.
CREATE TABLE audit.rights (
    role TEXT NOT NULL,
    side TEXT NOT NULL,
    action TEXT NOT NULL,
    CONSTRAINT rights_key PRIMARY KEY (role, side, action),
    CONSTRAINT rights_side_known CHECK (side IN ('global', 'regional'))
);

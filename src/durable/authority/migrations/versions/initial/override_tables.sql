CREATE TABLE global.overrides (
    override TEXT NOT NULL,
    kind TEXT NOT NULL,
    scope JSONB NOT NULL,
    effect JSONB NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    ticket TEXT DEFAULT '' NOT NULL,
    ttl_seconds BIGINT NOT NULL,
    needs_approval BOOLEAN NOT NULL,
    approver TEXT,
    -- Who made its latest change.
    changed_by TEXT NOT NULL,
    state TEXT NOT NULL,
    -- It grows with every change: a region replaces the copy of a smaller one, never the reverse.
    number BIGINT DEFAULT 1 NOT NULL,
    proposed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    activated_at TIMESTAMP WITH TIME ZONE,
    -- While it is proposed: when the proposal lapses.
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    latest_expiry TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT DEFAULT '' NOT NULL,
    CONSTRAINT overrides_key PRIMARY KEY (override),
    CONSTRAINT overrides_state_known
        CHECK (state IN ('proposed', 'active', 'expired', 'revoked', 'rejected')),
    CONSTRAINT overrides_reason_given CHECK (length(btrim(reason)) > 0),
    CONSTRAINT overrides_second_person CHECK (approver IS NULL OR approver <> actor),
    CONSTRAINT overrides_approved
        CHECK (state <> 'active' OR NOT needs_approval OR approver IS NOT NULL),
    CONSTRAINT overrides_time_limited
        CHECK (proposed_at < expires_at AND expires_at <= latest_expiry),
    CONSTRAINT overrides_counters CHECK (ttl_seconds > 0 AND number >= 1),
    CONSTRAINT overrides_activated CHECK (state <> 'active' OR activated_at IS NOT NULL),
    CONSTRAINT overrides_ended CHECK ((ended_at IS NULL) = (state IN ('proposed', 'active')))
);

CREATE INDEX overrides_live ON global.overrides (expires_at) WHERE ended_at IS NULL;

CREATE INDEX overrides_latest ON global.overrides (proposed_at);

-- The region's copy of the overrides that concern it, which its commits obey; see `number` there.
CREATE TABLE regional.overrides (
    region TEXT NOT NULL,
    override TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    scope JSONB NOT NULL,
    effects JSONB NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    -- How many claims were to be replaced because of it.
    marked INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT overrides_key PRIMARY KEY (region, override),
    CONSTRAINT overrides_counters CHECK (number >= 1 AND marked >= 0),
    CONSTRAINT overrides_region_reference
        FOREIGN KEY (region) REFERENCES regional.regions (region)
);

CREATE INDEX overrides_in_force ON regional.overrides (region) WHERE ended_at IS NULL;

-- What a tenant may use beside its grant while an emergency quota is in force. It has a counter of
-- its own, so that the rules of grants stay as they are.
CREATE TABLE regional.emergency_draws (
    region TEXT NOT NULL,
    override TEXT NOT NULL,
    tenant TEXT NOT NULL,
    cpu_millis BIGINT DEFAULT 0 NOT NULL,
    memory_mib BIGINT DEFAULT 0 NOT NULL,
    gpus BIGINT DEFAULT 0 NOT NULL,
    used_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    used_memory_mib BIGINT DEFAULT 0 NOT NULL,
    used_gpus BIGINT DEFAULT 0 NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    has_ended BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT emergency_draws_key PRIMARY KEY (region, override),
    CONSTRAINT emergency_draws_used_within_draw
        CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0
               AND used_cpu_millis <= cpu_millis AND used_memory_mib <= memory_mib
               AND used_gpus <= gpus),
    CONSTRAINT emergency_draws_region_override_reference
        FOREIGN KEY (region, override) REFERENCES regional.overrides (region, override)
);

CREATE INDEX emergency_draws_live ON regional.emergency_draws (region, tenant)
    WHERE NOT has_ended OR used_cpu_millis + used_memory_mib + used_gpus > 0;

ALTER TABLE regional.reservations ADD CONSTRAINT reservations_region_emergency_reference
    FOREIGN KEY (region, emergency) REFERENCES regional.emergency_draws (region, override);

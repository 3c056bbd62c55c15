-- The global side: facts that no region owns. `schema/global_side.py` says what they mean.

CREATE SCHEMA global;

CREATE TABLE global.tenants (
    tenant TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT tenants_key PRIMARY KEY (tenant)
);

CREATE TABLE global.quotas (
    tenant TEXT NOT NULL,
    hard_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    hard_memory_mib BIGINT DEFAULT 0 NOT NULL,
    hard_gpus BIGINT DEFAULT 0 NOT NULL,
    target_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    target_memory_mib BIGINT DEFAULT 0 NOT NULL,
    target_gpus BIGINT DEFAULT 0 NOT NULL,
    protected_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    protected_memory_mib BIGINT DEFAULT 0 NOT NULL,
    protected_gpus BIGINT DEFAULT 0 NOT NULL,
    granted_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    granted_memory_mib BIGINT DEFAULT 0 NOT NULL,
    granted_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT quotas_key PRIMARY KEY (tenant),
    CONSTRAINT quotas_granted_within_hard
        CHECK (granted_cpu_millis >= 0 AND granted_memory_mib >= 0 AND granted_gpus >= 0
               AND granted_cpu_millis <= hard_cpu_millis AND granted_memory_mib <= hard_memory_mib
               AND granted_gpus <= hard_gpus),
    CONSTRAINT quotas_target_within_hard
        CHECK (target_cpu_millis >= 0 AND target_memory_mib >= 0 AND target_gpus >= 0
               AND target_cpu_millis <= hard_cpu_millis AND target_memory_mib <= hard_memory_mib
               AND target_gpus <= hard_gpus),
    CONSTRAINT quotas_protected_within_target
        CHECK (protected_cpu_millis >= 0 AND protected_memory_mib >= 0 AND protected_gpus >= 0
               AND protected_cpu_millis <= target_cpu_millis
               AND protected_memory_mib <= target_memory_mib AND protected_gpus <= target_gpus),
    CONSTRAINT quotas_tenant_reference FOREIGN KEY (tenant) REFERENCES global.tenants (tenant)
);

CREATE TABLE global.grants (
    tenant TEXT NOT NULL,
    region TEXT NOT NULL,
    granted_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    granted_memory_mib BIGINT DEFAULT 0 NOT NULL,
    granted_gpus BIGINT DEFAULT 0 NOT NULL,
    held_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    held_memory_mib BIGINT DEFAULT 0 NOT NULL,
    held_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT grants_key PRIMARY KEY (tenant, region),
    CONSTRAINT grants_held_within_granted
        CHECK (held_cpu_millis >= 0 AND held_memory_mib >= 0 AND held_gpus >= 0
               AND held_cpu_millis <= granted_cpu_millis AND held_memory_mib <= granted_memory_mib
               AND held_gpus <= granted_gpus),
    CONSTRAINT grants_tenant_reference FOREIGN KEY (tenant) REFERENCES global.quotas (tenant)
);

CREATE TABLE global.grant_transfers (
    transfer TEXT NOT NULL,
    tenant TEXT NOT NULL,
    from_region TEXT,
    to_region TEXT,
    cpu_millis BIGINT DEFAULT 0 NOT NULL,
    memory_mib BIGINT DEFAULT 0 NOT NULL,
    gpus BIGINT DEFAULT 0 NOT NULL,
    state TEXT NOT NULL,
    actor TEXT NOT NULL,
    requested_at TIMESTAMP WITH TIME ZONE NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT grant_transfers_key PRIMARY KEY (transfer),
    CONSTRAINT grant_transfers_amount_not_negative
        CHECK (cpu_millis >= 0 AND memory_mib >= 0 AND gpus >= 0),
    CONSTRAINT grant_transfers_state_known 
        CHECK (state IN ('requested', 'moved', 'settled', 'refused')),
    CONSTRAINT grant_transfers_settled_at CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CONSTRAINT grant_transfers_ends_differ CHECK (from_region IS DISTINCT FROM to_region),
    CONSTRAINT grant_transfers_tenant_reference
        FOREIGN KEY (tenant) REFERENCES global.quotas (tenant)
);
CREATE INDEX grant_transfers_open ON global.grant_transfers (tenant)
    WHERE state IN ('requested', 'moved');

CREATE TABLE global.workloads (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    spec JSONB NOT NULL,
    finalizers TEXT[] DEFAULT '{}' NOT NULL,
    delete_requested_at TIMESTAMP WITH TIME ZONE,
    status JSONB DEFAULT '{}' NOT NULL,
    observed_generation BIGINT DEFAULT 0 NOT NULL,
    share JSONB DEFAULT '{}' NOT NULL,
    revision BIGINT DEFAULT 0 NOT NULL,
    generations BIGINT DEFAULT 1 NOT NULL,
    stable_generation BIGINT,
    rollout JSONB,
    deleted_at TIMESTAMP WITH TIME ZONE,
    admitted_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    deadline_missed_at TIMESTAMP WITH TIME ZONE,
    listed_until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT workloads_key PRIMARY KEY (tenant, workload),
    CONSTRAINT workloads_generation
        CHECK (generation BETWEEN 1 AND generations AND observed_generation <= generations
               AND stable_generation <= generations),
    CONSTRAINT workloads_deleted_has_no_finalizers CHECK (deleted_at IS NULL OR finalizers = '{}'),
    CONSTRAINT workloads_tenant_reference FOREIGN KEY (tenant) REFERENCES global.tenants (tenant)
);
CREATE INDEX workloads_live ON global.workloads (tenant, workload) WHERE deleted_at IS NULL;
CREATE INDEX workloads_ended ON global.workloads (listed_until) WHERE deleted_at IS NOT NULL;

CREATE TABLE global.workload_requests (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    request TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload_sha256 BYTEA NOT NULL,
    answer JSONB NOT NULL,
    actor TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT workload_requests_key PRIMARY KEY (tenant, workload, request),
    CONSTRAINT workload_requests_kind_known
        CHECK (kind IN ('apply', 'scale', 'delete', 'pause', 'resume', 'promote', 'rollback',
                        'replace')),
    CONSTRAINT workload_requests_tenant_workload_reference
        FOREIGN KEY (tenant, workload) REFERENCES global.workloads (tenant, workload)
);
CREATE INDEX workload_requests_age ON global.workload_requests (tenant, workload, at);

CREATE TABLE global.generations (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    spec JSONB NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    admitted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    outcome TEXT NOT NULL,
    outcome_reason TEXT DEFAULT '' NOT NULL,
    completed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT generations_key PRIMARY KEY (tenant, workload, generation),
    CONSTRAINT generations_outcome_known
        CHECK (outcome IN ('progressing', 'complete', 'superseded', 'rolled_back')),
    CONSTRAINT generations_complete CHECK (outcome <> 'complete' OR completed_at IS NOT NULL),
    CONSTRAINT generations_tenant_workload_reference
        FOREIGN KEY (tenant, workload) REFERENCES global.workloads (tenant, workload)
);

CREATE TABLE global.slots (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    slot INTEGER NOT NULL,
    region TEXT,
    number BIGINT NOT NULL,
    transfer TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    is_leaving BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT slots_key PRIMARY KEY (tenant, workload, slot),
    CONSTRAINT slots_counters CHECK (slot >= 0 AND number >= 1),
    CONSTRAINT slots_tenant_reference FOREIGN KEY (tenant) REFERENCES global.tenants (tenant)
);

CREATE TABLE global.policies (
    revision INTEGER NOT NULL,
    spec JSONB NOT NULL,
    published_by TEXT NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT policies_key PRIMARY KEY (revision),
    CONSTRAINT policies_revision_positive CHECK (revision >= 1)
);

CREATE TABLE global.overrides (
    override TEXT NOT NULL,
    kind TEXT NOT NULL,
    scope JSONB NOT NULL,
    effect JSONB NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    needs_approval BOOLEAN NOT NULL,
    approver TEXT,
    state TEXT NOT NULL,
    proposed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    activated_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    latest_expiry TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT overrides_key PRIMARY KEY (override),
    CONSTRAINT overrides_state_known
        CHECK (state IN ('proposed', 'active', 'expired', 'revoked', 'rejected')),
    CONSTRAINT overrides_reason_given CHECK (length(btrim(reason)) > 0),
    CONSTRAINT overrides_second_person CHECK (approver IS NULL OR approver <> actor),
    CONSTRAINT overrides_approved
        CHECK (state <> 'active' OR NOT needs_approval OR approver IS NOT NULL),
    CONSTRAINT overrides_time_limited
        CHECK (proposed_at < expires_at AND expires_at <= latest_expiry),
    CONSTRAINT overrides_ended CHECK ((ended_at IS NULL) = (state IN ('proposed', 'active')))
);

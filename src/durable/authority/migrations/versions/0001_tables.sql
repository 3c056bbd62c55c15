-- The tables of revision 0001. `schema/` is their definition in Python; a test holds the two equal.

CREATE SCHEMA global;
CREATE SCHEMA regional;
CREATE SCHEMA audit;

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
    CONSTRAINT events_sequence_positive CHECK (sequence >= 1)
);

CREATE TABLE audit.heads (
    chain TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    CONSTRAINT heads_key PRIMARY KEY (chain)
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
    CONSTRAINT overrides_state_known CHECK (state IN ('proposed', 'active', 'expired', 'revoked', 'rejected')),
    CONSTRAINT overrides_reason_given CHECK (length(btrim(reason)) > 0),
    CONSTRAINT overrides_second_person CHECK (approver IS NULL OR approver <> actor),
    CONSTRAINT overrides_approved CHECK (state <> 'active' OR NOT needs_approval OR approver IS NOT NULL),
    CONSTRAINT overrides_time_limited CHECK (proposed_at < expires_at AND expires_at <= latest_expiry),
    CONSTRAINT overrides_ended CHECK ((ended_at IS NULL) = (state IN ('proposed', 'active')))
);

CREATE TABLE global.policies (
    revision INTEGER NOT NULL,
    spec JSONB NOT NULL,
    published_by TEXT NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT policies_key PRIMARY KEY (revision),
    CONSTRAINT policies_revision_positive CHECK (revision >= 1)
);

CREATE TABLE global.tenants (
    tenant TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT tenants_key PRIMARY KEY (tenant)
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
    CONSTRAINT decisions_key PRIMARY KEY (region, tenant, workload, generation, attempt)
);

CREATE TABLE regional.deployment (
    singleton BOOLEAN DEFAULT true NOT NULL,
    serves_global BOOLEAN NOT NULL,
    CONSTRAINT deployment_key PRIMARY KEY (singleton),
    CONSTRAINT deployment_one_row CHECK (singleton)
);

CREATE TABLE regional.grant_changes (
    region TEXT NOT NULL,
    transfer TEXT NOT NULL,
    tenant TEXT NOT NULL,
    cpu_millis BIGINT DEFAULT 0 NOT NULL,
    memory_mib BIGINT DEFAULT 0 NOT NULL,
    gpus BIGINT DEFAULT 0 NOT NULL,
    version BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT grant_changes_key PRIMARY KEY (region, transfer)
);

CREATE TABLE regional.intents (
    region TEXT NOT NULL,
    key TEXT NOT NULL,
    payload_sha256 BYTEA NOT NULL,
    outcome JSONB NOT NULL,
    version BIGINT NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT intents_key PRIMARY KEY (region, key)
);

CREATE TABLE regional.node_history (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    version BIGINT NOT NULL,
    attributes JSONB NOT NULL,
    CONSTRAINT node_history_key PRIMARY KEY (region, node, version)
);

CREATE TABLE regional.regions (
    region TEXT NOT NULL,
    epoch BIGINT DEFAULT 1 NOT NULL,
    version BIGINT DEFAULT 0 NOT NULL,
    tokens_issued BIGINT DEFAULT 0 NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    capacity_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    capacity_memory_mib BIGINT DEFAULT 0 NOT NULL,
    capacity_gpus BIGINT DEFAULT 0 NOT NULL,
    used_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    used_memory_mib BIGINT DEFAULT 0 NOT NULL,
    used_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT regions_key PRIMARY KEY (region),
    CONSTRAINT regions_state_known CHECK (state IN ('open', 'fenced')),
    CONSTRAINT regions_counters CHECK (epoch >= 1 AND version >= 0 AND tokens_issued >= 0),
    CONSTRAINT regions_name_free CHECK (region <> 'global'),
    CONSTRAINT regions_used_whole CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0)
);

CREATE TABLE regional.slots (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    slot INTEGER NOT NULL,
    region TEXT,
    number BIGINT NOT NULL,
    CONSTRAINT slots_key PRIMARY KEY (tenant, workload, slot),
    CONSTRAINT slots_region_tenant_workload_slot_unique UNIQUE (region, tenant, workload, slot)
);

CREATE TABLE regional.transitions (
    region TEXT NOT NULL,
    version BIGINT NOT NULL,
    ordinal BIGINT GENERATED ALWAYS AS IDENTITY,
    object TEXT NOT NULL,
    from_state TEXT,
    to_state TEXT NOT NULL,
    actor TEXT NOT NULL,
    evidence TEXT NOT NULL,
    database_role TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT transitions_key PRIMARY KEY (region, version, ordinal)
);
CREATE INDEX transitions_region_object_index ON regional.transitions (region, object);

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
    CONSTRAINT quotas_granted_within_hard CHECK (granted_cpu_millis >= 0 AND granted_memory_mib >= 0 AND granted_gpus >= 0 AND granted_cpu_millis <= hard_cpu_millis AND granted_memory_mib <= hard_memory_mib AND granted_gpus <= hard_gpus),
    CONSTRAINT quotas_target_within_hard CHECK (target_cpu_millis >= 0 AND target_memory_mib >= 0 AND target_gpus >= 0 AND target_cpu_millis <= hard_cpu_millis AND target_memory_mib <= hard_memory_mib AND target_gpus <= hard_gpus),
    CONSTRAINT quotas_protected_within_target CHECK (protected_cpu_millis >= 0 AND protected_memory_mib >= 0 AND protected_gpus >= 0 AND protected_cpu_millis <= target_cpu_millis AND protected_memory_mib <= target_memory_mib AND protected_gpus <= target_gpus),
    CONSTRAINT quotas_tenant_reference FOREIGN KEY(tenant) REFERENCES global.tenants (tenant)
);

CREATE TABLE global.slots (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    slot INTEGER NOT NULL,
    region TEXT,
    number BIGINT NOT NULL,
    transfer TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT slots_key PRIMARY KEY (tenant, workload, slot),
    CONSTRAINT slots_slot_whole CHECK (slot >= 0 AND number >= 1),
    CONSTRAINT slots_tenant_reference FOREIGN KEY(tenant) REFERENCES global.tenants (tenant)
);

CREATE TABLE global.workloads (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    spec JSONB NOT NULL,
    finalizers TEXT[] DEFAULT '{}' NOT NULL,
    delete_requested_at TIMESTAMP WITH TIME ZONE,
    status JSONB DEFAULT '{}' NOT NULL,
    observed_generation BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT workloads_key PRIMARY KEY (tenant, workload),
    CONSTRAINT workloads_generation CHECK (generation >= 1 AND observed_generation <= generation),
    CONSTRAINT workloads_tenant_reference FOREIGN KEY(tenant) REFERENCES global.tenants (tenant)
);

CREATE TABLE regional.grants (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    granted_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    granted_memory_mib BIGINT DEFAULT 0 NOT NULL,
    granted_gpus BIGINT DEFAULT 0 NOT NULL,
    used_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    used_memory_mib BIGINT DEFAULT 0 NOT NULL,
    used_gpus BIGINT DEFAULT 0 NOT NULL,
    protected_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    protected_memory_mib BIGINT DEFAULT 0 NOT NULL,
    protected_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT grants_key PRIMARY KEY (region, tenant),
    CONSTRAINT grants_used_within_granted CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0 AND used_cpu_millis <= granted_cpu_millis AND used_memory_mib <= granted_memory_mib AND used_gpus <= granted_gpus),
    CONSTRAINT grants_protected_within_granted CHECK (protected_cpu_millis >= 0 AND protected_memory_mib >= 0 AND protected_gpus >= 0 AND protected_cpu_millis <= granted_cpu_millis AND protected_memory_mib <= granted_memory_mib AND protected_gpus <= granted_gpus),
    CONSTRAINT grants_region_reference FOREIGN KEY(region) REFERENCES regional.regions (region)
)
 WITH (fillfactor = 50);

CREATE TABLE regional.nodes (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    zone TEXT NOT NULL,
    pool TEXT NOT NULL,
    capacity_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    capacity_memory_mib BIGINT DEFAULT 0 NOT NULL,
    capacity_gpus BIGINT DEFAULT 0 NOT NULL,
    used_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    used_memory_mib BIGINT DEFAULT 0 NOT NULL,
    used_gpus BIGINT DEFAULT 0 NOT NULL,
    labels JSONB DEFAULT '{}' NOT NULL,
    taints JSONB DEFAULT '[]' NOT NULL,
    dedicated_to TEXT,
    state TEXT DEFAULT 'ready' NOT NULL,
    cordon_reason TEXT,
    cordoned_by TEXT,
    changed_version BIGINT NOT NULL,
    CONSTRAINT nodes_key PRIMARY KEY (region, node),
    CONSTRAINT nodes_used_within_capacity CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0 AND used_cpu_millis <= capacity_cpu_millis AND used_memory_mib <= capacity_memory_mib AND used_gpus <= capacity_gpus),
    CONSTRAINT nodes_state_known CHECK (state IN ('ready', 'unknown', 'lost', 'removed')),
    CONSTRAINT nodes_cordon_owned CHECK ((cordon_reason IS NULL) = (cordoned_by IS NULL)),
    CONSTRAINT nodes_removed_empty CHECK (state <> 'removed' OR used_cpu_millis + used_memory_mib + used_gpus = 0),
    CONSTRAINT nodes_region_reference FOREIGN KEY(region) REFERENCES regional.regions (region)
)
 WITH (fillfactor = 70);

CREATE TABLE regional.policy_states (
    region TEXT NOT NULL,
    revision INTEGER NOT NULL,
    state TEXT NOT NULL,
    changed_by TEXT NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT policy_states_key PRIMARY KEY (region, revision),
    CONSTRAINT policy_states_state_known CHECK (state IN ('published', 'shadow', 'canary', 'active', 'superseded', 'rolled_back')),
    CONSTRAINT policy_states_region_reference FOREIGN KEY(region) REFERENCES regional.regions (region)
);
CREATE UNIQUE INDEX policy_states_one_active ON regional.policy_states (region) WHERE state = 'active';

CREATE TABLE regional.recovery_budgets (
    region TEXT NOT NULL,
    budget TEXT NOT NULL,
    cpu_millis BIGINT DEFAULT 0 NOT NULL,
    memory_mib BIGINT DEFAULT 0 NOT NULL,
    gpus BIGINT DEFAULT 0 NOT NULL,
    used_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    used_memory_mib BIGINT DEFAULT 0 NOT NULL,
    used_gpus BIGINT DEFAULT 0 NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    incident TEXT,
    CONSTRAINT recovery_budgets_key PRIMARY KEY (region, budget),
    CONSTRAINT recovery_budgets_used_within_budget CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0 AND used_cpu_millis <= cpu_millis AND used_memory_mib <= memory_mib AND used_gpus <= gpus),
    CONSTRAINT recovery_budgets_region_reference FOREIGN KEY(region) REFERENCES regional.regions (region)
);

CREATE TABLE regional.requests (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    slots INTEGER[] NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    pending_reason TEXT,
    attempts INTEGER DEFAULT 0 NOT NULL,
    enqueued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE NOT NULL,
    next_retry_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT requests_key PRIMARY KEY (region, tenant, workload, generation),
    CONSTRAINT requests_state_known CHECK (state IN ('pending', 'reserved', 'bound', 'placed', 'withdrawn', 'timed_out')),
    CONSTRAINT requests_waits_with_reason CHECK (state <> 'pending' OR pending_reason IS NOT NULL),
    CONSTRAINT requests_waits_with_deadline CHECK (enqueued_at < deadline),
    CONSTRAINT requests_region_reference FOREIGN KEY(region) REFERENCES regional.regions (region)
);

CREATE TABLE regional.reservations (
    region TEXT NOT NULL,
    token BIGINT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    slot INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    node TEXT NOT NULL,
    cpu_millis BIGINT DEFAULT 0 NOT NULL,
    memory_mib BIGINT DEFAULT 0 NOT NULL,
    gpus BIGINT DEFAULT 0 NOT NULL,
    devices TEXT[] DEFAULT '{}' NOT NULL,
    budget TEXT,
    requirements JSONB DEFAULT '{}' NOT NULL,
    priority INTEGER NOT NULL,
    policy_revision INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    state TEXT DEFAULT 'held' NOT NULL,
    reserved_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    created_version BIGINT NOT NULL,
    changed_version BIGINT NOT NULL,
    freed_version BIGINT,
    actor TEXT NOT NULL,
    evidence TEXT NOT NULL,
    claimed_slot INTEGER GENERATED ALWAYS AS (CASE WHEN freed_version IS NULL THEN slot END) STORED,
    bound_token BIGINT GENERATED ALWAYS AS (CASE WHEN state = 'bound' THEN token END) STORED,
    CONSTRAINT reservations_key PRIMARY KEY (region, token),
    CONSTRAINT reservations_state_known CHECK (state IN ('held', 'bound', 'released', 'expired')),
    CONSTRAINT reservations_amount_whole CHECK (cpu_millis >= 0 AND memory_mib >= 0 AND gpus >= 0),
    CONSTRAINT reservations_devices_match_gpus CHECK (cardinality(devices) = gpus),
    CONSTRAINT reservations_lease_has_length CHECK (reserved_at < expires_at),
    CONSTRAINT reservations_ended_when_not_held CHECK ((state = 'held') = (ended_at IS NULL)),
    CONSTRAINT reservations_held_claims CHECK (state <> 'held' OR freed_version IS NULL),
    CONSTRAINT reservations_ended_frees CHECK (state NOT IN ('released', 'expired') OR freed_version IS NOT NULL),
    CONSTRAINT reservations_region_token_state_unique UNIQUE (region, token, state),
    CONSTRAINT reservations_region_tenant_workload_claimed_slot_reference FOREIGN KEY(region, tenant, workload, claimed_slot) REFERENCES regional.slots (region, tenant, workload, slot),
    CONSTRAINT reservations_region_reference FOREIGN KEY(region) REFERENCES regional.regions (region)
)
 WITH (fillfactor = 70);
CREATE INDEX reservations_changes ON regional.reservations (region, changed_version);
CREATE INDEX reservations_claims_by_node ON regional.reservations (region, node) WHERE freed_version IS NULL;
CREATE INDEX reservations_leases ON regional.reservations (region, expires_at) WHERE state = 'held';
CREATE UNIQUE INDEX reservations_one_claim_per_slot ON regional.reservations (tenant, workload, slot) WHERE freed_version IS NULL;

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
    CONSTRAINT grant_transfers_amount_whole CHECK (cpu_millis >= 0 AND memory_mib >= 0 AND gpus >= 0),
    CONSTRAINT grant_transfers_state_known CHECK (state IN ('requested', 'moved', 'settled')),
    CONSTRAINT grant_transfers_settled_at CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CONSTRAINT grant_transfers_ends_differ CHECK (from_region IS DISTINCT FROM to_region),
    CONSTRAINT grant_transfers_tenant_reference FOREIGN KEY(tenant) REFERENCES global.quotas (tenant)
);
CREATE INDEX grant_transfers_open ON global.grant_transfers (tenant) WHERE state <> 'settled';

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
    CONSTRAINT grants_held_within_granted CHECK (held_cpu_millis >= 0 AND held_memory_mib >= 0 AND held_gpus >= 0 AND held_cpu_millis <= granted_cpu_millis AND held_memory_mib <= granted_memory_mib AND held_gpus <= granted_gpus),
    CONSTRAINT grants_tenant_reference FOREIGN KEY(tenant) REFERENCES global.quotas (tenant)
);

CREATE TABLE regional.bindings (
    region TEXT NOT NULL,
    token BIGINT NOT NULL,
    reservation_state TEXT GENERATED ALWAYS AS ('bound'::text) STORED,
    state TEXT DEFAULT 'bound' NOT NULL,
    bound_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    stop_requested_at TIMESTAMP WITH TIME ZONE,
    stop_reason TEXT,
    released_at TIMESTAMP WITH TIME ZONE,
    changed_version BIGINT NOT NULL,
    actor TEXT NOT NULL,
    evidence TEXT NOT NULL,
    CONSTRAINT bindings_key PRIMARY KEY (region, token),
    CONSTRAINT bindings_state_known CHECK (state IN ('bound', 'starting', 'released')),
    CONSTRAINT bindings_released_at CHECK ((state = 'released') = (released_at IS NOT NULL)),
    CONSTRAINT bindings_started_at CHECK (state <> 'starting' OR started_at IS NOT NULL),
    CONSTRAINT bindings_stop_reason CHECK ((stop_requested_at IS NULL) = (stop_reason IS NULL)),
    CONSTRAINT bindings_region_token_reservation_state_reference FOREIGN KEY(region, token, reservation_state) REFERENCES regional.reservations (region, token, state)
)
 WITH (fillfactor = 70);

CREATE TABLE regional.devices (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    device TEXT NOT NULL,
    healthy BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT devices_key PRIMARY KEY (region, node, device),
    CONSTRAINT devices_region_node_reference FOREIGN KEY(region, node) REFERENCES regional.nodes (region, node)
);

CREATE TABLE regional.node_leases (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    session BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    renewed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT node_leases_key PRIMARY KEY (region, node),
    CONSTRAINT node_leases_counters CHECK (session >= 1 AND epoch >= 1),
    CONSTRAINT node_leases_region_node_reference FOREIGN KEY(region, node) REFERENCES regional.nodes (region, node)
)
 WITH (fillfactor = 70);

CREATE TABLE regional.device_holds (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    device TEXT NOT NULL,
    token BIGINT NOT NULL,
    CONSTRAINT device_holds_key PRIMARY KEY (region, node, device),
    CONSTRAINT device_holds_region_node_device_reference FOREIGN KEY(region, node, device) REFERENCES regional.devices (region, node, device)
);
CREATE INDEX device_holds_region_token_index ON regional.device_holds (region, token);

CREATE TABLE regional.observations (
    region TEXT NOT NULL,
    token BIGINT NOT NULL,
    session BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    state TEXT NOT NULL,
    evidence TEXT NOT NULL,
    observer TEXT NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT observations_key PRIMARY KEY (region, token),
    CONSTRAINT observations_state_known CHECK (state IN ('starting', 'running', 'ready', 'serving', 'failed', 'stopped')),
    CONSTRAINT observations_region_token_reference FOREIGN KEY(region, token) REFERENCES regional.bindings (region, token)
)
 WITH (fillfactor = 70);

ALTER TABLE regional.reservations ADD CONSTRAINT reservations_region_bound_token_reference FOREIGN KEY(region, bound_token) REFERENCES regional.bindings (region, token) DEFERRABLE INITIALLY DEFERRED;

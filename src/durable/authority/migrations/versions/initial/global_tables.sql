-- The global side: tenants, quotas, slots, workloads, policies, operators; facts that no region owns.
-- It never meets the regional side in one transaction: they may live in one database or in several.

CREATE SCHEMA global;

-- Every region that was ever declared: whether it may take part, and until when its lease lasts. The
-- fact; a region's own row has a copy of epoch and state, and obeys a lease that ends no later.
CREATE TABLE global.regions (
    region TEXT NOT NULL,
    epoch BIGINT DEFAULT 1 NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    since TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    -- What led to the state.
    evidence JSONB DEFAULT '{}' NOT NULL,
    -- How often the lease was renewed, by which worker last, and until when it lasts; none so far: a
    -- region that was never leased cannot be waited out.
    lease_number BIGINT DEFAULT 0 NOT NULL,
    -- The highest of these numbers that the region has shown to have: one that has less was restored
    -- from an older copy, and one that has more shows that this side was.
    known_number BIGINT DEFAULT 0 NOT NULL,
    lease_holder TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    -- How long it lasts from a renewal.
    lease_seconds DOUBLE PRECISION,
    -- While it is fenced: whether its own database has the fence and answers, so that its lease may
    -- be extended, and what could not be moved goes on. A lease that has lapsed is not begun again.
    is_leased_fenced BOOLEAN DEFAULT false NOT NULL,
    -- When its worker last saw the region as it was.
    watched_at TIMESTAMP WITH TIME ZONE,
    -- What it is taken for from outside, in a sentence, and since when.
    seen JSONB,
    -- Until when, why and by whose order nothing that is seen of it is taken for its loss.
    maintenance JSONB,
    CONSTRAINT regions_key PRIMARY KEY (region),
    CONSTRAINT regions_state_known CHECK (state IN ('open', 'suspected', 'fenced')),
    CONSTRAINT regions_counters
        CHECK (epoch >= 1 AND known_number >= 0 AND lease_number >= known_number),
    CONSTRAINT regions_leased CHECK ((lease_number = 0) = (lease_expires_at IS NULL)),
    CONSTRAINT regions_name_not_reserved CHECK (region <> 'global')
);

CREATE TABLE global.tenants (
    tenant TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT tenants_key PRIMARY KEY (tenant)
);

-- `hard` is the limit in force, `target` the one that was requested. They differ while a lowered
-- quota waits for usage to fall.
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
    -- What of it preemption never takes; the rest of the tenant's protected part is not granted.
    protected_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    protected_memory_mib BIGINT DEFAULT 0 NOT NULL,
    protected_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT grants_key PRIMARY KEY (tenant, region),
    CONSTRAINT grants_held_within_granted
        CHECK (held_cpu_millis >= 0 AND held_memory_mib >= 0 AND held_gpus >= 0
               AND held_cpu_millis <= granted_cpu_millis AND held_memory_mib <= granted_memory_mib
               AND held_gpus <= granted_gpus),
    CONSTRAINT grants_protected_within_granted
        CHECK (protected_cpu_millis >= 0 AND protected_memory_mib >= 0 AND protected_gpus >= 0
               AND protected_cpu_millis <= granted_cpu_millis
               AND protected_memory_mib <= granted_memory_mib AND protected_gpus <= granted_gpus),
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
    -- How much that preemption never takes goes along: at least, until the books have moved.
    protected_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    protected_memory_mib BIGINT DEFAULT 0 NOT NULL,
    protected_gpus BIGINT DEFAULT 0 NOT NULL,
    state TEXT NOT NULL,
    actor TEXT NOT NULL,
    requested_at TIMESTAMP WITH TIME ZONE NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT grant_transfers_key PRIMARY KEY (transfer),
    CONSTRAINT grant_transfers_amount_not_negative
        CHECK (cpu_millis >= 0 AND memory_mib >= 0 AND gpus >= 0),
    CONSTRAINT grant_transfers_state_known 
        CHECK (state IN ('requested', 'moved', 'lapsed', 'settled', 'refused')),
    CONSTRAINT grant_transfers_settled_at CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CONSTRAINT grant_transfers_ends_differ CHECK (from_region IS DISTINCT FROM to_region),
    CONSTRAINT grant_transfers_tenant_reference
        FOREIGN KEY (tenant) REFERENCES global.quotas (tenant)
);
CREATE INDEX grant_transfers_open ON global.grant_transfers (tenant)
    WHERE state IN ('requested', 'moved');
-- Given back without the region, which follows when it answers again.
CREATE INDEX grant_transfers_lapsed ON global.grant_transfers (from_region)
    WHERE state = 'lapsed';

CREATE TABLE global.workloads (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    spec JSONB NOT NULL,
    finalizers TEXT[] DEFAULT '{}' NOT NULL,
    delete_requested_at TIMESTAMP WITH TIME ZONE,
    status JSONB DEFAULT '{}' NOT NULL,
    observed_generation BIGINT DEFAULT 0 NOT NULL,
    -- Which slots each region must run.
    share JSONB DEFAULT '{}' NOT NULL,
    -- Of the newest division of the slots: an older one changes nothing any more.
    revision BIGINT DEFAULT 0 NOT NULL,
    -- How many generations there were; the wanted one may be an older one, when a rollout is rolled back.
    generations BIGINT DEFAULT 1 NOT NULL,
    -- The last one of which every replica served at once.
    stable_generation BIGINT,
    -- The rollout that is under way.
    rollout JSONB,
    -- The row stays as a tombstone, so that generations never start again.
    deleted_at TIMESTAMP WITH TIME ZONE,
    -- When this generation was admitted: a deadline counts from here.
    admitted_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    deadline_missed_at TIMESTAMP WITH TIME ZONE,
    -- Until when a job that has ended is listed; none: for ever.
    listed_until TIMESTAMP WITH TIME ZONE,
    -- The recovery that moved it, on whose budgets it may draw.
    incident TEXT,
    CONSTRAINT workloads_key PRIMARY KEY (tenant, workload),
    CONSTRAINT workloads_generation
        CHECK (generation BETWEEN 1 AND generations AND observed_generation <= generations
               AND stable_generation <= generations),
    CONSTRAINT workloads_deleted_has_no_finalizers CHECK (deleted_at IS NULL OR finalizers = '{}'),
    CONSTRAINT workloads_tenant_reference FOREIGN KEY (tenant) REFERENCES global.tenants (tenant)
);
CREATE INDEX workloads_live ON global.workloads (tenant, workload) WHERE deleted_at IS NULL;
CREATE INDEX workloads_ended ON global.workloads (listed_until) WHERE deleted_at IS NOT NULL;

-- Whether critical work would come back if a region were lost now, as it was last simulated.
CREATE TABLE global.readiness (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    is_met BOOLEAN NOT NULL,
    sentence TEXT NOT NULL,
    CONSTRAINT readiness_key PRIMARY KEY (tenant, workload),
    CONSTRAINT readiness_tenant_workload_reference
        FOREIGN KEY (tenant, workload) REFERENCES global.workloads (tenant, workload)
);

-- What a workload was, generation by generation; the last ones are kept.
CREATE TABLE global.generations (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    spec JSONB NOT NULL,
    -- Which slots each region had when the generation was left; where they go back to.
    share JSONB DEFAULT '{}' NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    admitted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    outcome TEXT NOT NULL,
    outcome_reason TEXT DEFAULT '' NOT NULL,
    -- When every replica served at once.
    completed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT generations_key PRIMARY KEY (tenant, workload, generation),
    CONSTRAINT generations_outcome_known
        CHECK (outcome IN ('progressing', 'complete', 'superseded', 'rolled_back')),
    CONSTRAINT generations_complete CHECK (outcome <> 'complete' OR completed_at IS NOT NULL),
    CONSTRAINT generations_tenant_workload_reference
        FOREIGN KEY (tenant, workload) REFERENCES global.workloads (tenant, workload)
);

-- Which region may bind a slot is one row, and only a transfer changes it. `number` counts owners so
-- far, so a transfer that arrives late is recognised by its old number. The row stays when no region
-- owns the slot, so that numbers never start again.
CREATE TABLE global.slots (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    slot INTEGER NOT NULL,
    region TEXT,
    number BIGINT NOT NULL,
    transfer TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    -- Its region's copy may have been taken back; a division that keeps it there hands it out.
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

-- How far a revision has come, and by which order; one at a time is on its way through the regions.
CREATE TABLE global.policy_rollouts (
    revision INTEGER NOT NULL,
    phase TEXT NOT NULL,
    number BIGINT DEFAULT 0 NOT NULL,
    canary TEXT,
    -- The region that is watched now, since when, and what waited there before.
    bake JSONB,
    is_paused BOOLEAN DEFAULT false NOT NULL,
    to_revision INTEGER,
    reroll BOOLEAN DEFAULT false NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- When it last came into force everywhere; a rollback goes to no revision that never was.
    in_force_at TIMESTAMP WITH TIME ZONE,
    -- By region, what it would have changed of recent decisions.
    shadows JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT policy_rollouts_key PRIMARY KEY (revision),
    CONSTRAINT policy_rollouts_phase_known
        CHECK (phase IN ('shadow', 'canary', 'widening', 'everywhere', 'superseded',
                         'rolling_back', 'rolled_back')),
    CONSTRAINT policy_rollouts_number_not_negative CHECK (number >= 0),
    CONSTRAINT policy_rollouts_canary_has_region CHECK (phase <> 'canary' OR canary IS NOT NULL),
    CONSTRAINT policy_rollouts_revision_reference
        FOREIGN KEY (revision) REFERENCES global.policies (revision)
);
CREATE UNIQUE INDEX policy_rollouts_one_under_way ON global.policy_rollouts ((true))
    WHERE phase IN ('canary', 'widening');

-- Orders about revisions, in the order in which they were taken: of two at once, one is refused for the
-- other.
CREATE TABLE global.policy_orders (
    number BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    request TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT policy_orders_key PRIMARY KEY (number),
    CONSTRAINT policy_orders_kind_known CHECK (kind IN ('promote', 'pause', 'rollback')),
    CONSTRAINT policy_orders_number_positive CHECK (number >= 1),
    CONSTRAINT policy_orders_revision_reference
        FOREIGN KEY (revision) REFERENCES global.policies (revision)
);
CREATE INDEX policy_orders_revision_number_index ON global.policy_orders (revision, number);

-- A region that was lost, and how far its work has come; one of a region is under way.
CREATE TABLE global.recoveries (
    region TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    -- The name under which what it moves draws on recovery budgets.
    incident TEXT NOT NULL,
    phase TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    evidence JSONB DEFAULT '{}' NOT NULL,
    lost_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    fenced_at TIMESTAMP WITH TIME ZONE,
    movable_at TIMESTAMP WITH TIME ZONE,
    moved_at TIMESTAMP WITH TIME ZONE,
    back_since TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    -- Which budgets of other regions are open for it, and what was left behind at its end.
    draws JSONB DEFAULT '[]' NOT NULL,
    findings JSONB DEFAULT '[]' NOT NULL,
    CONSTRAINT recoveries_key PRIMARY KEY (region, epoch),
    CONSTRAINT recoveries_phase_known
        CHECK (phase IN ('suspected', 'confirmed', 'moving', 'holding', 'failing_back', 'settling',
                         'failed_back', 'settled', 'vetoed', 'dismissed', 'superseded')),
    CONSTRAINT recoveries_epoch_fences CHECK (epoch >= 2),
    CONSTRAINT recoveries_ended
        CHECK ((ended_at IS NOT NULL) = (phase IN ('failed_back', 'settled', 'vetoed', 'dismissed',
                                                   'superseded')))
);
CREATE INDEX recoveries_incident ON global.recoveries (incident);
CREATE INDEX recoveries_open ON global.recoveries (region) WHERE ended_at IS NULL;

-- What a recovery moves of each workload.
CREATE TABLE global.recovery_moves (
    region TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    kind TEXT NOT NULL,
    priority INTEGER NOT NULL,
    replicas INTEGER NOT NULL,
    slots INTEGER[] NOT NULL,
    tried_at TIMESTAMP WITH TIME ZONE,
    moved_at TIMESTAMP WITH TIME ZONE,
    serving INTEGER DEFAULT 0 NOT NULL,
    placed INTEGER DEFAULT 0 NOT NULL,
    recovered_at TIMESTAMP WITH TIME ZONE,
    whole_at TIMESTAMP WITH TIME ZONE,
    returned_at TIMESTAMP WITH TIME ZONE,
    waits TEXT DEFAULT '' NOT NULL,
    CONSTRAINT recovery_moves_key PRIMARY KEY (region, epoch, tenant, workload),
    CONSTRAINT recovery_moves_kind_known CHECK (kind IN ('service', 'job')),
    CONSTRAINT recovery_moves_region_epoch_reference
        FOREIGN KEY (region, epoch) REFERENCES global.recoveries (region, epoch)
);

-- Who may ask for changes. A row stays when its operator is removed: the audit names it.
CREATE TABLE global.operators (
    operator TEXT NOT NULL,
    kind TEXT NOT NULL,
    public_key TEXT,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT operators_key PRIMARY KEY (operator),
    -- One key proves to be one person: two operators who share one are no two people.
    CONSTRAINT operators_public_key_unique UNIQUE (public_key),
    CONSTRAINT operators_kind_known CHECK (kind IN ('person', 'service'))
);

-- A verb, or '*' for all of them; of a tenant, in a region, or without both for everything: ''.
CREATE TABLE global.operator_rights (
    operator TEXT NOT NULL,
    verb TEXT NOT NULL,
    tenant TEXT DEFAULT '' NOT NULL,
    region TEXT DEFAULT '' NOT NULL,
    granted_by TEXT NOT NULL,
    granted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT operator_rights_key PRIMARY KEY (operator, verb, tenant, region),
    CONSTRAINT operator_rights_operator_reference
        FOREIGN KEY (operator) REFERENCES global.operators (operator)
);

-- Which installation this is: what is signed for one counts in no other.
CREATE TABLE global.deployment (
    singleton BOOLEAN DEFAULT true NOT NULL,
    id TEXT DEFAULT gen_random_uuid()::text NOT NULL,
    CONSTRAINT deployment_key PRIMARY KEY (singleton),
    CONSTRAINT deployment_one_row CHECK (singleton)
);
INSERT INTO global.deployment DEFAULT VALUES;

-- What people and services asked for and were answered: a request id counts once for its target,
-- which is the workflow that was asked.
CREATE TABLE global.operator_requests (
    target TEXT NOT NULL,
    request TEXT NOT NULL,
    message TEXT NOT NULL,
    -- Of what it asks for, without who asks and why.
    digest TEXT NOT NULL,
    actor TEXT NOT NULL,
    -- Whether its sender proved to be the actor: a repetition then has to, as well.
    is_signed BOOLEAN NOT NULL,
    -- What its sender was answered; of a message to a placement also which delivery of it that was.
    answer JSONB NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- When it may be forgotten; never where this is NULL.
    kept_until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT operator_requests_key PRIMARY KEY (target, request)
);
CREATE INDEX operator_requests_forgotten
    ON global.operator_requests (kept_until) WHERE kept_until IS NOT NULL;

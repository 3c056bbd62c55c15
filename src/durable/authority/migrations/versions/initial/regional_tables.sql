-- The regional side: nodes, grants, claims and what is observed of them; what a region decides alone.
-- Triggers alone write counters (`used_*`, sums of `granted_*`); see `counters.sql`.

CREATE SCHEMA regional;

-- One row, written by the migration: whether this database serves the global side too.
CREATE TABLE regional.deployment (
    singleton BOOLEAN DEFAULT true NOT NULL,
    serves_global BOOLEAN NOT NULL,
    CONSTRAINT deployment_key PRIMARY KEY (singleton),
    CONSTRAINT deployment_one_row CHECK (singleton)
);

-- One row: whether this database was found to be older than what others know of it. It then changes
-- nothing until an operator has declared it restored; see `refuse_what_went_back`.
CREATE TABLE regional.restores (
    singleton BOOLEAN DEFAULT true NOT NULL,
    -- Milliseconds since 2025 at the last `durable restored`: numbers that go on from it are above
    -- those of every copy. That of the global side is the deployment's epoch.
    epoch BIGINT DEFAULT 0 NOT NULL,
    -- None: it was not found to be older, or it has been declared restored since.
    went_back_at TIMESTAMP WITH TIME ZONE,
    -- What was found, and what to do next, in sentences.
    why TEXT,
    CONSTRAINT restores_key PRIMARY KEY (singleton),
    CONSTRAINT restores_one_row CHECK (singleton),
    CONSTRAINT restores_epoch_not_negative CHECK (epoch >= 0),
    CONSTRAINT restores_why CHECK ((went_back_at IS NULL) = (why IS NULL))
);
INSERT INTO regional.restores DEFAULT VALUES;

-- The coordination boundary: every regional transaction begins by locking this row.
CREATE TABLE regional.regions (
    region TEXT NOT NULL,
    epoch BIGINT DEFAULT 1 NOT NULL,
    version BIGINT DEFAULT 0 NOT NULL,
    tokens_issued BIGINT DEFAULT 0 NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    -- Until when the global side leaves the region to itself; a region without one is on none yet.
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    -- How long that lease lasts from its renewal.
    lease_seconds DOUBLE PRECISION DEFAULT 0 NOT NULL,
    -- The latest moment that the clock showed a renewal or a commit, while it lives on leases; and
    -- when it was last found to have gone back behind that, by the clock as it was from then on.
    clock_seen_at TIMESTAMP WITH TIME ZONE,
    clock_went_back_at TIMESTAMP WITH TIME ZONE,
    -- Of the last renewal that reached the region.
    lease_number BIGINT DEFAULT 0 NOT NULL,
    capacity_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    capacity_memory_mib BIGINT DEFAULT 0 NOT NULL,
    capacity_gpus BIGINT DEFAULT 0 NOT NULL,
    used_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    used_memory_mib BIGINT DEFAULT 0 NOT NULL,
    used_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT regions_key PRIMARY KEY (region),
    CONSTRAINT regions_state_known CHECK (state IN ('open', 'fenced')),
    CONSTRAINT regions_counters CHECK (epoch >= 1 AND version >= 0 AND tokens_issued >= 0),
    CONSTRAINT regions_name_not_reserved CHECK (region <> 'global'),
    CONSTRAINT regions_used_not_negative
        CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0)
);

-- The zones that the fleet declares for a region; nodes register in no other.
CREATE TABLE regional.zones (
    region TEXT NOT NULL,
    zone TEXT NOT NULL,
    CONSTRAINT zones_key PRIMARY KEY (region, zone),
    CONSTRAINT zones_region_reference FOREIGN KEY (region) REFERENCES regional.regions (region)
);

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
    -- Of the node's row, so that a change has a version and the past can be rebuilt.
    unhealthy_devices TEXT[] DEFAULT '{}' NOT NULL,
    state TEXT DEFAULT 'ready' NOT NULL,
    cordon_reason TEXT,
    cordoned_by TEXT,
    -- The drain that keeps it cordoned, if one does: it ends no other's cordon.
    cordoned_for TEXT,
    changed_version BIGINT NOT NULL,
    CONSTRAINT nodes_key PRIMARY KEY (region, node),
    CONSTRAINT nodes_used_within_capacity
        CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0
               AND used_cpu_millis <= capacity_cpu_millis
               AND used_memory_mib <= capacity_memory_mib AND used_gpus <= capacity_gpus),
    CONSTRAINT nodes_state_known CHECK (state IN ('ready', 'unknown', 'lost', 'removed')),
    CONSTRAINT nodes_cordon_owned
        CHECK ((cordon_reason IS NULL) = (cordoned_by IS NULL)
               AND (cordoned_for IS NULL OR cordoned_by IS NOT NULL)),
    CONSTRAINT nodes_removed_empty
        CHECK (state <> 'removed' OR used_cpu_millis + used_memory_mib + used_gpus = 0),
    CONSTRAINT nodes_region_reference FOREIGN KEY (region) REFERENCES regional.regions (region)
-- Counters change at every placement: free space on a page keeps those updates off the indexes.
) WITH (fillfactor = 70);
CREATE INDEX nodes_changes ON regional.nodes (region, changed_version);
CREATE INDEX nodes_silent ON regional.nodes (region) WHERE state IN ('unknown', 'lost');

-- What a node looked like at each version, so that an old snapshot can be rebuilt.
CREATE TABLE regional.node_history (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    version BIGINT NOT NULL,
    attributes JSONB NOT NULL,
    CONSTRAINT node_history_key PRIMARY KEY (region, node, version)
);

-- Apart from `nodes`: heartbeats take no region lock and must not queue behind placements.
CREATE TABLE regional.node_leases (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    session BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    -- Who hosts the node: another agent may not, for as long as the lease lasts.
    host TEXT NOT NULL,
    renewed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT node_leases_key PRIMARY KEY (region, node),
    CONSTRAINT node_leases_counters CHECK (session >= 1 AND epoch >= 1),
    CONSTRAINT node_leases_region_node_reference
        FOREIGN KEY (region, node) REFERENCES regional.nodes (region, node)
) WITH (fillfactor = 70);

-- Which agent hosts the region's declared nodes; it counts while that agent's connection lives.
CREATE TABLE regional.agent_locks (
    region TEXT NOT NULL,
    pid INTEGER NOT NULL,
    -- The number of an advisory lock that the holder's connection holds.
    life_sign BIGINT NOT NULL,
    holder TEXT NOT NULL,
    held_since TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT agent_locks_key PRIMARY KEY (region),
    CONSTRAINT agent_locks_region_reference
        FOREIGN KEY (region) REFERENCES regional.regions (region)
);

CREATE TABLE regional.devices (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    device TEXT NOT NULL,
    CONSTRAINT devices_key PRIMARY KEY (region, node, device),
    CONSTRAINT devices_region_node_reference
        FOREIGN KEY (region, node) REFERENCES regional.nodes (region, node)
);

CREATE TABLE regional.device_holds (
    region TEXT NOT NULL,
    node TEXT NOT NULL,
    device TEXT NOT NULL,
    token BIGINT NOT NULL,
    CONSTRAINT device_holds_key PRIMARY KEY (region, node, device),
    CONSTRAINT device_holds_region_node_device_reference
        FOREIGN KEY (region, node, device) REFERENCES regional.devices (region, node, device)
);
CREATE INDEX device_holds_region_token_index ON regional.device_holds (region, token);

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
    -- What a lowered quota wants back as soon as it is free: nothing new may be reserved from it.
    owed_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    owed_memory_mib BIGINT DEFAULT 0 NOT NULL,
    owed_gpus BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT grants_key PRIMARY KEY (region, tenant),
    CONSTRAINT grants_used_within_granted
        CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0
               AND used_cpu_millis <= granted_cpu_millis AND used_memory_mib <= granted_memory_mib
               AND used_gpus <= granted_gpus),
    CONSTRAINT grants_protected_within_granted
        CHECK (protected_cpu_millis >= 0 AND protected_memory_mib >= 0 AND protected_gpus >= 0
               AND protected_cpu_millis <= granted_cpu_millis
               AND protected_memory_mib <= granted_memory_mib AND protected_gpus <= granted_gpus),
    CONSTRAINT grants_owed_within_granted
        CHECK (owed_cpu_millis >= 0 AND owed_memory_mib >= 0 AND owed_gpus >= 0
               AND owed_cpu_millis <= granted_cpu_millis AND owed_memory_mib <= granted_memory_mib
               AND owed_gpus <= granted_gpus),
    CONSTRAINT grants_region_reference FOREIGN KEY (region) REFERENCES regional.regions (region)
) WITH (fillfactor = 50);

-- One row per half of a transfer that reached this region, negative where grant was taken: a resend
-- changes nothing, and the sum up to a version is the grant at that version.
CREATE TABLE regional.grant_changes (
    region TEXT NOT NULL,
    transfer TEXT NOT NULL,
    tenant TEXT NOT NULL,
    cpu_millis BIGINT DEFAULT 0 NOT NULL,
    memory_mib BIGINT DEFAULT 0 NOT NULL,
    gpus BIGINT DEFAULT 0 NOT NULL,
    -- How much of that preemption never takes.
    protected_cpu_millis BIGINT DEFAULT 0 NOT NULL,
    protected_memory_mib BIGINT DEFAULT 0 NOT NULL,
    protected_gpus BIGINT DEFAULT 0 NOT NULL,
    version BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT grant_changes_key PRIMARY KEY (region, transfer)
);

-- A region's copy of the slots it owns. One row per slot, whatever the region, so that two regions
-- that share a database can never both own it. A slot that was taken away keeps its row and number.
CREATE TABLE regional.slots (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    slot INTEGER NOT NULL,
    region TEXT,
    number BIGINT NOT NULL,
    CONSTRAINT slots_key PRIMARY KEY (tenant, workload, slot),
    CONSTRAINT slots_region_tenant_workload_slot_unique UNIQUE (region, tenant, workload, slot)
);

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
    -- The override that made it and ends it, if one did.
    override TEXT,
    CONSTRAINT recovery_budgets_key PRIMARY KEY (region, budget),
    CONSTRAINT recovery_budgets_used_within_budget
        CHECK (used_cpu_millis >= 0 AND used_memory_mib >= 0 AND used_gpus >= 0
               AND used_cpu_millis <= cpu_millis AND used_memory_mib <= memory_mib
               AND used_gpus <= gpus),
    CONSTRAINT recovery_budgets_region_reference
        FOREIGN KEY (region) REFERENCES regional.regions (region)
);

CREATE TABLE regional.policy_states (
    region TEXT NOT NULL,
    revision INTEGER NOT NULL,
    state TEXT NOT NULL,
    changed_by TEXT NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- Of the order that it follows: an older one changes nothing in this region any more.
    number BIGINT DEFAULT 0 NOT NULL,
    -- What an override may let work pass here while this revision is in force.
    overridable_gates JSONB DEFAULT '[]' NOT NULL,
    -- What became of each workload when it was rolled back.
    report JSONB,
    report_count INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT policy_states_key PRIMARY KEY (region, revision),
    CONSTRAINT policy_states_number_not_negative CHECK (number >= 0),
    CONSTRAINT policy_states_state_known
        CHECK (state IN ('published', 'shadow', 'canary', 'active', 'superseded', 'rolled_back')),
    CONSTRAINT policy_states_region_reference
        FOREIGN KEY (region) REFERENCES regional.regions (region)
);
CREATE UNIQUE INDEX policy_states_one_active
    ON regional.policy_states (region) WHERE state = 'active';
CREATE UNIQUE INDEX policy_states_one_canary
    ON regional.policy_states (region) WHERE state = 'canary';

-- What a workload wants of the region: written by the workload under its revision, read by the
-- placement, and closed with the withdrawal of the placement's request.
CREATE TABLE regional.shares (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    slots INTEGER[] NOT NULL,
    spec JSONB NOT NULL,
    release_reason TEXT,
    -- Of a job: how many of its slots may have a claim at once, and from when to when it is to run.
    at_once INTEGER,
    admitted_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE,
    -- The recovery on whose budgets the slots that it moved may draw.
    incident TEXT,
    moved INTEGER[] DEFAULT '{}' NOT NULL,
    -- Since when each of the slots has been in it, in their order and by the region's clock.
    given_at TIMESTAMP WITH TIME ZONE[] DEFAULT '{}' NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT shares_key PRIMARY KEY (region, tenant, workload, generation),
    CONSTRAINT shares_revision_positive CHECK (revision >= 1),
    CONSTRAINT shares_at_once_not_negative CHECK (at_once >= 0),
    CONSTRAINT shares_region_reference FOREIGN KEY (region) REFERENCES regional.regions (region)
);
CREATE INDEX shares_open ON regional.shares (region, tenant, workload) WHERE closed_at IS NULL;

-- How many replicas of a workload voluntary stops must leave serving here: its part of the
-- disruption allowance, as escrow. Written by the workload, read by the commit.
CREATE TABLE regional.disruption_floors (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    revision BIGINT NOT NULL,
    must_serve INTEGER NOT NULL,
    CONSTRAINT disruption_floors_key PRIMARY KEY (region, tenant, workload),
    CONSTRAINT disruption_floors_must_serve_not_negative CHECK (must_serve >= 0),
    CONSTRAINT disruption_floors_region_reference
        FOREIGN KEY (region) REFERENCES regional.regions (region)
);

CREATE TABLE regional.requests (
    region TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    generation BIGINT NOT NULL,
    slots INTEGER[] NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    -- Why it waits; it becomes words only where people read it.
    pending_code TEXT,
    pending_parameters JSONB,
    attempts INTEGER DEFAULT 0 NOT NULL,
    enqueued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE NOT NULL,
    next_retry_at TIMESTAMP WITH TIME ZONE,
    -- What its agents run; a placement's generation never changes what it runs.
    spec JSONB DEFAULT '{}' NOT NULL,
    waiting INTEGER DEFAULT 0 NOT NULL,
    -- Of a job: which slots are done, which were given up, and when all had come to their end; how
    -- many wait until others have ended, how often its slots failed in all, and the limit on its
    -- claims that it obeys.
    completed INTEGER[] DEFAULT '{}' NOT NULL,
    given_up INTEGER[] DEFAULT '{}' NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    held_back INTEGER DEFAULT 0 NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    at_once INTEGER,
    decided_version BIGINT DEFAULT 0 NOT NULL,
    written_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
    CONSTRAINT requests_key PRIMARY KEY (region, tenant, workload, generation),
    CONSTRAINT requests_state_known
        CHECK (state IN ('pending', 'reserved', 'bound', 'placed', 'withdrawn', 'timed_out')),
    CONSTRAINT requests_waits_with_reason CHECK (state <> 'pending' OR pending_code IS NOT NULL),
    CONSTRAINT requests_reason_whole
        CHECK ((pending_code IS NULL) = (pending_parameters IS NULL)),
    CONSTRAINT requests_waits_with_deadline CHECK (enqueued_at < deadline),
    CONSTRAINT requests_waiting_not_negative CHECK (waiting >= 0),
    CONSTRAINT requests_ended_within_slots
        CHECK (cardinality(completed) + cardinality(given_up) <= cardinality(slots)),
    CONSTRAINT requests_job_not_negative CHECK (held_back >= 0 AND failures >= 0),
    CONSTRAINT requests_region_reference FOREIGN KEY (region) REFERENCES regional.regions (region)
);
CREATE INDEX requests_live
    ON regional.requests (region, tenant, workload, generation) WHERE state <> 'withdrawn';
CREATE INDEX requests_queue
    ON regional.requests (region, priority, enqueued_at)
    WHERE state IN ('pending', 'timed_out');
CREATE INDEX requests_region_written_in_index ON regional.requests (region, written_in);

-- `freed_version` is the version at which the claim on capacity, quota, devices and slot ended;
-- while it is null the claim counts, whether the reservation is held or has become a binding.
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
    -- The emergency draw that it counts against, instead of the grant.
    emergency TEXT,
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
    CONSTRAINT reservations_amount_not_negative
        CHECK (cpu_millis >= 0 AND memory_mib >= 0 AND gpus >= 0),
    CONSTRAINT reservations_devices_match_gpus CHECK (cardinality(devices) = gpus),
    CONSTRAINT reservations_lease_has_length CHECK (reserved_at < expires_at),
    CONSTRAINT reservations_ended_when_not_held CHECK ((state = 'held') = (ended_at IS NULL)),
    CONSTRAINT reservations_held_claims CHECK (state <> 'held' OR freed_version IS NULL),
    CONSTRAINT reservations_ended_frees
        CHECK (state NOT IN ('released', 'expired') OR freed_version IS NOT NULL),
    CONSTRAINT reservations_region_token_state_unique UNIQUE (region, token, state),
    CONSTRAINT reservations_region_tenant_workload_claimed_slot_reference
        FOREIGN KEY (region, tenant, workload, claimed_slot)
        REFERENCES regional.slots (region, tenant, workload, slot),
    CONSTRAINT reservations_region_reference
        FOREIGN KEY (region) REFERENCES regional.regions (region)
) WITH (fillfactor = 70);
-- By the version that claimed or freed capacity; what comes between moves none.
CREATE INDEX reservations_changes
    ON regional.reservations (region, (coalesce(freed_version, created_version)));
CREATE INDEX reservations_claims_by_node
    ON regional.reservations (region, node) WHERE freed_version IS NULL;
CREATE INDEX reservations_leases ON regional.reservations (region, expires_at) WHERE state = 'held';
-- A read that looks for claims by name says `claimed_slot` and uses this index, which holds no claim
-- that has ended. The reference of claims to their slots is checked by it, too.
CREATE UNIQUE INDEX reservations_one_claim_per_slot
    ON regional.reservations (tenant, workload, claimed_slot) WHERE claimed_slot IS NOT NULL;

-- One row per reservation that became bound. It has the authority's part of the state only: what
-- runs, is ready or serves is observed, and `live_claims` merges the two.
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
    CONSTRAINT bindings_region_token_reservation_state_reference
        FOREIGN KEY (region, token, reservation_state)
        REFERENCES regional.reservations (region, token, state)
) WITH (fillfactor = 70);
CREATE INDEX bindings_changes ON regional.bindings (region, changed_version);

-- Claims that are to be replaced, one row for each cause: one that ends removes its own mark and no
-- other. A trigger drops the rows when the claim ends.
CREATE TABLE regional.replacements (
    region TEXT NOT NULL,
    token BIGINT NOT NULL,
    -- What can remove it, and its id: a drain's request, an override, the revision of a policy that
    -- was rolled back, or one request.
    kind TEXT NOT NULL,
    cause TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    requested_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- When its workload began to act on it.
    begun_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT replacements_key PRIMARY KEY (region, token, kind, cause),
    CONSTRAINT replacements_kind_known CHECK (kind IN ('drain', 'override', 'policy', 'request')),
    CONSTRAINT replacements_region_token_reference
        FOREIGN KEY (region, token) REFERENCES regional.reservations (region, token)
);
CREATE INDEX replacements_by_cause ON regional.replacements (region, kind, cause);

-- Nodes that are being emptied, and those that were: one row for each order.
CREATE TABLE regional.drains (
    region TEXT NOT NULL,
    request TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    wait_for_jobs BOOLEAN NOT NULL,
    nodes TEXT[] NOT NULL,
    -- Those that it cordoned itself: others stay cordoned when it is cancelled.
    cordoned TEXT[] NOT NULL,
    replicas INTEGER NOT NULL,
    state TEXT DEFAULT 'draining' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT DEFAULT '' NOT NULL,
    CONSTRAINT drains_key PRIMARY KEY (region, request),
    CONSTRAINT drains_kind_known CHECK (kind IN ('node', 'zone', 'pool')),
    CONSTRAINT drains_state_known
        CHECK (state IN ('draining', 'drained', 'cancelled', 'gave_up')),
    CONSTRAINT drains_ended_at CHECK ((state = 'draining') = (ended_at IS NULL)),
    CONSTRAINT drains_deadline_after_start CHECK (started_at < deadline_at),
    CONSTRAINT drains_region_reference FOREIGN KEY (region) REFERENCES regional.regions (region)
);
CREATE INDEX drains_latest ON regional.drains (region, started_at);
CREATE UNIQUE INDEX drains_one_at_a_time
    ON regional.drains (region, kind, name) WHERE ended_at IS NULL;

-- What people and services asked for and were answered: a request id counts once for its target,
-- which is the workflow that was asked. Here are those whose effect is the region's.
CREATE TABLE regional.operator_requests (
    target TEXT NOT NULL,
    request TEXT NOT NULL,
    message TEXT NOT NULL,
    -- Of what it asks for, without who asks and why.
    digest TEXT NOT NULL,
    actor TEXT NOT NULL,
    -- Whether its sender proved to be the actor: a repetition then has to, as well.
    is_signed BOOLEAN NOT NULL,
    -- What its sender was answered, and the request of the drain that it is about.
    answer JSONB NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- When it may be forgotten; never where this is NULL.
    kept_until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT operator_requests_key PRIMARY KEY (target, request)
);

CREATE TABLE regional.observations (
    region TEXT NOT NULL,
    token BIGINT NOT NULL,
    session BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    state TEXT NOT NULL,
    evidence TEXT NOT NULL,
    log_directory TEXT,
    observer TEXT NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- That its process has ended with; none while it runs, and if a signal ended it.
    exit_code INTEGER,
    written_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
    CONSTRAINT observations_key PRIMARY KEY (region, token),
    CONSTRAINT observations_state_known
        CHECK (state IN ('starting', 'running', 'ready', 'serving', 'failed', 'stopped')),
    CONSTRAINT observations_exit_code_of_an_end
        CHECK (exit_code IS NULL
               OR (exit_code BETWEEN 0 AND 255 AND state IN ('failed', 'stopped'))),
    CONSTRAINT observations_region_token_reference
        FOREIGN KEY (region, token) REFERENCES regional.bindings (region, token)
) WITH (fillfactor = 70);
CREATE INDEX observations_region_written_in_index ON regional.observations (region, written_in);

-- A bound reservation has a binding. Both rows arrive in one transaction, so it is checked at its
-- end; the other direction is the binding's own reference.
ALTER TABLE regional.reservations
    ADD CONSTRAINT reservations_region_bound_token_reference
    FOREIGN KEY (region, bound_token)
    REFERENCES regional.bindings (region, token)
    DEFERRABLE INITIALLY DEFERRED;

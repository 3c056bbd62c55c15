-- Revision 0002: what a workload is divided into, what its replicas run, and who may follow it.

-- ── workloads ───────────────────────────────────────────────────────────────────────────────────

ALTER TABLE global.workloads
    ADD COLUMN share JSONB DEFAULT '{}' NOT NULL,
    ADD COLUMN deleted_at TIMESTAMP WITH TIME ZONE,
    ADD CONSTRAINT workloads_deleted_is_let_go CHECK (deleted_at IS NULL OR finalizers = '{}');

-- Keys of intents name the generation and are recorded for ever: a generation that came again would
-- find the outcomes of the one before it.
CREATE TRIGGER workloads_are_not_deleted BEFORE DELETE ON global.workloads FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a deleted workload keeps its row: its generation is remembered');

CREATE TRIGGER never_emptied BEFORE TRUNCATE ON global.workloads FOR EACH STATEMENT
EXECUTE FUNCTION regional.refuse('global.workloads is never emptied');

CREATE TRIGGER generations_only_advance BEFORE UPDATE ON global.workloads FOR EACH ROW
WHEN (NEW.tenant <> OLD.tenant OR NEW.workload <> OLD.workload OR NEW.generation < OLD.generation
      OR (OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS NULL
          AND NEW.generation = OLD.generation))
EXECUTE FUNCTION regional.refuse('a workload keeps its name, and its generations only advance');

CREATE TABLE global.workload_requests (
    tenant TEXT NOT NULL,
    workload TEXT NOT NULL,
    request TEXT NOT NULL,
    payload_sha256 BYTEA NOT NULL,
    answer JSONB NOT NULL,
    actor TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT workload_requests_key PRIMARY KEY (tenant, workload, request),
    CONSTRAINT workload_requests_tenant_workload_reference FOREIGN KEY(tenant, workload) REFERENCES global.workloads (tenant, workload)
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON global.workload_requests
FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse('global.workload_requests is append-only');

-- ── requests ────────────────────────────────────────────────────────────────────────────────────

ALTER TABLE regional.requests
    ADD COLUMN spec JSONB DEFAULT '{}' NOT NULL,
    ADD COLUMN waiting INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN completed INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ADD CONSTRAINT requests_waiting_whole CHECK (waiting >= 0),
    ADD CONSTRAINT requests_completed_whole CHECK (completed BETWEEN 0 AND cardinality(slots));

CREATE INDEX requests_region_changed_at_index ON regional.requests (region, changed_at);
CREATE INDEX requests_queue ON regional.requests (region, priority, enqueued_at)
 WHERE state = 'pending';

-- A placement stays open while its slots live, so it may have to find places again.
DROP TRIGGER final_state ON regional.requests;
CREATE TRIGGER final_state BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN (OLD.state = 'withdrawn' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a request that was withdrawn is not asked again');

CREATE TRIGGER request_is_fixed BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN ((OLD.region, OLD.tenant, OLD.workload, OLD.generation, OLD.spec)
      IS DISTINCT FROM (NEW.region, NEW.tenant, NEW.workload, NEW.generation, NEW.spec))
EXECUTE FUNCTION regional.refuse('what a request runs never changes');

CREATE TRIGGER waits_since_it_began BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN (NEW.enqueued_at IS DISTINCT FROM OLD.enqueued_at
      AND NOT (OLD.state = 'placed' AND NEW.state <> 'placed' AND NEW.enqueued_at > OLD.enqueued_at))
EXECUTE FUNCTION regional.refuse('only what was placed begins to wait anew');

-- ── for those who follow and those who ask why ──────────────────────────────────────────────────

CREATE INDEX nodes_changes ON regional.nodes (region, changed_version);
CREATE INDEX bindings_changes ON regional.bindings (region, changed_version);
CREATE INDEX observations_region_received_at_index ON regional.observations (region, received_at);

-- Keys are read by prefix too; ordered by their bytes, the primary key serves that by itself.
ALTER TABLE regional.intents ALTER COLUMN key TYPE TEXT COLLATE "C";

-- A message that was refused is told once, however often its workflow tells it.
CREATE UNIQUE INDEX events_messages ON audit.events (chain, (after ->> 'message_key'))
 WHERE after ? 'message_key';

-- What ended keeps the moment of its end, also when its node's lease lapses later.
CREATE OR REPLACE FUNCTION regional.binding_status(at_time timestamptz)
RETURNS TABLE (
    region text, token bigint, tenant text, workload text, generation bigint, slot integer,
    attempt integer, node text, state text, observer text, evidence text, since timestamptz
) LANGUAGE sql STABLE AS $$
    SELECT r.region, r.token, r.tenant, r.workload, r.generation, r.slot, r.attempt, r.node,
           CASE WHEN b.state = 'released' THEN 'released'
                WHEN o.state IN ('failed', 'stopped') THEN o.state
                WHEN l.expires_at IS NULL OR l.expires_at <= at_time THEN 'unknown'
                ELSE coalesce(o.state, b.state) END,
           CASE WHEN b.state = 'released' OR o.state IS NULL THEN b.actor ELSE o.observer END,
           CASE WHEN b.state = 'released' OR o.state IS NULL THEN b.evidence ELSE o.evidence END,
           CASE WHEN b.state = 'released' THEN b.released_at
                WHEN o.state IN ('failed', 'stopped') THEN o.received_at
                WHEN l.expires_at <= at_time THEN l.expires_at
                ELSE coalesce(o.received_at, b.started_at, b.bound_at) END
      FROM regional.bindings AS b
      JOIN regional.reservations AS r USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
$$;

-- A new region grows from nothing to thousands of rows within seconds, while plans are made by the
-- statistics of its first moments: whoever commits may have them taken again.
CREATE FUNCTION regional.refresh_statistics() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ANALYZE regional.nodes, regional.node_leases, regional.slots, regional.reservations,
            regional.bindings, regional.observations, regional.intents, regional.requests;
END $$;

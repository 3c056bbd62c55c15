-- What must stay true whatever writes: a bug, a retry, or a person with psql.
--
-- Three habits run through these files.
-- * Counters follow claims. A reservation row whose freed_version is null is a claim: inserting one
--   adds to its region, node, grant and budget, freeing it subtracts, and CHECKs bound the sums.
--   Nothing else can move a counter: no role may, and a guard refuses even the owner.
-- * Rules that need only OLD and NEW are WHEN clauses, so a legal change never calls a function.
-- * Functions that write what the caller may not write are SECURITY DEFINER with a fixed path, and
--   no role may attach them to a table of their own: roles.py takes EXECUTE from the public.

CREATE FUNCTION regional.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- ── reservations: held, then exactly one of bound, released, expired ─────────────────────────────

CREATE TRIGGER begins_held BEFORE INSERT ON regional.reservations FOR EACH ROW
WHEN (NEW.state <> 'held' OR NEW.freed_version IS NOT NULL)
EXECUTE FUNCTION regional.refuse('a reservation begins held, with a live claim');

CREATE TRIGGER ends_once BEFORE UPDATE ON regional.reservations FOR EACH ROW
WHEN (OLD.state <> 'held' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a reservation ends in exactly one of bound, released, expired');

CREATE TRIGGER freed_for_good BEFORE UPDATE ON regional.reservations FOR EACH ROW
WHEN (OLD.freed_version IS NOT NULL)
EXECUTE FUNCTION regional.refuse('a reservation whose claim was freed never changes again');

CREATE FUNCTION regional.refuse_unless_released() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM regional.bindings AS b
                    WHERE b.region = NEW.region AND b.token = NEW.token
                      AND b.state = 'released') THEN
        RAISE EXCEPTION 'a bound reservation is freed by releasing its binding'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER bound_is_freed_by_its_binding BEFORE UPDATE ON regional.reservations FOR EACH ROW
WHEN (NEW.state = 'bound' AND NEW.freed_version IS NOT NULL)
EXECUTE FUNCTION regional.refuse_unless_released();

CREATE TRIGGER claim_is_fixed BEFORE UPDATE ON regional.reservations FOR EACH ROW
WHEN ((OLD.region, OLD.token, OLD.tenant, OLD.workload, OLD.generation, OLD.slot, OLD.attempt,
       OLD.node, OLD.cpu_millis, OLD.memory_mib, OLD.gpus, OLD.devices, OLD.budget,
       OLD.emergency, OLD.epoch, OLD.requirements,
       OLD.expires_at - OLD.reserved_at, OLD.created_version, OLD.policy_revision)
      IS DISTINCT FROM
      (NEW.region, NEW.token, NEW.tenant, NEW.workload, NEW.generation, NEW.slot, NEW.attempt,
       NEW.node, NEW.cpu_millis, NEW.memory_mib, NEW.gpus, NEW.devices, NEW.budget,
       NEW.emergency, NEW.epoch, NEW.requirements,
       NEW.expires_at - NEW.reserved_at, NEW.created_version, NEW.policy_revision)
      OR NEW.reserved_at > OLD.reserved_at
      OR (OLD.state <> 'held' AND NEW.reserved_at <> OLD.reserved_at))
EXECUTE FUNCTION regional.refuse('what a reservation claims is fixed when it is made');

CREATE TRIGGER claims_are_not_deleted BEFORE DELETE ON regional.reservations FOR EACH ROW
WHEN (OLD.freed_version IS NULL)
EXECUTE FUNCTION regional.refuse('a live claim is released, never deleted');

-- A claim that is to be replaced need not be any more when it ends.
CREATE FUNCTION regional.drop_replacements() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM regional.replacements AS p USING changed AS r
     WHERE r.freed_version IS NOT NULL AND p.region = r.region AND p.token = r.token;
    RETURN NULL;
END $$;

CREATE TRIGGER c_replaced AFTER UPDATE ON regional.reservations
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.drop_replacements();

-- ── bindings: bound, starting, released ──────────────────────────────────────────────────────────

CREATE TRIGGER begins_bound BEFORE INSERT ON regional.bindings FOR EACH ROW
WHEN (NEW.state <> 'bound')
EXECUTE FUNCTION regional.refuse('a binding begins bound');

CREATE TRIGGER legal_move BEFORE UPDATE ON regional.bindings FOR EACH ROW
WHEN (OLD.state = 'released' OR (OLD.state = 'starting' AND NEW.state = 'bound')
      OR (OLD.region, OLD.token, OLD.bound_at) IS DISTINCT FROM
         (NEW.region, NEW.token, NEW.bound_at))
EXECUTE FUNCTION regional.refuse('a binding moves bound, starting, released, and never back');

CREATE TRIGGER bindings_are_not_deleted BEFORE DELETE ON regional.bindings FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a binding is released, never deleted');

CREATE FUNCTION regional.free_released() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE regional.reservations AS r
       SET freed_version = b.changed_version, changed_version = b.changed_version
      FROM changed AS b
     WHERE b.state = 'released' AND r.region = b.region AND r.token = b.token;
    RETURN NULL;
END $$;

CREATE TRIGGER frees_its_claim AFTER UPDATE ON regional.bindings
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.free_released();

-- Locks the leases of nodes that are reported lost: a renewal on its way is waited for, and a later
-- one finds the lease lapsed. The commit may not write leases, so this function locks them for it.
CREATE FUNCTION regional.hold_leases(in_region text, in_nodes text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT FROM regional.node_leases WHERE region = in_region AND node = ANY(in_nodes)
     ORDER BY node FOR UPDATE
$$;

-- The claims that count against node, grant, devices and slot, with what the authority and their last
-- observer know of them at a given time: `state` is null while a claim is only reserved. What ended
-- keeps the moment of its end, also when its node's lease lapses later. The planner sees into the
-- function if it is given a stable clock, and then drops each join of which a statement reads nothing.
CREATE FUNCTION regional.live_claims(at_time timestamptz, and_ended boolean DEFAULT false)
RETURNS TABLE (
    region text, token bigint, tenant text, workload text, generation bigint, slot integer,
    claimed_slot integer, attempt integer, node text, zone text, cpu_millis bigint,
    memory_mib bigint, gpus bigint, devices text[], priority integer, policy_revision integer,
    reservation text, reserved_at timestamptz, expires_at timestamptz, created_version bigint,
    freed_version bigint, started_at timestamptz, stop_requested_at timestamptz, stop_reason text,
    state text, observer text, evidence text, log_directory text, since timestamptz,
    exit_code integer, is_marked boolean, is_job boolean, lease_epoch bigint,
    lease_expires_at timestamptz, read_at timestamptz
) LANGUAGE sql STABLE AS $$
    SELECT r.region, r.token, r.tenant, r.workload, r.generation, r.slot, r.claimed_slot, r.attempt,
           r.node, n.zone, r.cpu_millis, r.memory_mib, r.gpus, r.devices, r.priority,
           r.policy_revision, r.state, r.reserved_at, r.expires_at, r.created_version,
           r.freed_version, b.started_at, b.stop_requested_at, b.stop_reason,
           CASE WHEN b.state IS NULL THEN NULL
                WHEN b.state = 'released' THEN 'released'
                WHEN o.state IN ('failed', 'stopped') THEN o.state
                WHEN l.expires_at IS NULL OR l.expires_at <= at_time THEN 'unknown'
                ELSE coalesce(o.state, b.state) END,
           CASE WHEN b.state = 'released' OR o.state IS NULL THEN b.actor ELSE o.observer END,
           CASE WHEN b.state = 'released' OR o.state IS NULL THEN b.evidence ELSE o.evidence END,
           o.log_directory,
           CASE WHEN b.state IS NULL THEN NULL
                WHEN b.state = 'released' THEN b.released_at
                WHEN o.state IN ('failed', 'stopped') THEN o.received_at
                WHEN l.expires_at <= at_time THEN l.expires_at
                ELSE coalesce(o.received_at, b.started_at, b.bound_at) END,
           o.exit_code,
           -- A mark by an override ends with its time, whether the region knows or not.
           EXISTS (SELECT FROM regional.replacements AS p
                    WHERE p.region = r.region AND p.token = r.token AND NOT EXISTS (
                          SELECT FROM regional.overrides AS v
                           WHERE p.kind = 'override' AND v.region = p.region
                             AND v.override = p.cause AND v.expires_at <= at_time)),
           coalesce(h.spec ->> 'kind' = 'job', false),
           l.epoch, l.expires_at, at_time
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
      LEFT JOIN regional.nodes AS n ON n.region = r.region AND n.node = r.node
      LEFT JOIN regional.shares AS h
        ON h.region = r.region AND h.tenant = r.tenant AND h.workload = r.workload
       AND h.generation = r.generation
     -- Both conditions say the same: one index of live claims is by slot, the other by node.
     WHERE and_ended OR (r.claimed_slot IS NOT NULL AND r.freed_version IS NULL)
$$;

-- What must stay true whoever writes: a bug, a retry, or a person with psql.
--
-- Three habits run through this file.
-- * Counters follow claims. A reservation row whose freed_version is null is a claim; inserting one
--   adds to its region, node, grant and budget, freeing it subtracts, and CHECKs bound the sums.
--   Nothing else can move a counter: no role may, and a guard refuses even the owner.
-- * Rules that need only OLD and NEW are WHEN clauses, so a legal change never calls a function.
-- * Functions that write what the caller may not write are SECURITY DEFINER with a fixed path, and
--   nobody may attach them to a table of their own: roles.py takes EXECUTE from the public.

CREATE FUNCTION regional.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- ── reservations: held, then exactly one of bound, released, expired ────────────────────────────

CREATE TRIGGER begins_held BEFORE INSERT ON regional.reservations FOR EACH ROW
WHEN (NEW.state <> 'held' OR NEW.freed_version IS NOT NULL)
EXECUTE FUNCTION regional.refuse('a reservation begins held, with its claim standing');

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
       OLD.node, OLD.cpu_millis, OLD.memory_mib, OLD.gpus, OLD.devices, OLD.budget, OLD.epoch,
       OLD.requirements,
       OLD.reserved_at, OLD.expires_at, OLD.created_version, OLD.policy_revision)
      IS DISTINCT FROM
      (NEW.region, NEW.token, NEW.tenant, NEW.workload, NEW.generation, NEW.slot, NEW.attempt,
       NEW.node, NEW.cpu_millis, NEW.memory_mib, NEW.gpus, NEW.devices, NEW.budget, NEW.epoch,
       NEW.requirements,
       NEW.reserved_at, NEW.expires_at, NEW.created_version, NEW.policy_revision))
EXECUTE FUNCTION regional.refuse('what a reservation claims is fixed when it is made');

CREATE TRIGGER claims_are_not_deleted BEFORE DELETE ON regional.reservations FOR EACH ROW
WHEN (OLD.freed_version IS NULL)
EXECUTE FUNCTION regional.refuse('a standing claim is released, never deleted');

-- ── bindings: bound, starting, released ─────────────────────────────────────────────────────────

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

-- ── counters follow claims ──────────────────────────────────────────────────────────────────────

-- A freed row never changes again (freed_for_good), so an updated row that is freed was freed now.
-- The region's row comes first: it is the lock every regional transaction begins with.
CREATE FUNCTION regional.account_claims() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sign CONSTANT bigint := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
    touched bigint;
BEGIN
    UPDATE regional.regions AS r
       SET used_cpu_millis = r.used_cpu_millis + sign * c.cpu_millis,
           used_memory_mib = r.used_memory_mib + sign * c.memory_mib,
           used_gpus = r.used_gpus + sign * c.gpus
      FROM (SELECT region, sum(cpu_millis)::bigint AS cpu_millis,
                   sum(memory_mib)::bigint AS memory_mib, sum(gpus)::bigint AS gpus
              FROM changed WHERE TG_OP = 'INSERT' OR freed_version IS NOT NULL
             GROUP BY region) AS c
     WHERE r.region = c.region;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' AND EXISTS (SELECT FROM changed JOIN regional.regions AS r USING (region)
                                     WHERE changed.token > r.tokens_issued) THEN
        RAISE EXCEPTION 'a reservation has a token that its region has not issued'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;

    UPDATE regional.nodes AS n
       SET used_cpu_millis = n.used_cpu_millis + sign * c.cpu_millis,
           used_memory_mib = n.used_memory_mib + sign * c.memory_mib,
           used_gpus = n.used_gpus + sign * c.gpus
      FROM (SELECT region, node, sum(cpu_millis)::bigint AS cpu_millis,
                   sum(memory_mib)::bigint AS memory_mib, sum(gpus)::bigint AS gpus
              FROM changed WHERE TG_OP = 'INSERT' OR freed_version IS NOT NULL
             GROUP BY region, node) AS c
     WHERE n.region = c.region AND n.node = c.node;
    GET DIAGNOSTICS touched = ROW_COUNT;
    IF touched < (SELECT count(DISTINCT (region, node)) FROM changed
                   WHERE TG_OP = 'INSERT' OR freed_version IS NOT NULL) THEN
        RAISE EXCEPTION 'a reservation names a node that its region does not have'
            USING ERRCODE = 'foreign_key_violation';
    END IF;

    UPDATE regional.grants AS g
       SET used_cpu_millis = g.used_cpu_millis + sign * c.cpu_millis,
           used_memory_mib = g.used_memory_mib + sign * c.memory_mib,
           used_gpus = g.used_gpus + sign * c.gpus
      FROM (SELECT region, tenant, sum(cpu_millis)::bigint AS cpu_millis,
                   sum(memory_mib)::bigint AS memory_mib, sum(gpus)::bigint AS gpus
              FROM changed WHERE TG_OP = 'INSERT' OR freed_version IS NOT NULL
             GROUP BY region, tenant) AS c
     WHERE g.region = c.region AND g.tenant = c.tenant;
    GET DIAGNOSTICS touched = ROW_COUNT;
    IF touched < (SELECT count(DISTINCT (region, tenant)) FROM changed
                   WHERE TG_OP = 'INSERT' OR freed_version IS NOT NULL) THEN
        RAISE EXCEPTION 'a reservation names a tenant that has no grant in its region'
            USING ERRCODE = 'foreign_key_violation';
    END IF;

    IF EXISTS (SELECT FROM changed WHERE budget IS NOT NULL) THEN
        UPDATE regional.recovery_budgets AS b
           SET used_cpu_millis = b.used_cpu_millis + sign * c.cpu_millis,
               used_memory_mib = b.used_memory_mib + sign * c.memory_mib,
               used_gpus = b.used_gpus + sign * c.gpus
          FROM (SELECT region, budget, sum(cpu_millis)::bigint AS cpu_millis,
                       sum(memory_mib)::bigint AS memory_mib, sum(gpus)::bigint AS gpus
                  FROM changed WHERE budget IS NOT NULL
                   AND (TG_OP = 'INSERT' OR freed_version IS NOT NULL)
                 GROUP BY region, budget) AS c
         WHERE b.region = c.region AND b.budget = c.budget;
        GET DIAGNOSTICS touched = ROW_COUNT;
        IF touched < (SELECT count(DISTINCT (region, budget)) FROM changed
                       WHERE budget IS NOT NULL
                         AND (TG_OP = 'INSERT' OR freed_version IS NOT NULL)) THEN
            RAISE EXCEPTION 'a reservation draws on a budget that its region does not have'
                USING ERRCODE = 'foreign_key_violation';
        END IF;
    END IF;

    IF EXISTS (SELECT FROM changed WHERE gpus > 0) THEN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO regional.device_holds (region, node, device, token)
            SELECT region, node, unnest(devices), token FROM changed;
        ELSE
            DELETE FROM regional.device_holds AS h USING changed AS c
             WHERE c.freed_version IS NOT NULL AND h.region = c.region AND h.token = c.token;
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER a_claims AFTER INSERT ON regional.reservations
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.account_claims();

CREATE TRIGGER a_frees AFTER UPDATE ON regional.reservations
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.account_claims();

-- A region's capacity is the sum of its nodes that are not lost or removed. What changed is told by
-- the rows: a placement moves a node's counters, which changes neither capacity nor history.
CREATE FUNCTION regional.account_capacity() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM changed JOIN regional.regions AS r USING (region)
                WHERE changed.changed_version > r.version) THEN
        RAISE EXCEPTION 'a node changes under a version that its region has reached'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        UPDATE regional.regions AS r
           SET capacity_cpu_millis = r.capacity_cpu_millis + c.cpu_millis,
               capacity_memory_mib = r.capacity_memory_mib + c.memory_mib,
               capacity_gpus = r.capacity_gpus + c.gpus
          FROM (SELECT region, sum(capacity_cpu_millis)::bigint AS cpu_millis,
                       sum(capacity_memory_mib)::bigint AS memory_mib,
                       sum(capacity_gpus)::bigint AS gpus
                  FROM changed WHERE state IN ('ready', 'unknown') GROUP BY region) AS c
         WHERE r.region = c.region;
        INSERT INTO regional.node_history (region, node, version, attributes)
        SELECT region, node, changed_version, regional.attributes(to_jsonb(c)) FROM changed AS c;
        RETURN NULL;
    END IF;
    UPDATE regional.regions AS r
       SET capacity_cpu_millis = r.capacity_cpu_millis + c.cpu_millis,
           capacity_memory_mib = r.capacity_memory_mib + c.memory_mib,
           capacity_gpus = r.capacity_gpus + c.gpus
      FROM (SELECT region, sum(sign * capacity_cpu_millis)::bigint AS cpu_millis,
                   sum(sign * capacity_memory_mib)::bigint AS memory_mib,
                   sum(sign * capacity_gpus)::bigint AS gpus
              FROM (SELECT 1 AS sign, * FROM changed UNION ALL SELECT -1, * FROM before) AS moved
             WHERE state IN ('ready', 'unknown') GROUP BY region) AS c
     WHERE r.region = c.region
       AND (c.cpu_millis, c.memory_mib, c.gpus) <> (0, 0, 0);
    INSERT INTO regional.node_history (region, node, version, attributes)
    SELECT region, node, n.changed_version, regional.attributes(to_jsonb(n))
      FROM changed AS n JOIN before AS o USING (region, node)
     WHERE n.changed_version <> o.changed_version
       AND (n.zone, n.pool, n.capacity_cpu_millis, n.capacity_memory_mib, n.capacity_gpus,
            n.labels, n.taints, n.dedicated_to, n.state, n.cordon_reason, n.cordoned_by)
           IS DISTINCT FROM
           (o.zone, o.pool, o.capacity_cpu_millis, o.capacity_memory_mib, o.capacity_gpus,
            o.labels, o.taints, o.dedicated_to, o.state, o.cordon_reason, o.cordoned_by);
    RETURN NULL;
END $$;

CREATE FUNCTION regional.attributes(node jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT node - ARRAY['region', 'node', 'used_cpu_millis', 'used_memory_mib', 'used_gpus']
$$;

CREATE TRIGGER a_added AFTER INSERT ON regional.nodes
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.account_capacity();

CREATE TRIGGER a_changed AFTER UPDATE ON regional.nodes
REFERENCING OLD TABLE AS before NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.account_capacity();

CREATE TRIGGER history_is_not_rewritten BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN (NEW.changed_version < OLD.changed_version
      OR (NEW.changed_version = OLD.changed_version
          AND (NEW.zone, NEW.pool, NEW.capacity_cpu_millis, NEW.capacity_memory_mib,
               NEW.capacity_gpus, NEW.labels, NEW.taints, NEW.dedicated_to, NEW.state,
               NEW.cordon_reason, NEW.cordoned_by)
              IS DISTINCT FROM
              (OLD.zone, OLD.pool, OLD.capacity_cpu_millis, OLD.capacity_memory_mib,
               OLD.capacity_gpus, OLD.labels, OLD.taints, OLD.dedicated_to, OLD.state,
               OLD.cordon_reason, OLD.cordoned_by)))
EXECUTE FUNCTION regional.refuse('a node changes under a version of its own');

-- S4 for what is there already: a node does not change under work that could not be placed on it.
CREATE FUNCTION regional.refuse_to_strand() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM regional.reservations AS r
                WHERE r.region = NEW.region AND r.node = NEW.node AND r.freed_version IS NULL
                  AND NOT regional.may_run(r.tenant, r.requirements, r.region, NEW.zone,
                                           NEW.labels, NEW.dedicated_to)) THEN
        RAISE EXCEPTION 'a node holds work that may not run on what it would become'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

-- Residency, required labels and tenancy: the same rule as in reserve_rules.py, for rows.
CREATE FUNCTION regional.may_run(
    tenant text, requirements jsonb, region text, zone text, labels jsonb, dedicated_to text
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (coalesce(requirements -> 'regions', '[]') = '[]' OR requirements -> 'regions' ? region)
       AND (coalesce(requirements -> 'zones', '[]') = '[]' OR requirements -> 'zones' ? zone)
       AND labels @> coalesce(requirements -> 'labels', '{}')
       AND (dedicated_to IS NULL OR dedicated_to = tenant)
       AND (dedicated_to IS NOT NULL OR NOT coalesce((requirements ->> 'dedicated')::boolean, false))
$$;

CREATE TRIGGER keeps_its_work BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN ((NEW.zone, NEW.labels, NEW.dedicated_to) IS DISTINCT FROM
      (OLD.zone, OLD.labels, OLD.dedicated_to))
EXECUTE FUNCTION regional.refuse_to_strand();

-- ── nobody moves a counter by hand ──────────────────────────────────────────────────────────────

CREATE TRIGGER counters_begin_at_zero BEFORE INSERT ON regional.nodes FOR EACH ROW
WHEN ((NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new node holds nothing');

CREATE TRIGGER counters_follow_claims BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.region, OLD.node, OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus)
          IS DISTINCT FROM
          (NEW.region, NEW.node, NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus))
EXECUTE FUNCTION regional.refuse('what a node holds changes only with its reservations');

CREATE TRIGGER nodes_are_not_deleted BEFORE DELETE ON regional.nodes FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a node is removed by its state, never deleted');

CREATE TRIGGER counters_begin_at_zero BEFORE INSERT ON regional.grants FOR EACH ROW
WHEN ((NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new grant is unused');

CREATE TRIGGER counters_follow_claims BEFORE UPDATE ON regional.grants FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.region, OLD.tenant, OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus)
          IS DISTINCT FROM
          (NEW.region, NEW.tenant, NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus))
EXECUTE FUNCTION regional.refuse('what a grant has in use changes only with reservations');

CREATE TRIGGER grants_are_not_deleted BEFORE DELETE ON regional.grants FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a grant is lowered to zero, never deleted');

CREATE TRIGGER counters_begin_at_zero BEFORE INSERT ON regional.recovery_budgets FOR EACH ROW
WHEN ((NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new recovery budget is unused');

CREATE TRIGGER counters_follow_claims BEFORE UPDATE ON regional.recovery_budgets FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.region, OLD.budget, OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus)
          IS DISTINCT FROM
          (NEW.region, NEW.budget, NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus))
EXECUTE FUNCTION regional.refuse('what a budget has in use changes only with reservations');

CREATE TRIGGER budgets_in_use_are_not_deleted BEFORE DELETE ON regional.recovery_budgets FOR EACH ROW
WHEN ((OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a recovery budget in use is not deleted');

CREATE TRIGGER counters_begin_at_zero BEFORE INSERT ON regional.regions FOR EACH ROW
WHEN ((NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus,
       NEW.capacity_cpu_millis, NEW.capacity_memory_mib, NEW.capacity_gpus) <> (0, 0, 0, 0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new region has no nodes and holds nothing');

CREATE TRIGGER counters_follow_claims BEFORE UPDATE ON regional.regions FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.region, OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus,
           OLD.capacity_cpu_millis, OLD.capacity_memory_mib, OLD.capacity_gpus)
          IS DISTINCT FROM
          (NEW.region, NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus,
           NEW.capacity_cpu_millis, NEW.capacity_memory_mib, NEW.capacity_gpus))
EXECUTE FUNCTION regional.refuse('what a region holds changes only with its nodes and reservations');

-- By one, so that no writer can use up what cannot be given back.
CREATE TRIGGER clocks_only_advance BEFORE UPDATE ON regional.regions FOR EACH ROW
WHEN (NEW.epoch NOT IN (OLD.epoch, OLD.epoch + 1)
      OR NEW.version NOT IN (OLD.version, OLD.version + 1)
      OR NEW.tokens_issued NOT BETWEEN OLD.tokens_issued AND OLD.tokens_issued + 512)
EXECUTE FUNCTION regional.refuse('epoch, version and tokens of a region advance step by step');

CREATE TRIGGER regions_are_not_deleted BEFORE DELETE ON regional.regions FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a region is fenced, never deleted');

CREATE TRIGGER holds_follow_claims BEFORE INSERT OR UPDATE OR DELETE ON regional.device_holds
FOR EACH ROW WHEN (pg_trigger_depth() = 0)
EXECUTE FUNCTION regional.refuse('a device is held and freed only by reservations');

-- ── quota is escrow ─────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION global.account_grants() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.granted_cpu_millis := NEW.granted_cpu_millis - OLD.granted_cpu_millis;
        NEW.granted_memory_mib := NEW.granted_memory_mib - OLD.granted_memory_mib;
        NEW.granted_gpus := NEW.granted_gpus - OLD.granted_gpus;
    END IF;
    UPDATE global.quotas
       SET granted_cpu_millis = granted_cpu_millis + NEW.granted_cpu_millis,
           granted_memory_mib = granted_memory_mib + NEW.granted_memory_mib,
           granted_gpus = granted_gpus + NEW.granted_gpus
     WHERE tenant = NEW.tenant;
    RETURN NULL;
END $$;

-- Only when what is granted changes: what a region holds changes with the region's lock held, and
-- must not wait for the quota's, which others take first.
CREATE TRIGGER a_sums
AFTER INSERT OR UPDATE OF granted_cpu_millis, granted_memory_mib, granted_gpus ON global.grants
FOR EACH ROW EXECUTE FUNCTION global.account_grants();

CREATE TRIGGER sums_begin_at_zero BEFORE INSERT ON global.quotas FOR EACH ROW
WHEN ((NEW.granted_cpu_millis, NEW.granted_memory_mib, NEW.granted_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new quota has granted nothing');

CREATE TRIGGER sums_follow_grants BEFORE UPDATE ON global.quotas FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.tenant, OLD.granted_cpu_millis, OLD.granted_memory_mib, OLD.granted_gpus)
          IS DISTINCT FROM
          (NEW.tenant, NEW.granted_cpu_millis, NEW.granted_memory_mib, NEW.granted_gpus))
EXECUTE FUNCTION regional.refuse('the granted sum changes only with the grants');

-- A region never holds more grant than the global side gave it. Where the database serves both
-- sides, what the region holds is written beside what it was given, in one row: credit comes after
-- the global debit, return before the global credit, and two writers meet at that row whatever
-- their isolation. In a database of its own a region follows the protocol's order alone.
CREATE FUNCTION regional.hold_grant() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE global.grants
       SET held_cpu_millis = NEW.granted_cpu_millis, held_memory_mib = NEW.granted_memory_mib,
           held_gpus = NEW.granted_gpus
     WHERE tenant = NEW.tenant AND region = NEW.region;
    IF NOT FOUND AND coalesce((SELECT serves_global FROM regional.deployment), true) THEN
        RAISE EXCEPTION 'a region holds no grant that the global side did not give'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER a_held AFTER INSERT OR UPDATE OF granted_cpu_millis, granted_memory_mib, granted_gpus
ON regional.grants FOR EACH ROW EXECUTE FUNCTION regional.hold_grant();

CREATE TRIGGER held_begins_at_zero BEFORE INSERT ON global.grants FOR EACH ROW
WHEN ((NEW.held_cpu_millis, NEW.held_memory_mib, NEW.held_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new grant is held by nobody');

CREATE TRIGGER held_follows_the_region BEFORE UPDATE ON global.grants FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.tenant, OLD.region, OLD.held_cpu_millis, OLD.held_memory_mib, OLD.held_gpus)
          IS DISTINCT FROM
          (NEW.tenant, NEW.region, NEW.held_cpu_millis, NEW.held_memory_mib, NEW.held_gpus))
EXECUTE FUNCTION regional.refuse('what a region holds changes only with its own grant');

CREATE TRIGGER serves_what_it_serves BEFORE UPDATE OR DELETE ON regional.deployment FOR EACH ROW
WHEN (OLD.serves_global)
EXECUTE FUNCTION regional.refuse('a database that serves the global side goes on doing so');

CREATE TRIGGER books_are_not_deleted BEFORE DELETE ON global.grants FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a grant is lowered to zero, never deleted');

-- ── every transition leaves a record ────────────────────────────────────────────────────────────

CREATE FUNCTION regional.database_role() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text
          ELSE current_setting('role') END $$;

CREATE FUNCTION regional.record_reservations() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO regional.transitions
               (region, version, object, from_state, to_state, actor, evidence, database_role, at)
        SELECT region, created_version, 'reservation/' || token, NULL, state, actor, evidence,
               regional.database_role(), reserved_at
          FROM changed ORDER BY token;
    ELSE
        INSERT INTO regional.transitions
               (region, version, object, from_state, to_state, actor, evidence, database_role, at)
        SELECT n.region, n.changed_version, 'reservation/' || n.token, o.state, n.state, n.actor,
               n.evidence, regional.database_role(), n.ended_at
          FROM changed AS n JOIN before AS o USING (region, token)
         WHERE n.state <> o.state ORDER BY n.token;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER b_recorded AFTER INSERT ON regional.reservations
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.record_reservations();

CREATE TRIGGER b_recorded_move AFTER UPDATE ON regional.reservations
REFERENCING OLD TABLE AS before NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.record_reservations();

CREATE FUNCTION regional.record_bindings() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM changed JOIN regional.reservations AS r USING (region, token)
                    WHERE r.freed_version IS NOT NULL) THEN
            RAISE EXCEPTION 'a claim that was freed is not bound again'
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        INSERT INTO regional.transitions
               (region, version, object, from_state, to_state, actor, evidence, database_role, at)
        SELECT region, changed_version, 'binding/' || token, NULL, state, actor, evidence,
               regional.database_role(), bound_at
          FROM changed ORDER BY token;
    ELSE
        INSERT INTO regional.transitions
               (region, version, object, from_state, to_state, actor, evidence, database_role, at)
        SELECT n.region, n.changed_version, 'binding/' || n.token, o.state,
               CASE WHEN n.state <> o.state THEN n.state ELSE 'stop requested' END,
               n.actor, n.evidence, regional.database_role(),
               CASE WHEN n.state = 'released' THEN n.released_at
                    WHEN n.state <> o.state THEN n.started_at
                    ELSE n.stop_requested_at END
          FROM changed AS n JOIN before AS o USING (region, token)
         WHERE n.state <> o.state OR n.stop_requested_at IS DISTINCT FROM o.stop_requested_at
         ORDER BY n.token;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER b_recorded AFTER INSERT ON regional.bindings
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.record_bindings();

CREATE TRIGGER b_recorded_move AFTER UPDATE ON regional.bindings
REFERENCING OLD TABLE AS before NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION regional.record_bindings();

-- ── records are append-only, for everyone ───────────────────────────────────────────────────────

DO $$
DECLARE
    record_table text;
BEGIN
    FOREACH record_table IN ARRAY ARRAY[
        'regional.intents', 'regional.transitions', 'regional.decisions', 'regional.grant_changes',
        'regional.node_history', 'global.policies', 'audit.events'
    ] LOOP
        EXECUTE format(
            'CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %s
             FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse(%L)',
            record_table, record_table || ' is append-only');
    END LOOP;
    FOREACH record_table IN ARRAY ARRAY[
        'regional.regions', 'regional.nodes', 'regional.grants', 'regional.slots',
        'regional.reservations', 'regional.bindings', 'regional.device_holds', 'regional.devices',
        'regional.recovery_budgets', 'regional.deployment',
        'global.quotas', 'global.grants',
        'global.slots', 'audit.heads'
    ] LOOP
        EXECUTE format(
            'CREATE TRIGGER never_emptied BEFORE TRUNCATE ON %s
             FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse(%L)',
            record_table, record_table || ' is never emptied');
    END LOOP;
END $$;

-- Each event's hash covers the hash before it, so a changed, removed or inserted row breaks the
-- chain from there on. The head is apart so that appending locks one row, not a table.
CREATE FUNCTION audit.append(
    in_chain text, in_at timestamptz, in_actor text, in_action text, in_object text,
    in_before jsonb, in_after jsonb
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head audit.heads;
BEGIN
    INSERT INTO audit.heads VALUES (in_chain, 0, ''::bytea) ON CONFLICT DO NOTHING;
    SELECT * INTO head FROM audit.heads WHERE chain = in_chain FOR UPDATE;
    head.sequence := head.sequence + 1;
    in_at := coalesce(in_at, clock_timestamp());
    head.hash := sha256(head.hash || convert_to(jsonb_build_array(
        in_chain, head.sequence, (extract(epoch FROM in_at) * 1000000)::bigint, in_actor,
        regional.database_role(), in_action, in_object, in_before, in_after)::text, 'UTF8'));
    INSERT INTO audit.events
           (chain, sequence, at, actor, database_role, action, object, before, after, hash)
    VALUES (in_chain, head.sequence, in_at, in_actor, regional.database_role(), in_action,
            in_object, in_before, in_after, head.hash);
    UPDATE audit.heads SET sequence = head.sequence, hash = head.hash WHERE chain = in_chain;
    RETURN head.sequence;
END $$;

-- ── slots change hands by number ────────────────────────────────────────────────────────────────

CREATE TRIGGER slots_are_not_deleted BEFORE DELETE ON regional.slots FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a slot is given up, never deleted: its number is remembered');

CREATE TRIGGER slots_are_not_deleted BEFORE DELETE ON global.slots FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a slot is given up, never deleted: its number is remembered');

CREATE TRIGGER numbers_only_advance BEFORE UPDATE ON regional.slots FOR EACH ROW
WHEN (NEW.number NOT BETWEEN OLD.number AND OLD.number + 1000000
      OR (NEW.number = OLD.number AND NEW.region IS NOT NULL
          AND NEW.region IS DISTINCT FROM OLD.region))
EXECUTE FUNCTION regional.refuse('a slot goes to another region only under a higher number');

CREATE TRIGGER numbers_only_advance BEFORE UPDATE ON global.slots FOR EACH ROW
WHEN (NEW.number NOT IN (OLD.number, OLD.number + 1)
      OR (NEW.number = OLD.number AND NEW.region IS NOT NULL
          AND NEW.region IS DISTINCT FROM OLD.region))
EXECUTE FUNCTION regional.refuse('a slot goes to another region only under a higher number');

CREATE TRIGGER sessions_only_advance BEFORE UPDATE ON regional.node_leases FOR EACH ROW
WHEN (NEW.session NOT IN (OLD.session, OLD.session + 1))
EXECUTE FUNCTION regional.refuse('the sessions of a node advance one by one');

-- ── what is final stays so ──────────────────────────────────────────────────────────────────────

CREATE TRIGGER final_state BEFORE UPDATE ON global.overrides FOR EACH ROW
WHEN (OLD.state IN ('expired', 'revoked', 'rejected'))
EXECUTE FUNCTION regional.refuse('an override that ended never changes again');

CREATE TRIGGER final_state BEFORE UPDATE ON regional.policy_states FOR EACH ROW
WHEN (OLD.state = 'rolled_back' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a revision that was rolled back is not used again');

CREATE TRIGGER final_state BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN (OLD.state = 'removed' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a removed node does not come back under its name');

CREATE TRIGGER final_state BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN (OLD.state IN ('placed', 'withdrawn', 'timed_out') AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a request that ended is not asked again');

-- ── watch ───────────────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION regional.announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('durable_regions', NEW.region || ' ' || NEW.epoch || ' ' || NEW.version);
    RETURN NULL;
END $$;

CREATE TRIGGER announced AFTER UPDATE ON regional.regions FOR EACH ROW
WHEN (NEW.version <> OLD.version OR NEW.epoch <> OLD.epoch)
EXECUTE FUNCTION regional.announce();

-- Locks the leases of nodes that are said to be lost: a renewal on its way is waited for, and one
-- that comes later finds the lease lapsed. The commit may not write leases, so this locks for it.
CREATE FUNCTION regional.hold_leases(in_region text, in_nodes text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT FROM regional.node_leases WHERE region = in_region AND node = ANY(in_nodes)
     ORDER BY node FOR UPDATE
$$;

-- What a binding is, as far as the authority and the last observation know at a given time.
CREATE FUNCTION regional.binding_status(at_time timestamptz)
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
                WHEN l.expires_at <= at_time THEN l.expires_at
                ELSE coalesce(o.received_at, b.started_at, b.bound_at) END
      FROM regional.bindings AS b
      JOIN regional.reservations AS r USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
$$;

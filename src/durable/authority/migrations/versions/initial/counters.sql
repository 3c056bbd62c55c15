-- Counters follow claims, and none is moved by hand.

-- A freed row never changes again (freed_for_good), so an updated row that is freed was freed just
-- now. The region's row comes first: every regional transaction begins with its lock.
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
              FROM changed
             WHERE emergency IS NULL AND (TG_OP = 'INSERT' OR freed_version IS NOT NULL)
             GROUP BY region, tenant) AS c
     WHERE g.region = c.region AND g.tenant = c.tenant;
    GET DIAGNOSTICS touched = ROW_COUNT;
    IF touched < (SELECT count(DISTINCT (region, tenant)) FROM changed
                   WHERE emergency IS NULL
                     AND (TG_OP = 'INSERT' OR freed_version IS NOT NULL)) THEN
        RAISE EXCEPTION 'a reservation names a tenant that has no grant in its region'
            USING ERRCODE = 'foreign_key_violation';
    END IF;

    -- What is reserved on an emergency draw counts there instead of against the grant.
    IF EXISTS (SELECT FROM changed WHERE emergency IS NOT NULL) THEN
        UPDATE regional.emergency_draws AS e
           SET used_cpu_millis = e.used_cpu_millis + sign * c.cpu_millis,
               used_memory_mib = e.used_memory_mib + sign * c.memory_mib,
               used_gpus = e.used_gpus + sign * c.gpus
          FROM (SELECT region, emergency, tenant, sum(cpu_millis)::bigint AS cpu_millis,
                       sum(memory_mib)::bigint AS memory_mib, sum(gpus)::bigint AS gpus
                  FROM changed WHERE emergency IS NOT NULL
                   AND (TG_OP = 'INSERT' OR freed_version IS NOT NULL)
                 GROUP BY region, emergency, tenant) AS c
         WHERE e.region = c.region AND e.override = c.emergency AND e.tenant = c.tenant
           AND (sign < 0 OR NOT e.has_ended);
        GET DIAGNOSTICS touched = ROW_COUNT;
        IF touched < (SELECT count(DISTINCT (region, emergency, tenant)) FROM changed
                       WHERE emergency IS NOT NULL
                         AND (TG_OP = 'INSERT' OR freed_version IS NOT NULL)) THEN
            RAISE EXCEPTION 'a reservation uses an emergency draw that its tenant does not have now'
                USING ERRCODE = 'foreign_key_violation';
        END IF;
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

-- ── no counter is moved by hand ───────────────────────────────────────────────────────────────────

CREATE TRIGGER counters_begin_at_zero BEFORE INSERT ON regional.nodes FOR EACH ROW
WHEN ((NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new node holds nothing');

CREATE TRIGGER counters_follow_claims BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.region, OLD.node, OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus)
          IS DISTINCT FROM
          (NEW.region, NEW.node, NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus))
EXECUTE FUNCTION regional.refuse('what a node holds changes only with its reservations');

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

CREATE TRIGGER counters_begin_at_zero BEFORE INSERT ON regional.emergency_draws FOR EACH ROW
WHEN ((NEW.used_cpu_millis, NEW.used_memory_mib, NEW.used_gpus) <> (0, 0, 0))
EXECUTE FUNCTION regional.refuse('a new emergency draw is unused');

CREATE TRIGGER counters_follow_claims BEFORE UPDATE ON regional.emergency_draws FOR EACH ROW
WHEN (pg_trigger_depth() = 0
      AND (OLD.region, OLD.override, OLD.tenant, OLD.used_cpu_millis, OLD.used_memory_mib,
           OLD.used_gpus)
          IS DISTINCT FROM
          (NEW.region, NEW.override, NEW.tenant, NEW.used_cpu_millis, NEW.used_memory_mib,
           NEW.used_gpus))
EXECUTE FUNCTION regional.refuse('what an emergency draw has in use changes with reservations');

CREATE TRIGGER draws_are_not_deleted BEFORE DELETE ON regional.emergency_draws FOR EACH ROW
EXECUTE FUNCTION regional.refuse('an emergency draw ends, and is never deleted');

CREATE TRIGGER draws_end_for_good BEFORE UPDATE ON regional.emergency_draws FOR EACH ROW
WHEN (OLD.has_ended AND (NOT NEW.has_ended OR NEW.expires_at > OLD.expires_at))
EXECUTE FUNCTION regional.refuse('an emergency draw that is over grants nothing again');

CREATE TRIGGER budgets_in_use_are_not_deleted BEFORE DELETE ON regional.recovery_budgets
FOR EACH ROW WHEN ((OLD.used_cpu_millis, OLD.used_memory_mib, OLD.used_gpus) <> (0, 0, 0))
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
EXECUTE FUNCTION regional.refuse('what a region holds changes only with nodes and reservations');

CREATE TRIGGER holds_follow_claims BEFORE INSERT OR UPDATE OR DELETE ON regional.device_holds
FOR EACH ROW WHEN (pg_trigger_depth() = 0)
EXECUTE FUNCTION regional.refuse('a device is held and freed only by reservations');

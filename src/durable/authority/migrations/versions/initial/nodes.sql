-- Nodes: the region's capacity follows them, their past can be rebuilt, and their work stays legal.

-- ── capacity and history ─────────────────────────────────────────────────────────────────────────

-- A region's capacity is the sum of its nodes that live: one that fell silent gives nothing until
-- it is ready again. Old and new rows are compared, because a placement moves a node's counters and changes neither capacity nor history.
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
                  FROM changed WHERE state = 'ready' GROUP BY region) AS c
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
             WHERE state = 'ready' GROUP BY region) AS c
     WHERE r.region = c.region
       AND (c.cpu_millis, c.memory_mib, c.gpus) <> (0, 0, 0);
    INSERT INTO regional.node_history (region, node, version, attributes)
    SELECT region, node, n.changed_version, regional.attributes(to_jsonb(n))
      FROM changed AS n JOIN before AS o USING (region, node)
     WHERE n.changed_version <> o.changed_version
       AND (n.zone, n.pool, n.capacity_cpu_millis, n.capacity_memory_mib, n.capacity_gpus,
            n.labels, n.taints, n.dedicated_to, n.unhealthy_devices, n.state, n.cordon_reason,
            n.cordoned_by, n.cordoned_for)
           IS DISTINCT FROM
           (o.zone, o.pool, o.capacity_cpu_millis, o.capacity_memory_mib, o.capacity_gpus,
            o.labels, o.taints, o.dedicated_to, o.unhealthy_devices, o.state, o.cordon_reason,
            o.cordoned_by, o.cordoned_for);
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
               NEW.capacity_gpus, NEW.labels, NEW.taints, NEW.dedicated_to, NEW.unhealthy_devices,
               NEW.state, NEW.cordon_reason, NEW.cordoned_by, NEW.cordoned_for)
              IS DISTINCT FROM
              (OLD.zone, OLD.pool, OLD.capacity_cpu_millis, OLD.capacity_memory_mib,
               OLD.capacity_gpus, OLD.labels, OLD.taints, OLD.dedicated_to, OLD.unhealthy_devices,
               OLD.state, OLD.cordon_reason, OLD.cordoned_by, OLD.cordoned_for)))
EXECUTE FUNCTION regional.refuse('a node changes under a version of its own');

-- ── a node does not change under its work ────────────────────────────────────────────────────────

-- S4 for work that is already placed: a node does not become one on which it may not run.
CREATE FUNCTION regional.refuse_to_strand() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM regional.reservations AS r
                WHERE r.region = NEW.region AND r.node = NEW.node AND r.freed_version IS NULL
                  AND NOT regional.may_run(r.tenant, r.requirements, r.region, NEW.zone,
                                           NEW.labels, NEW.dedicated_to)) THEN
        RAISE EXCEPTION 'a node holds work that may not run on it after this change'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

-- Residency, required labels and tenancy: the rule of reserve_rules.py, in SQL.
CREATE FUNCTION regional.may_run(
    tenant text, requirements jsonb, region text, zone text, labels jsonb, dedicated_to text
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (coalesce(requirements -> 'regions', '[]') = '[]' OR requirements -> 'regions' ? region)
       AND (coalesce(requirements -> 'zones', '[]') = '[]' OR requirements -> 'zones' ? zone)
       AND labels @> coalesce(requirements -> 'labels', '{}')
       AND (dedicated_to IS NULL OR dedicated_to = tenant)
       AND (dedicated_to IS NOT NULL
            OR NOT coalesce((requirements ->> 'dedicated')::boolean, false))
$$;

CREATE TRIGGER keeps_its_work BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN ((NEW.zone, NEW.labels, NEW.dedicated_to) IS DISTINCT FROM
      (OLD.zone, OLD.labels, OLD.dedicated_to))
EXECUTE FUNCTION regional.refuse_to_strand();

-- ── names and sessions ───────────────────────────────────────────────────────────────────────────

CREATE TRIGGER nodes_are_not_deleted BEFORE DELETE ON regional.nodes FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a node is removed by its state, never deleted');

CREATE TRIGGER final_state BEFORE UPDATE ON regional.nodes FOR EACH ROW
WHEN (OLD.state = 'removed' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a removed node does not come back under its name');

CREATE TRIGGER sessions_only_advance BEFORE UPDATE ON regional.node_leases FOR EACH ROW
WHEN (NEW.session NOT IN (OLD.session, OLD.session + 1))
EXECUTE FUNCTION regional.refuse('the sessions of a node advance one by one');

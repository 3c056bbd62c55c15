-- Quota is escrow: a region holds no grant that the global side did not give.

-- What runs on emergency draws that are over, tenant by tenant: it goes on, as if it ran on the grant.
CREATE FUNCTION regional.overdrawn(at_time timestamptz)
RETURNS TABLE (region text, tenant text, cpu_millis bigint, memory_mib bigint, gpus bigint)
LANGUAGE sql STABLE AS $$
    SELECT e.region, e.tenant, sum(e.used_cpu_millis)::bigint, sum(e.used_memory_mib)::bigint,
           sum(e.used_gpus)::bigint
      FROM regional.emergency_draws AS e
     WHERE e.used_cpu_millis + e.used_memory_mib + e.used_gpus > 0
       AND (e.has_ended OR e.expires_at <= at_time)
     GROUP BY e.region, e.tenant
$$;

-- The one definition of what is left of a grant. `rest` is neither in use nor overdrawn, and may go
-- back to the ungranted quota. `free` is what of that no lowered quota wants back: for new
-- reservations, and for other regions. Both are negative while more runs than was granted.
CREATE FUNCTION regional.free_grants(at_time timestamptz)
RETURNS TABLE (
    region text, tenant text, granted_cpu_millis bigint, granted_memory_mib bigint,
    granted_gpus bigint, used_cpu_millis bigint, used_memory_mib bigint, used_gpus bigint,
    owed_cpu_millis bigint, owed_memory_mib bigint, owed_gpus bigint, protected_cpu_millis bigint,
    protected_memory_mib bigint, protected_gpus bigint, overdrawn_cpu_millis bigint,
    overdrawn_memory_mib bigint, overdrawn_gpus bigint, rest_cpu_millis bigint,
    rest_memory_mib bigint, rest_gpus bigint, free_cpu_millis bigint, free_memory_mib bigint,
    free_gpus bigint
) LANGUAGE sql STABLE AS $$
    SELECT g.region, g.tenant, g.granted_cpu_millis, g.granted_memory_mib, g.granted_gpus,
           g.used_cpu_millis, g.used_memory_mib, g.used_gpus, g.owed_cpu_millis,
           g.owed_memory_mib, g.owed_gpus, g.protected_cpu_millis, g.protected_memory_mib,
           g.protected_gpus, coalesce(o.cpu_millis, 0), coalesce(o.memory_mib, 0),
           coalesce(o.gpus, 0),
           g.granted_cpu_millis - g.used_cpu_millis - coalesce(o.cpu_millis, 0),
           g.granted_memory_mib - g.used_memory_mib - coalesce(o.memory_mib, 0),
           g.granted_gpus - g.used_gpus - coalesce(o.gpus, 0),
           g.granted_cpu_millis - g.used_cpu_millis - coalesce(o.cpu_millis, 0)
               - g.owed_cpu_millis,
           g.granted_memory_mib - g.used_memory_mib - coalesce(o.memory_mib, 0)
               - g.owed_memory_mib,
           g.granted_gpus - g.used_gpus - coalesce(o.gpus, 0) - g.owed_gpus
      FROM regional.grants AS g LEFT JOIN regional.overdrawn(at_time) AS o USING (region, tenant)
$$;

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

-- Only when what is granted changes: what a region holds changes under the region's lock, and must
-- not wait for the quota's lock, which other transactions take first.
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

-- A region never holds more grant than the global side gave it. Where one database serves both
-- sides, what the region holds is written beside what it was given, in one row: the credit comes
-- after the global debit, the return before the global credit, and two writers meet at that row
-- whatever their isolation. A region with a database of its own relies on the protocol's order.
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
EXECUTE FUNCTION regional.refuse('a new grant begins unheld');

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

-- A database that went back changes nothing before an operator has declared it restored.

CREATE FUNCTION regional.refuse_what_went_back() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text;
BEGIN
    SELECT why INTO reason FROM regional.restores WHERE went_back_at IS NOT NULL;
    IF FOUND AND regional.database_role() <> 'durable_restore' THEN
        RAISE EXCEPTION '%', reason USING ERRCODE = 'DU001';
    END IF;
    RETURN NULL;
END $$;

-- Agents go on to renew the leases of their nodes and to report: what runs, runs.
DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY[
        'global.workloads', 'global.generations', 'global.slots', 'global.quotas', 'global.grants',
        'global.grant_transfers', 'global.overrides', 'global.policies', 'global.policy_rollouts',
        'global.policy_orders', 'global.recoveries', 'global.recovery_moves', 'global.operators',
        'global.operator_rights', 'global.operator_requests',
        'regional.slots', 'regional.shares', 'regional.disruption_floors', 'regional.grants',
        'regional.reservations', 'regional.bindings', 'regional.intents', 'regional.requests',
        'regional.replacements', 'regional.overrides', 'regional.recovery_budgets',
        'regional.policy_states', 'regional.drains', 'regional.operator_requests']
    LOOP
        EXECUTE format('CREATE TRIGGER a_went_back BEFORE INSERT OR UPDATE OR DELETE ON %s '
                       'EXECUTE FUNCTION regional.refuse_what_went_back()', guarded);
    END LOOP;
END $$;

-- Neither a fence nor a lease.
CREATE TRIGGER a_went_back BEFORE UPDATE OF epoch, lease_number ON global.regions
EXECUTE FUNCTION regional.refuse_what_went_back();

CREATE TRIGGER a_went_back BEFORE UPDATE OF epoch, lease_number ON regional.regions
EXECUTE FUNCTION regional.refuse_what_went_back();

CREATE TRIGGER ended_by_an_operator BEFORE UPDATE ON regional.restores FOR EACH ROW
WHEN (current_setting('role') <> 'durable_restore'
      AND (OLD.went_back_at IS NOT NULL OR NEW.epoch IS DISTINCT FROM OLD.epoch))
EXECUTE FUNCTION regional.refuse('only an operator declares a database restored');

CREATE TRIGGER epochs_only_advance BEFORE UPDATE ON regional.restores FOR EACH ROW
WHEN (NEW.epoch < OLD.epoch)
EXECUTE FUNCTION regional.refuse('the epoch of a database that was restored only grows');

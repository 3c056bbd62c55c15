-- Every transition leaves a record, records are append-only, and the audit is a chain of hashes.

CREATE FUNCTION regional.database_role() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text
          ELSE current_setting('role') END $$;

-- ── transitions ──────────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION regional.record_reservations() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO regional.transitions
               (region, version, kind, token, from_state, to_state, actor, evidence, database_role,
                at)
        SELECT region, created_version, 'reservation', token, NULL, state, actor, evidence,
               regional.database_role(), reserved_at
          FROM changed ORDER BY token;
    ELSE
        INSERT INTO regional.transitions
               (region, version, kind, token, from_state, to_state, actor, evidence, database_role,
                at)
        SELECT n.region, n.changed_version, 'reservation', n.token, o.state, n.state, n.actor,
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
               (region, version, kind, token, from_state, to_state, actor, evidence, database_role,
                at)
        SELECT region, changed_version, 'binding', token, NULL, state, actor, evidence,
               regional.database_role(), bound_at
          FROM changed ORDER BY token;
    ELSE
        INSERT INTO regional.transitions
               (region, version, kind, token, from_state, to_state, actor, evidence, database_role,
                at)
        SELECT n.region, n.changed_version, 'binding', n.token, o.state,
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

-- ── append-only, for everyone ────────────────────────────────────────────────────────────────────

DO $$
DECLARE
    record_table text;
BEGIN
    FOREACH record_table IN ARRAY ARRAY[
        'regional.intents', 'regional.transitions', 'regional.decisions', 'regional.grant_changes',
        'regional.node_history', 'global.policies',
        'global.policy_orders', 'audit.events'
    ] LOOP
        EXECUTE format(
            'CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %s
             FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse(%L)',
            record_table, record_table || ' is append-only');
    END LOOP;
    FOREACH record_table IN ARRAY ARRAY[
        'regional.regions', 'regional.nodes', 'regional.grants', 'regional.slots',
        'regional.reservations', 'regional.bindings', 'regional.device_holds', 'regional.devices',
        'regional.recovery_budgets', 'regional.deployment', 'regional.restores',
        'global.regions', 'global.quotas', 'global.grants', 'global.slots', 'global.workloads',
        'audit.heads'
    ] LOOP
        EXECUTE format(
            'CREATE TRIGGER never_emptied BEFORE TRUNCATE ON %s
             FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse(%L)',
            record_table, record_table || ' is never emptied');
    END LOOP;
END $$;

-- A request id counts for as long as its row says.
DO $$
DECLARE
    side text;
BEGIN
    FOREACH side IN ARRAY ARRAY['global', 'regional'] LOOP
        EXECUTE format(
            'CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON %I.operator_requests
             FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse(%L)',
            side, side || '.operator_requests is append-only');
        EXECUTE format(
            'CREATE TRIGGER kept BEFORE DELETE ON %I.operator_requests FOR EACH ROW
             WHEN (OLD.kept_until IS NULL OR OLD.kept_until > clock_timestamp())
             EXECUTE FUNCTION regional.refuse(%L)',
            side, 'a request is kept for as long as it counts');
    END LOOP;
END $$;

-- Another id would make every signature that is under way worthless.
CREATE TRIGGER never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON global.deployment
FOR EACH STATEMENT EXECUTE FUNCTION regional.refuse('a deployment keeps its id');

-- ── the audit's chain ────────────────────────────────────────────────────────────────────────────

-- Each event's hash covers the one before it, so a changed, removed or inserted row breaks the
-- chain from there on. The head has a row of its own, so that appending locks that row alone. Who
-- appends says what was done, and by whom; its role and the time are the connection's and the
-- clock's, and a role appends only what `audit.rights` says is its own.
CREATE FUNCTION audit.append(
    in_chain text, in_actor text, in_action text, in_object text, in_before jsonb, in_after jsonb
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head audit.heads;
    writer text := regional.database_role();
    now timestamptz;
BEGIN
    IF NOT EXISTS (SELECT FROM audit.rights AS r
                    WHERE r.role = writer AND in_action LIKE r.action
                      AND CASE r.side WHEN 'global' THEN in_chain = 'global'
                          ELSE EXISTS (SELECT FROM regional.regions WHERE region = in_chain) END)
    THEN
        RAISE EXCEPTION '% may not append "%" to the chain %', writer, in_action, in_chain
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit.heads VALUES (in_chain, 0, ''::bytea) ON CONFLICT DO NOTHING;
    SELECT * INTO head FROM audit.heads WHERE chain = in_chain FOR UPDATE;
    head.sequence := head.sequence + 1;
    now := clock_timestamp();
    head.hash := sha256(head.hash || convert_to(jsonb_build_array(
        in_chain, head.sequence, extract(epoch FROM now)::text, in_actor, writer, in_action,
        in_object, in_before, in_after)::text, 'UTF8'));
    INSERT INTO audit.events
           (chain, sequence, at, actor, database_role, action, object, before, after, hash)
    VALUES (in_chain, head.sequence, now, in_actor, writer, in_action, in_object, in_before,
            in_after, head.hash);
    UPDATE audit.heads SET sequence = head.sequence, hash = head.hash WHERE chain = in_chain;
    RETURN head.sequence;
END $$;

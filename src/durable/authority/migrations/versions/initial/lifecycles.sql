-- Epochs, versions, slot numbers and generations only advance, and what is final stays so.
-- By small steps, so that no writer can use up numbers that can never be given back; but for
-- `durable restored`, which goes on above the numbers of every copy.

-- ── regions ──────────────────────────────────────────────────────────────────────────────────────

CREATE TRIGGER clocks_only_advance BEFORE UPDATE ON regional.regions FOR EACH ROW
WHEN (NEW.epoch < OLD.epoch OR NEW.version < OLD.version OR NEW.tokens_issued < OLD.tokens_issued
      OR NEW.lease_number < OLD.lease_number
      OR NEW.version - OLD.version > 1000000000000000
      OR (current_setting('role') <> 'durable_restore'
          AND (NEW.epoch > OLD.epoch + 1 OR NEW.version > OLD.version + 1
               OR NEW.tokens_issued > OLD.tokens_issued + 512)))
EXECUTE FUNCTION regional.refuse('epoch, version and tokens of a region advance step by step');

CREATE TRIGGER regions_are_not_deleted BEFORE DELETE ON regional.regions FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a region is fenced, never deleted');

-- A region whose lease began bounds itself by leases for ever: the global side waits for their end.
-- It may end early, as it does where the clock went back.
CREATE TRIGGER leased_for_good BEFORE UPDATE ON regional.regions FOR EACH ROW
WHEN (OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at IS NULL)
EXECUTE FUNCTION regional.refuse('a region that lives on leases never lives without one again');

CREATE TRIGGER clocks_only_advance BEFORE UPDATE ON global.regions FOR EACH ROW
WHEN (NEW.lease_number < OLD.lease_number OR NEW.known_number < OLD.known_number
      OR NEW.epoch < OLD.epoch OR (NEW.epoch > OLD.epoch AND NEW.state <> 'fenced')
      OR (current_setting('role') <> 'durable_restore'
          AND (NEW.lease_number > OLD.lease_number + 1
               OR NEW.epoch <> OLD.epoch
                  + (NEW.state = 'fenced' AND OLD.state <> 'fenced')::integer)))
EXECUTE FUNCTION regional.refuse('a fence raises the epoch of a region by one, and nothing else does');

CREATE TRIGGER fenced_lease_not_begun_anew BEFORE UPDATE ON global.regions FOR EACH ROW
WHEN (NEW.state = 'fenced' AND NEW.lease_expires_at IS NOT NULL
      AND (OLD.lease_expires_at IS NULL OR NEW.lease_expires_at > OLD.lease_expires_at)
      AND NOT (NEW.is_leased_fenced AND coalesce(OLD.lease_expires_at > clock_timestamp(), false))
      AND current_setting('role') <> 'durable_restore')
EXECUTE FUNCTION regional.refuse('the lease of a fenced region is not begun again');

CREATE TRIGGER regions_are_not_deleted BEFORE DELETE ON global.regions FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a region is fenced, never deleted');

CREATE FUNCTION regional.announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('durable_regions', NEW.region || ' ' || NEW.epoch || ' ' || NEW.version);
    RETURN NULL;
END $$;

CREATE TRIGGER announced AFTER UPDATE ON regional.regions FOR EACH ROW
WHEN (NEW.version <> OLD.version OR NEW.epoch <> OLD.epoch)
EXECUTE FUNCTION regional.announce();

-- A new region grows from nothing to thousands of rows within seconds, while queries are planned by
-- the statistics of its first moments; the commit's role may have them refreshed.
CREATE FUNCTION regional.refresh_statistics() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ANALYZE regional.nodes, regional.node_leases, regional.slots, regional.reservations,
            regional.bindings, regional.observations, regional.intents, regional.requests;
END $$;

-- ── the change feed ──────────────────────────────────────────────────────────────────────────────

-- Observations and requests take no region lock and have no version; a reader that follows them compares
-- the transaction that wrote a row with those that were visible at the last look. A trigger, so that
-- no writer can forget it or claim another transaction.
CREATE FUNCTION regional.note_transaction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.written_in := pg_current_xact_id();
    RETURN NEW;
END $$;

CREATE TRIGGER written_in_is_current BEFORE INSERT OR UPDATE ON regional.observations FOR EACH ROW
EXECUTE FUNCTION regional.note_transaction();

CREATE TRIGGER written_in_is_current BEFORE INSERT OR UPDATE ON regional.requests FOR EACH ROW
EXECUTE FUNCTION regional.note_transaction();

-- ── slots change hands by number ─────────────────────────────────────────────────────────────────

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
WHEN (NEW.number < OLD.number
      OR (NEW.number > OLD.number + 1 AND current_setting('role') <> 'durable_restore')
      OR (NEW.number = OLD.number AND NEW.region IS NOT NULL
          AND NEW.region IS DISTINCT FROM OLD.region))
EXECUTE FUNCTION regional.refuse('a slot goes to another region only under a higher number');

-- ── workloads ────────────────────────────────────────────────────────────────────────────────────

-- Keys of intents contain the generation and are recorded for ever: a generation that was used
-- again would find the outcomes of the earlier one.
CREATE TRIGGER workloads_are_not_deleted BEFORE DELETE ON global.workloads FOR EACH ROW
EXECUTE FUNCTION regional.refuse('a deleted workload keeps its row: its generation is remembered');

CREATE TRIGGER generations_only_advance BEFORE UPDATE ON global.workloads FOR EACH ROW
WHEN (NEW.tenant <> OLD.tenant OR NEW.workload <> OLD.workload
      OR NEW.generations NOT BETWEEN OLD.generations AND OLD.generations + 1000
      OR (OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS NULL
          AND NEW.generations = OLD.generations))
EXECUTE FUNCTION regional.refuse('a workload keeps its name, and its generations only advance');

CREATE TRIGGER revisions_only_advance BEFORE UPDATE ON global.workloads FOR EACH ROW
WHEN (NEW.revision < OLD.revision)
EXECUTE FUNCTION regional.refuse('a workload is divided by ever newer revisions');

-- ── shares ───────────────────────────────────────────────────────────────────────────────────────

-- How long a slot waits counts from when its region was given it. A trigger, so that no writer of
-- shares can forget it, and by the region's own clock.
CREATE FUNCTION regional.note_given() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.given_at := array_fill(clock_timestamp(), ARRAY[cardinality(NEW.slots)]);
    ELSE
        NEW.given_at := ARRAY(
            SELECT coalesce(was.at, clock_timestamp())
              FROM unnest(NEW.slots) WITH ORDINALITY AS given(slot, place)
              LEFT JOIN unnest(OLD.slots, OLD.given_at) AS was(slot, at) USING (slot)
             ORDER BY given.place);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER given_when_inserted BEFORE INSERT ON regional.shares FOR EACH ROW
EXECUTE FUNCTION regional.note_given();

CREATE TRIGGER given_when_changed BEFORE UPDATE ON regional.shares FOR EACH ROW
WHEN (NEW.slots IS DISTINCT FROM OLD.slots)
EXECUTE FUNCTION regional.note_given();

-- ── requests ─────────────────────────────────────────────────────────────────────────────────────

-- A placement stays open while its slots live, so it may have to find places again.
CREATE TRIGGER final_state BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN (OLD.state = 'withdrawn' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a request that was withdrawn stays withdrawn');

CREATE TRIGGER request_is_fixed BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN ((OLD.region, OLD.tenant, OLD.workload, OLD.generation, OLD.spec)
      IS DISTINCT FROM (NEW.region, NEW.tenant, NEW.workload, NEW.generation, NEW.spec))
EXECUTE FUNCTION regional.refuse('what a request runs never changes');

CREATE TRIGGER waits_since_it_began BEFORE UPDATE ON regional.requests FOR EACH ROW
WHEN (NEW.enqueued_at IS DISTINCT FROM OLD.enqueued_at
      AND NOT (OLD.state = 'placed' AND NEW.enqueued_at > OLD.enqueued_at))
EXECUTE FUNCTION regional.refuse('only a request that was placed begins to wait again');

-- ── policies and overrides ───────────────────────────────────────────────────────────────────────

CREATE TRIGGER final_state BEFORE UPDATE ON global.overrides FOR EACH ROW
WHEN (OLD.state IN ('expired', 'revoked', 'rejected'))
EXECUTE FUNCTION regional.refuse('an override that ended never changes again');

CREATE TRIGGER overrides_are_not_deleted BEFORE DELETE ON global.overrides FOR EACH ROW
EXECUTE FUNCTION regional.refuse('an override ends, and is never deleted');

CREATE TRIGGER override_is_fixed BEFORE UPDATE ON global.overrides FOR EACH ROW
WHEN (NEW.number <> OLD.number + 1
      OR (OLD.override, OLD.kind, OLD.scope, OLD.effect, OLD.actor, OLD.reason, OLD.proposed_at)
         IS DISTINCT FROM
         (NEW.override, NEW.kind, NEW.scope, NEW.effect, NEW.actor, NEW.reason, NEW.proposed_at)
      OR (OLD.activated_at IS NOT NULL AND NEW.latest_expiry > OLD.latest_expiry))
EXECUTE FUNCTION regional.refuse('what an override does is fixed when it is proposed');

-- A copy follows its original by number, and one that has ended stays so. Of one in force, only how
-- many claims it marked grows by itself; and with a clock that went back it moves as a whole.
CREATE TRIGGER numbers_only_advance BEFORE UPDATE ON regional.overrides FOR EACH ROW
WHEN (NEW.number < OLD.number OR OLD.ended_at IS NOT NULL
      OR (NEW.number = OLD.number
          AND NOT (NEW.since < OLD.since AND NEW.marked = OLD.marked AND NEW.ended_at IS NULL
                   AND NEW.expires_at - NEW.since = OLD.expires_at - OLD.since)
          AND (NEW.marked <= OLD.marked OR NEW.expires_at <> OLD.expires_at
               OR NEW.ended_at IS NOT NULL)))
EXECUTE FUNCTION regional.refuse('a copy of an override changes only under a higher number');

CREATE TRIGGER overrides_are_not_deleted BEFORE DELETE ON regional.overrides FOR EACH ROW
EXECUTE FUNCTION regional.refuse('an override ends, and is never deleted');

CREATE TRIGGER final_state BEFORE UPDATE ON regional.policy_states FOR EACH ROW
WHEN (OLD.state = 'rolled_back' AND NEW.state <> OLD.state)
EXECUTE FUNCTION regional.refuse('a revision that was rolled back is not used again');

-- A clock that went back. What it wrote before lies ahead of it now and would last as much longer.

-- Ends the region's lease, which the global side may have given to others before this clock gets to
-- its end. Of what began ahead of the clock as it is now, leases of nodes last no longer than their
-- length from now, and held reservations and overrides have left what they had at the last moment
-- seen. Answers how many seconds the clock went back behind that; null if not by more than a step.
CREATE FUNCTION regional.settle_clock(
    in_region text, in_before timestamptz, in_now timestamptz, in_step interval
) RETURNS double precision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    went_back interval;
BEGIN
    SELECT greatest(clock_seen_at, in_before,
                    lease_expires_at - make_interval(secs => lease_seconds)) - in_now
      INTO went_back FROM regional.regions WHERE region = in_region FOR NO KEY UPDATE;
    IF went_back <= in_step THEN
        RETURN NULL;
    END IF;
    UPDATE regional.regions
       SET lease_expires_at = CASE WHEN lease_expires_at < in_now
                                   THEN lease_expires_at ELSE in_now END,
           lease_seconds = 0,
           clock_seen_at = in_now, clock_went_back_at = in_now, version = version + 1
     WHERE region = in_region;
    PERFORM FROM regional.node_leases
      WHERE region = in_region AND renewed_at > in_now ORDER BY node FOR UPDATE;
    UPDATE regional.node_leases
       SET renewed_at = in_now, expires_at = in_now + (expires_at - renewed_at)
     WHERE region = in_region AND renewed_at > in_now;
    UPDATE regional.reservations
       SET reserved_at = reserved_at - went_back, expires_at = expires_at - went_back
     WHERE region = in_region AND state = 'held' AND reserved_at > in_now;
    UPDATE regional.emergency_draws AS d SET expires_at = d.expires_at - went_back
      FROM regional.overrides AS o
     WHERE d.region = in_region AND NOT d.has_ended AND (o.region, o.override) = (d.region, d.override)
       AND o.since > in_now;
    UPDATE regional.recovery_budgets AS b SET expires_at = b.expires_at - went_back
      FROM regional.overrides AS o
     WHERE b.region = in_region AND (o.region, o.override) = (b.region, b.override)
       AND o.since > in_now;
    UPDATE regional.overrides
       SET since = since - went_back, expires_at = expires_at - went_back
     WHERE region = in_region AND ended_at IS NULL AND since > in_now;
    RETURN extract(epoch FROM went_back);
END $$;

-- Locks for what has no row that everybody concerned may lock. They are rows, and only these functions
-- lock them: an advisory lock is open to every login, so one that may only read could keep operators,
-- policies and hand-overs waiting for as long as it likes.

CREATE TABLE global.locks (
    name TEXT NOT NULL,
    CONSTRAINT locks_key PRIMARY KEY (name)
);

-- Holds the lock of this name until the transaction ends; shared holders exclude only the others.
CREATE FUNCTION global.hold_lock(in_name text, is_shared boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO global.locks VALUES (in_name) ON CONFLICT DO NOTHING;
    IF is_shared THEN
        PERFORM FROM global.locks WHERE name = in_name FOR SHARE;
    ELSE
        PERFORM FROM global.locks WHERE name = in_name FOR UPDATE;
    END IF;
END $$;

-- Deletes a few requests that count no longer; what another transaction deletes is left to it. By
-- now(), which an index can be searched for; for clock_timestamp() it would be read to its end.
CREATE FUNCTION global.forget_requests(most bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM global.operator_requests
     WHERE (target, request) IN (
           SELECT target, request FROM global.operator_requests
            WHERE kept_until < now() ORDER BY kept_until LIMIT most FOR UPDATE SKIP LOCKED)
$$;

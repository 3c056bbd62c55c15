"""Who served when, written down by the authority's own database: a test then needs no luck."""

from collections.abc import Iterator

import psycopg

_INSTALL = """
    CREATE SCHEMA IF NOT EXISTS watched;
    CREATE TABLE IF NOT EXISTS watched.events (
        ordinal bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        region text NOT NULL, token bigint NOT NULL, event text NOT NULL
    );
    CREATE OR REPLACE FUNCTION watched.observe() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO watched.events (region, token, event)
        VALUES (NEW.region, NEW.token, NEW.state);
        RETURN NULL;
    END $$;
    CREATE OR REPLACE FUNCTION watched.stop() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO watched.events (region, token, event) VALUES (NEW.region, NEW.token, 'stop');
        RETURN NULL;
    END $$;
    CREATE OR REPLACE TRIGGER watched AFTER INSERT OR UPDATE ON regional.observations
        FOR EACH ROW EXECUTE FUNCTION watched.observe();
    CREATE OR REPLACE TRIGGER watched AFTER UPDATE ON regional.bindings
        FOR EACH ROW WHEN (OLD.stop_requested_at IS NULL AND NEW.stop_requested_at IS NOT NULL)
        EXECUTE FUNCTION watched.stop();
"""

_EVENTS = """
    SELECT e.region, e.token, e.event FROM watched.events AS e
      JOIN regional.reservations AS r USING (region, token)
     WHERE r.workload = %s ORDER BY e.ordinal
"""


class ServingLog:
    """How many replicas of a workload served at every moment, by every event in its order."""

    def __init__(self, url: str, workload: str = "api") -> None:
        self._url, self._workload = url, workload
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_INSTALL.encode())

    def counts(self) -> Iterator[int]:
        """After each event, how many served that nobody had asked to stop."""
        serving: set[tuple[str, int]] = set()
        with psycopg.connect(self._url) as connection:
            for region, token, event in connection.execute(_EVENTS.encode(), (self._workload,)):
                if event == "serving":
                    serving.add((region, token))
                else:
                    serving.discard((region, token))
                yield len(serving)

    def fewest(self, replicas: int) -> int:
        """The fewest that served once all of them had."""
        counts = list(self.counts())
        assert replicas in counts, "all of them served once"
        return min(counts[counts.index(replicas) :])

"""A database whose clock stands still until a test moves it.

Everything of ours asks for `clock_timestamp()`, which is found here before PostgreSQL's own; so no
row has to be changed for its time to be over, and no test depends on how fast it runs.
"""

from datetime import datetime

import psycopg

_INSTALL = """
    CREATE SCHEMA clock;
    CREATE TABLE clock.moment (at timestamptz NOT NULL);
    CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT at FROM clock.moment $$;
    GRANT USAGE ON SCHEMA clock TO PUBLIC;
    INSERT INTO clock.moment VALUES ('-infinity');
    DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET search_path = clock, pg_catalog, public',
                       current_database());
    END $$;
"""


def stop_clock(url: str, at: datetime) -> None:
    """Stops the clock of a database at a moment, for every connection that is made from now on."""
    with psycopg.connect(url) as owner:
        owner.execute(_INSTALL)
    move_clock(url, at)


def move_clock(url: str, at: datetime) -> None:
    with psycopg.connect(url) as owner:
        owner.execute("UPDATE clock.moment SET at = %s", [at])

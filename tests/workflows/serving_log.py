"""How many replicas of each workload served, after every stop and observation that was committed.

A trigger of the test's own writes it down in the same transaction, so that no moment is missed.
"""

import psycopg

from tests.workflows.plane import Plane

_INSTALL = """
    CREATE TABLE public.serving_log (
        ordinal bigserial PRIMARY KEY, tenant text, workload text, serving integer);

    CREATE FUNCTION public.log_serving() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        INSERT INTO public.serving_log (tenant, workload, serving)
        SELECT r.tenant, r.workload,
               count(*) FILTER (WHERE o.state = 'serving' AND b.stop_requested_at IS NULL)
          FROM regional.reservations AS r
          JOIN regional.bindings AS b USING (region, token)
          LEFT JOIN regional.observations AS o USING (region, token)
         WHERE r.freed_version IS NULL GROUP BY r.tenant, r.workload;
        RETURN NULL;
    END $$;

    CREATE TRIGGER z_logged AFTER UPDATE ON regional.bindings FOR EACH STATEMENT
    EXECUTE FUNCTION public.log_serving();
    CREATE TRIGGER z_logged AFTER INSERT OR UPDATE ON regional.observations FOR EACH STATEMENT
    EXECUTE FUNCTION public.log_serving();
"""


class ServingLog:
    """From the moment at which it is made."""

    def __init__(self, plane: Plane) -> None:
        self._url = plane.settings.require_database_url()
        with psycopg.connect(self._url) as connection:
            connection.execute(_INSTALL.encode())

    def lowest(self) -> dict[str, int]:
        """By workload, the fewest that ever served since."""
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(
                "SELECT workload, min(serving) FROM public.serving_log GROUP BY workload"
            ).fetchall()
        return dict(rows)

    def fewest(self, replicas: int, workload: str = "api") -> int:
        """The fewest replicas of a workload that served, once all of them had."""
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(
                "SELECT serving FROM public.serving_log WHERE workload = %s ORDER BY ordinal",
                (workload,),
            ).fetchall()
        counts = [serving for (serving,) in rows]
        assert replicas in counts, "all of them served once"
        return min(counts[counts.index(replicas) :])

"""How fast replicas are replaced beside how fast they are placed at first, above their floor.

Workloads are placed as in production; then another version of all of them rolls out at once, with
the defaults of the spec. A trigger of the bench's own writes down how many replicas of a workload
are left serving by every stop, so that no moment is missed.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
from temporalio.client import WorkflowHandle

from bench._plane import REGION, Plane, control_plane, fleet
from bench._report import progress, table, verdict
from bench.placement import spread_out
from durable.authority.reads.invariants import violations_everywhere
from durable.signals.names import placement_id, workload_id

TENANTS, AT_ONCE = 20, 20
# Replicas replaced per second against replicas placed per second, in the same run.
REPLACED_BAR = 0.4

FLOORS = """
    CREATE TABLE public.serving_floors (tenant text, workload text, serving bigint);
    CREATE FUNCTION public.note_stops() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        INSERT INTO public.serving_floors
        SELECT r.tenant, r.workload,
               (SELECT count(*) FROM regional.reservations AS live
                  JOIN regional.bindings AS b USING (region, token)
                  JOIN regional.observations AS o USING (region, token)
                 WHERE live.tenant = r.tenant AND live.workload = r.workload
                   AND live.claimed_slot IS NOT NULL AND o.state = 'serving'
                   AND b.stop_requested_at IS NULL)
          FROM changed AS c JOIN before AS p USING (region, token)
          JOIN regional.reservations AS r USING (region, token)
         WHERE p.stop_requested_at IS NULL AND c.stop_requested_at IS NOT NULL;
        RETURN NULL;
    END $$;
    CREATE TRIGGER z_floors AFTER UPDATE ON regional.bindings
    REFERENCING OLD TABLE AS before NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION public.note_stops();
"""

SERVING = """
    SELECT count(*) FROM regional.observations AS o
      JOIN regional.reservations AS r USING (region, token)
     WHERE o.state = 'serving' AND r.freed_version IS NULL AND r.generation = %s
       AND r.slot < %s
"""
ROLLING = "SELECT count(*) FROM global.workloads WHERE rollout IS NOT NULL OR generation <> %s"
LEAST = "SELECT min(serving) FROM public.serving_floors"


def manifest(at: int, version: int, replicas: int) -> dict[str, Any]:
    return {
        "tenant": f"tenant-{at % TENANTS}",
        "name": f"app-{at}",
        "spec": {
            "replicas": replicas,
            "resources": {"cpu": "1", "memory": "1Gi"},
            "run": {"environment": {"VERSION": str(version)}},
        },
    }


class Bench:
    def __init__(self, plane: Plane, sizes: argparse.Namespace) -> None:
        self._plane, self._sizes = plane, sizes
        self._url = plane.settings.require_database_url()

    async def count(self, query: str, *parameters: int) -> int:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            row = await (await connection.execute(query.encode(), parameters)).fetchone()
        return 0 if row is None or row[0] is None else row[0]

    async def watch(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            await connection.execute(FLOORS.encode())

    async def apply(self, version: int) -> float:
        """Seconds until every base slot of every workload serves this version."""
        sizes = self._sizes

        def one(at: int) -> Callable[[], Awaitable[Any]]:
            wanted = manifest(at, version, sizes.replicas)
            return lambda: self._plane.durable.apply(wanted, request_id=f"v{version}")

        began = time.perf_counter()
        await spread_out([one(at) for at in range(sizes.workloads)], AT_ONCE)
        total = sizes.workloads * sizes.replicas
        async with asyncio.timeout(1_200):
            while (done := await self.count(SERVING, version, sizes.replicas)) < total:
                progress(f"{done} of {total} serve version {version}")
                await asyncio.sleep(0.5)
            served = time.perf_counter() - began
            while await self.count(ROLLING, version):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        return served

    async def events(self, version: int) -> int:
        """Signals to the workloads' and to one version's placements' present runs."""
        signals = 0
        for at in range(self._sizes.workloads):
            tenant, name = f"tenant-{at % TENANTS}", f"app-{at}"
            ids = [workload_id(tenant, name), placement_id(tenant, name, version, REGION)]  # pyright: ignore[reportArgumentType]
            for id in ids:
                handle: WorkflowHandle[Any, Any] = self._plane.durable.client.get_workflow_handle(
                    id
                )
                async for event in handle.fetch_history_events():
                    signals += event.HasField("workflow_execution_signaled_event_attributes")
        return signals


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=20)
    return parser.parse_args()


async def main() -> None:
    sizes = arguments()
    total = sizes.workloads * sizes.replicas
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - PostgreSQL may run as another user
        cpu = 2 * total // TENANTS + 100
        async with control_plane(Path(folder), fleet(max(30, total // 5), TENANTS, cpu)) as plane:
            bench = Bench(plane, sizes)
            await bench.watch()
            placed = total / await bench.apply(1)
            progress(f"{placed:.1f} replicas placed per second")
            replaced = total / await bench.apply(2)
            messages = await bench.events(2) / total
            least = await bench.count(LEAST)
            broken = await violations_everywhere(plane.databases)
    floor = sizes.replicas - sizes.replicas // 4
    table(
        f"{sizes.workloads} workloads of {sizes.replicas} replicas roll out",
        ["what", "measured", "bar"],
        [
            ["replicas placed per second, at first", placed, ""],
            ["replicas replaced per second", replaced, ""],
            ["ratio of the two", replaced / placed, REPLACED_BAR],
            ["signals per replaced replica, current runs", messages, ""],
            ["fewest replicas of a workload that served", least, floor],
            ["broken invariants", len(broken), 0],
        ],
    )
    verdict(
        "rollout",
        {"placed_per_second": placed},
        {
            "replaced_per_second": replaced,
            "ratio": replaced / placed,
            "signals_per_replica": messages,
            "fewest_serving": least,
            "broken_invariants": len(broken),
        },
        holds=replaced / placed >= REPLACED_BAR and least >= floor and not broken,
    )


if __name__ == "__main__":
    asyncio.run(main())

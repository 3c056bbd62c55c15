"""What others cost: ordinary placements beside unplaceable requests, a small tenant beside a burst.

Everything runs as in production. First, ordinary jobs run through an idle region; then the same
beside thousands of requests that wait for room that never comes, while each job that ends frees
some. Then a small tenant applies a few workloads alone, and again behind another tenant's burst.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench._plane import REGION, Plane, control_plane
from bench._report import progress, table, verdict
from bench.placement import spread_out
from durable.authority.reads.invariants import violations_everywhere
from durable.client import Durable
from durable.model.fleet.manifest import Fleet
from durable.state_dir.record import StackError

AT_ONCE = 20
# Ordinary placements beside the unplaceable ones against without them, and the small tenant's
# p95 beside the burst against alone.
ORDINARY_BAR, BURST_BAR = 0.7, 5.0

STARTED = "SELECT count(*) FROM global.workloads WHERE starts_with(workload, %s)"
WAITING = """
    SELECT count(*) FROM regional.requests
     WHERE state IN ('pending', 'timed_out') AND starts_with(workload, %s)
"""
DONE = """
    SELECT count(*) FROM regional.requests
     WHERE state = 'withdrawn' AND cardinality(completed) > 0 AND starts_with(workload, %s)
"""
BOUND = """
    SELECT count(*) FROM regional.reservations
     WHERE state = 'bound' AND tenant = 'small' AND workload = %s
"""
SERVING = """
    SELECT count(*) FROM regional.observations AS o
      JOIN regional.reservations AS r USING (region, token)
     WHERE o.state = 'serving' AND starts_with(r.workload, %s)
"""
DECISIONS = "SELECT count(*), coalesce(sum(pg_column_size(evidence)), 0) FROM regional.decisions"


def fleet() -> Fleet:
    """Large nodes that are filled to leave room for ordinary work, and for nothing large."""
    quota = {"cpu": 1_000_000, "memory": "4000Ti"}
    return Fleet.model_validate(
        {
            "regions": [
                {
                    "id": REGION,
                    "zones": ["zone-a"],
                    "pools": [
                        {
                            "name": "pool",
                            "zone": "zone-a",
                            "count": 100,
                            "capacity": {"cpu": 64, "memory": "256Gi"},
                        }
                    ],
                }
            ],
            "tenants": [
                {"id": name, "hard": quota, "grants": {REGION: quota}}
                for name in ("ordinary", "unplaceable", "burst", "small")
            ],
        }
    )


def manifest(tenant: str, name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": "64Mi"}
    return {"tenant": tenant, "name": name, "spec": {"resources": resources, **spec}}


async def patiently(durable: Durable, wanted: dict[str, Any]) -> None:
    """Sends the same request until it is answered: whoever sends a thousand at once has to wait."""
    async with asyncio.timeout(900):
        while True:
            with contextlib.suppress(StackError):
                await durable.apply(wanted, request_id=wanted["name"])
                return


class Bench:
    """One control plane and what is measured on it."""

    def __init__(self, plane: Plane, url: str, sizes: argparse.Namespace) -> None:
        self._plane, self._url, self._sizes = plane, url, sizes

    async def count(self, query: str, *parameters: str) -> Any:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            return await (await connection.execute(query.encode(), parameters)).fetchone()

    async def until(self, query: str, prefix: str, wanted: int) -> None:
        async with asyncio.timeout(900):
            while (found := (await self.count(query, prefix))[0]) < wanted:
                progress(f"{found} of {wanted} {prefix}*")
                await asyncio.sleep(0.5)

    def applies(
        self, durable: Durable, wanted: Sequence[dict[str, Any]]
    ) -> list[Callable[[], Awaitable[Any]]]:
        return [lambda one=one: patiently(durable, one) for one in wanted]

    async def ordinary(self, prefix: str) -> float:
        """Jobs of one replica per second, from the first apply to the last end."""
        jobs = [
            manifest("ordinary", f"{prefix}{at}", "1", replicas=1, kind="job")
            for at in range(self._sizes.ordinary)
        ]
        began = time.perf_counter()
        await spread_out(self.applies(self._plane.durable, jobs), AT_ONCE)
        await self.until(DONE, prefix, len(jobs))
        return len(jobs) / (time.perf_counter() - began)

    async def fill(self) -> None:
        """Leaves four cores on every node; nothing that needs more finds room from here on."""
        filler = manifest("unplaceable", "filler", "60", replicas=100)
        await self._plane.durable.place(filler, request_id="filler")

    async def queue_up(self) -> None:
        """Requests of higher priority than ordinary work, each too large for what is free."""
        large = [
            manifest("unplaceable", f"large-{at}", "8", replicas=1, priority=900)
            for at in range(self._sizes.unplaceable)
        ]
        await spread_out(self.applies(self._plane.durable, large), AT_ONCE)
        await self.until(WAITING, "large-", len(large))

    async def small(self, durable: Durable, prefix: str) -> list[float]:
        """Seconds from apply to bound of each of the small tenant's workloads, sent at once."""
        names = [f"{prefix}{at}" for at in range(self._sizes.small)]
        return sorted(await asyncio.gather(*(self._one(durable, name) for name in names)))

    async def _one(self, durable: Durable, name: str) -> float:
        began = time.perf_counter()
        await patiently(durable, manifest("small", name, "10m", replicas=1))
        async with asyncio.timeout(600):
            while not (await self.count(BOUND, name))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return time.perf_counter() - began

    async def beside_burst(self, durable: Durable) -> list[float]:
        """The same right after another tenant sent all of its own."""
        many = [
            manifest("burst", f"burst-{at}", "10m", replicas=1) for at in range(self._sizes.burst)
        ]
        sending = asyncio.gather(*(one() for one in self.applies(self._plane.durable, many)))
        await self.until(STARTED, "burst-", self._sizes.burst // 20)
        taken = await self.small(durable, "behind-")
        await sending
        await self.until(SERVING, "burst-", len(many))
        return taken


def p95(taken: Sequence[float]) -> float:
    return taken[min(len(taken) - 1, int(len(taken) * 0.95))]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unplaceable", type=int, default=2_000)
    parser.add_argument("--ordinary", type=int, default=150)
    parser.add_argument("--burst", type=int, default=1_000)
    parser.add_argument("--small", type=int, default=10)
    return parser.parse_args()


async def main() -> None:
    sizes = arguments()
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - PostgreSQL may run as another user
        async with control_plane(Path(folder), fleet()) as plane:
            bench = Bench(plane, plane.settings.require_database_url(), sizes)
            async with await Durable.connect(plane.settings, actor="bench") as other:
                await bench.small(other, "warm-")
                alone = await bench.small(other, "alone-")
                progress(f"a burst of {sizes.burst}")
                behind = await bench.beside_burst(other)
            await bench.fill()
            progress(f"{sizes.ordinary} ordinary jobs")
            without = await bench.ordinary("calm-")
            progress(f"{sizes.unplaceable} requests that cannot be placed")
            await bench.queue_up()
            before = await bench.count(DECISIONS)
            began = time.perf_counter()
            beside = await bench.ordinary("busy-")
            seconds = time.perf_counter() - began
            after = await bench.count(DECISIONS)
            broken = await violations_everywhere(plane.databases)
    kept, delay = beside / without, p95(behind) / p95(alone)
    per_day = (after[1] - before[1]) / seconds * 86_400 / 2**30
    table(
        "Contention on a simulated fleet",
        ["what", "measured", "bar"],
        [
            ["ordinary jobs per second, empty queue", without, ""],
            [f"the same beside {sizes.unplaceable:,} unplaceable requests", beside, ""],
            ["ratio of the two", kept, ORDINARY_BAR],
            ["decisions recorded meanwhile, GiB a day", per_day, ""],
            ["small tenant alone, apply to bound, p95 s", p95(alone), ""],
            [f"the same behind a burst of {sizes.burst:,}", p95(behind), ""],
            ["ratio of the two", delay, BURST_BAR],
            ["broken invariants", len(broken), 0],
        ],
    )
    verdict(
        "contention",
        {"ordinary_per_second": without, "small_p95_seconds": p95(alone)},
        {
            "unplaceable": sizes.unplaceable,
            "ordinary_per_second_beside_unplaceable": beside,
            "ordinary_ratio": kept,
            "decisions_gib_per_day": per_day,
            "burst": sizes.burst,
            "small_p95_seconds_behind_burst": p95(behind),
            "small_ratio": delay,
            "broken_invariants": len(broken),
        },
        holds=kept >= ORDINARY_BAR and delay <= BURST_BAR and not broken,
    )


if __name__ == "__main__":
    asyncio.run(main())

"""How fast critical work serves again after the loss of a region, and what that costs the others.

Three regions, a simulated agent and a worker for each. Workloads serve; then the agent of one
region is killed, nobody says so, and the recovery is followed until everything that was moved
serves. Meanwhile small workloads are placed in the other regions, as they were before in calm.
The time counts from the kill to the fourth serving replica of each critical workload. How it grows
is judged by what comes after the detection, which takes as long for few workloads as for many.
"""

import argparse
import asyncio
import os
import signal
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from bench._plane import Plane, control_plane
from bench._rates import COMMITS, Rates, sample
from bench._report import progress, table, verdict
from bench.placement import spread_out
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.recovery.recoveries import newest_recovery, read_moves
from durable.model.fleet.manifest import Fleet
from durable.model.ids import RegionId
from durable.model.recovery.recoveries import Recovery, RecoveryPhase, WorkloadMove

LOST, OTHERS = RegionId("us-east"), ("us-west", "eu-west")
REPLICAS, CRITICAL_EACH, AT_ONCE = 4, 3, 20
# Half of each is in the region that is lost: four serve again only when what was moved does.
WEIGHTS = {str(LOST): 2, OTHERS[0]: 1, OTHERS[1]: 1}
LEASE_SECONDS = 5
# All critical workloads of the largest size, from the loss; and what the others may suffer.
SECONDS_BAR, LATENCY_BAR, GROWTH_BAR = 60.0, 2.0, 1.0
# How many commits of the authority a moved workload may cost, everything that goes on included.
COMMITS_PER_MOVE_BAR = 300.0
# What Temporal and PostgreSQL may be asked for in any second: no more than sixteen workloads are
# moved in one, each at the price above.
REQUESTS_BAR, COMMITS_BAR = 2_000.0, 16 * COMMITS_PER_MOVE_BAR


def fleet(workloads: int) -> Fleet:
    """Two regions can hold what three did."""
    cpu = workloads * REPLICAS
    nodes = max(6, cpu // 8)
    everything = {"cpu": 6 * cpu + 200, "memory": f"{6 * cpu + 200}Gi"}
    each = {"cpu": 2 * cpu + 60, "memory": f"{2 * cpu + 60}Gi"}
    regions = [str(LOST), *OTHERS]
    return Fleet.model_validate(
        {
            "regions": [
                {
                    "id": region,
                    "zones": [f"{region}-a"],
                    "pools": [
                        {
                            "name": "general", "zone": f"{region}-a", "count": nodes,
                            "capacity": {"cpu": 16, "memory": "64Gi"},
                        }
                    ],
                }
                for region in regions
            ],
            "tenants": [
                {"id": "bench", "hard": everything, "grants": dict.fromkeys(regions, each)}
            ],
        }
    )  # fmt: skip


def manifest(name: str, *, replicas: int = REPLICAS, **spec: Any) -> dict[str, Any]:
    wanted = {"replicas": replicas, "resources": {"cpu": "1", "memory": "1Gi"}, **spec}
    return {"tenant": "bench", "name": name, "spec": wanted}


class Loss:
    """One size: what serves, the loss, and what came of it."""

    def __init__(self, plane: Plane, workloads: int) -> None:
        self._plane, self._workloads = plane, workloads
        self._url = plane.settings.require_database_url()
        self._probes = 0

    async def serve(self) -> None:
        """One workload in three is critical."""

        async def one(at: int) -> None:
            priority = 900 if at % CRITICAL_EACH == 0 else 500
            await self._plane.durable.apply(
                manifest(f"app-{at}", priority=priority, weights=WEIGHTS)
            )
            await self._plane.durable.wait("bench", f"app-{at}", within_seconds=600)

        await spread_out([lambda at=at: one(at) for at in range(self._workloads)], AT_ONCE)

    async def lose(self) -> "Found":
        calm = [await self._probe() for _ in range(10)]
        rates = Rates()
        sampling = asyncio.create_task(sample(self._plane.metrics_url, self._url, rates))
        before = await self._commits(), time.perf_counter()
        os.kill(self._plane.pids[f"agent-{LOST}"], signal.SIGKILL)
        killed_at = await self._clock()
        during: list[float] = []
        recovery, moves = None, list[WorkloadMove]()
        async with asyncio.timeout(900):
            while recovery is None or not _is_done(recovery, moves):
                during.append(await self._probe())
                recovery = await newest_recovery(self._plane.databases, LOST)
                if recovery is not None:
                    moves = await read_moves(self._plane.databases, recovery.key)
                    whole = sum(one.whole_at is not None for one in moves)
                    progress(f"{recovery.phase}: {whole} of {len(moves)} workloads are whole")
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        commits, took = await self._commits() - before[0], time.perf_counter() - before[1]
        return Found(
            seconds=[
                (one.recovered_at - killed_at).total_seconds()
                for one in moves
                if one.priority >= 900 and one.recovered_at is not None
            ],
            detection=(recovery.started_at - killed_at).total_seconds(),
            critical=sum(one.priority >= 900 for one in moves),
            moves=len(moves),
            commits_per_move=commits / len(moves),
            commits_per_second=commits / took,
            peak_moves=_peak(moves),
            peak_requests=rates.peak_requests,
            peak_commits=rates.peak_commits,
            calm=statistics.median(calm),
            during=statistics.median(during),
        )

    async def _probe(self) -> float:
        """Seconds from the apply of one replica in a region that is not lost until it serves."""
        self._probes += 1
        name = f"probe-{self._probes}"
        region = OTHERS[self._probes % len(OTHERS)]
        began = time.perf_counter()
        small = manifest(name, replicas=1, requirements={"regions": [region]}, priority=500)
        await self._plane.durable.apply(small)
        await self._plane.durable.wait("bench", name, within_seconds=120)
        return time.perf_counter() - began

    async def _commits(self) -> int:
        return int(await self._ask(COMMITS))

    async def _clock(self) -> Any:
        return await self._ask("SELECT clock_timestamp()")

    async def _ask(self, query: str) -> Any:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            row = await (await connection.execute(query.encode())).fetchone()
        assert row is not None
        return row[0]


class Found:
    """What one loss came to."""

    def __init__(self, **figures: Any) -> None:
        self.seconds: list[float] = figures["seconds"]
        self.detection: float = figures["detection"]
        self.critical: int = figures["critical"]
        self.moves: int = figures["moves"]
        self.commits_per_move: float = figures["commits_per_move"]
        self.commits_per_second: float = figures["commits_per_second"]
        self.peak_moves: int = figures["peak_moves"]
        self.peak_requests: float = figures["peak_requests"]
        self.peak_commits: float = figures["peak_commits"]
        self.calm: float = figures["calm"]
        self.during: float = figures["during"]

    @property
    def slowest(self) -> float:
        return max(self.seconds) if len(self.seconds) == self.critical else float("inf")

    @property
    def after_detection(self) -> float:
        return self.slowest - self.detection

    @property
    def latency_ratio(self) -> float:
        return self.during / self.calm


def _is_done(recovery: Recovery, moves: list[WorkloadMove]) -> bool:
    is_moved = recovery.phase is RecoveryPhase.HOLDING
    return is_moved and bool(moves) and all(one.whole_at is not None for one in moves)


def _peak(moves: list[WorkloadMove]) -> int:
    """The most moves within any second."""
    moments = sorted(one.moved_at.timestamp() for one in moves if one.moved_at is not None)
    return max((sum(at <= one < at + 1 for one in moments) for at in moments), default=0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 100, 300])
    return parser.parse_args()


async def measure(workloads: int) -> tuple[Found, int]:
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - PostgreSQL may run as another user
        plan = _processes()
        async with control_plane(Path(folder), fleet(workloads), plan) as plane:
            loss = Loss(plane, workloads)
            await loss.serve()
            progress(f"{workloads} workloads serve; losing {LOST}")
            found = await loss.lose()
            broken = await violations_everywhere(plane.databases)
    return found, len(broken)


def _processes() -> dict[str, tuple[str, ...]]:
    plan: dict[str, tuple[str, ...]] = {"global": ("worker", "--global")}
    for region in (str(LOST), *OTHERS):
        plan[f"worker-{region}"] = ("worker", "--region", region)
        plan[f"agent-{region}"] = (
            "agent", "--simulated", "--region", region, "--start-delay", "0", "--ready-delay", "0",
            "--lease", str(LEASE_SECONDS),
        )  # fmt: skip
    return plan


async def main() -> None:
    sizes = sorted(arguments().sizes)
    results = {size: await measure(size) for size in sizes}
    rows = [
        [
            size, found.critical, found.slowest, found.after_detection, found.peak_moves,
            found.peak_requests, found.peak_commits, found.commits_per_second,
            found.commits_per_move, found.calm,
            found.during, broken,
        ]
        for size, (found, broken) in results.items()
    ]  # fmt: skip
    table(
        "Loss of one of three regions: seconds from the kill, highest rates, placing elsewhere",
        ["lost", "critical", "have 4 s", "after detection", "moves/s", "temporal/s", "commits/s",
         "mean", "/move", "calm s", "then s", "broken"],
        rows,
    )  # fmt: skip
    last = results[sizes[-1]][0]
    # From the loss, as the objective counts. What comes after the detection is shown beside it: the
    # smallest size is moved in one look, so that part grows faster than its share at first.
    growth = {
        f"{few}-{many}": results[many][0].slowest / results[few][0].slowest / (many / few)
        for few, many in pairwise(sizes)
    }
    requests = max(found.peak_requests for found, _ in results.values())
    commits = max(found.peak_commits for found, _ in results.values())
    latency = max(found.latency_ratio for found, _ in results.values())
    broken = sum(count for _, count in results.values())
    verdict(
        "recovery",
        {"place_calm_seconds": last.calm},
        {
            "slowest_seconds": {size: found.slowest for size, (found, _) in results.items()},
            "after_detection_seconds": {
                size: found.after_detection for size, (found, _) in results.items()
            },
            "growth_beside_linear": growth,
            "latency_ratio": latency,
            "peak_moves_per_second": max(found.peak_moves for found, _ in results.values()),
            "peak_requests_per_second": requests,
            "peak_commits_per_second": commits,
            "commits_per_move": last.commits_per_move,
            "broken_invariants": broken,
        },
        holds=last.slowest <= SECONDS_BAR
        and max(growth.values(), default=0.0) <= GROWTH_BAR
        and requests <= REQUESTS_BAR
        and commits <= COMMITS_BAR
        and latency <= LATENCY_BAR
        and last.commits_per_move <= COMMITS_PER_MOVE_BAR
        and not broken,
    )


if __name__ == "__main__":
    asyncio.run(main())

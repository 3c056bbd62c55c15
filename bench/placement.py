"""How many placements reach serving, beside a trivial workflow on the same server.

Everything runs as in production: the stack's Temporal and PostgreSQL with durability on, a global
worker, a regional worker and a simulated agent as processes of their own. The yardstick is a
workflow of one local activity that does nothing, started at the same server in the same run. The
empty pair is a workload's two workflows with the same steps and nothing in them.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from bench import _empty_pair
from bench._cpu import each, spent
from bench._plane import control_plane, fleet
from bench._report import progress, table, verdict
from bench._yardstick import Yardstick, nothing
from durable.authority.reads.invariants import violations_everywhere
from durable.client import Durable
from durable.temporal.connection import connect
from durable.temporal.worker import collect_garbage_rarely

TENANTS, NODES = 50, 1_000
AT_ONCE = 50

# Against the empty pair, and against the yardstick, in the same run.
SINGLES_BAR = 0.5
REPLICAS_BAR = 10.0


def manifest(name: str, tenant: int, replicas: int) -> dict[str, Any]:
    resources = {"cpu": "1", "memory": "1Gi"}
    return {
        "tenant": f"tenant-{tenant % TENANTS}",
        "name": name,
        "spec": {"replicas": replicas, "resources": resources},
    }


# ── the figures ─────────────────────────────────────────────────────────────────────────────────


async def spread_out(work: Sequence[Callable[[], Awaitable[Any]]], at_once: int) -> None:
    room = asyncio.Semaphore(at_once)

    async def one(each: Callable[[], Awaitable[Any]]) -> None:
        async with room:
            await each()

    await asyncio.gather(*(one(each) for each in work))


async def yardstick(client: Client, number: int, workflows: int) -> float:
    """Workflows of one local activity per second, on this server, from start to result."""
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_all_modules()
    )
    async with Worker(
        client,
        task_queue="yardstick",
        workflows=[Yardstick],
        activities=[nothing],
        workflow_runner=runner,
    ):

        def start(at: int) -> Callable[[], Awaitable[Any]]:
            return lambda: client.execute_workflow(
                Yardstick.run, id=f"yardstick-{number}-{at}", task_queue="yardstick"
            )

        began = time.perf_counter()
        await spread_out([start(at) for at in range(workflows)], AT_ONCE)
        return workflows / (time.perf_counter() - began)


async def empty_pairs(client: Client, pairs: int) -> float:
    """Pairs of workflows per second, as a workload has them, that do nothing."""
    async with _empty_pair.workers(client) as arrivals:

        def start(at: int) -> Callable[[], Awaitable[Any]]:
            return lambda: _empty_pair.apply(client, str(at))

        began = time.perf_counter()
        async with asyncio.timeout(600):
            await spread_out([start(at) for at in range(pairs)], AT_ONCE)
            for _ in range(pairs):
                await arrivals.readline()
        return pairs / (time.perf_counter() - began)


SERVING = """
    SELECT count(*) FROM regional.observations AS o
      JOIN regional.reservations AS r USING (region, token)
     WHERE o.state = 'serving' AND r.freed_version IS NULL AND starts_with(r.workload, %s)
"""


async def serving(url: str, prefix: str) -> int:
    """How many replicas of these workloads serve, asked as cheaply as can be."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(SERVING, [prefix])).fetchone()
    assert row is not None
    return row[0]


async def until_serving(url: str, prefix: str, wanted: int) -> None:
    async with asyncio.timeout(600):
        while (found := await serving(url, prefix)) < wanted:
            progress(f"{found} of {wanted} serve")
            await asyncio.sleep(0.2)


async def singles(durable: Durable, url: str, workloads: int) -> float:
    """Workloads of one replica per second, from the first apply to the last serving."""
    work = [
        (lambda at=at: durable.apply(manifest(f"single-{at}", at, 1), request_id=f"single-{at}"))
        for at in range(workloads)
    ]
    began = time.perf_counter()
    await spread_out(work, AT_ONCE)
    await until_serving(url, "single-", workloads)
    return workloads / (time.perf_counter() - began)


async def groups(durable: Durable, url: str, workloads: int, replicas: int) -> float:
    """Replicas per second of larger workloads, from the first apply to the last serving."""
    work = [
        (lambda at=at: durable.apply(manifest(f"group-{at}", at, replicas), request_id=f"g-{at}"))
        for at in range(workloads)
    ]
    began = time.perf_counter()
    await spread_out(work, AT_ONCE)
    await until_serving(url, "group-", workloads * replicas)
    return workloads * replicas / (time.perf_counter() - began)


# Asked often, so that it must not be what the machine is busy with.
BOUND = """
    SELECT count(*) FROM regional.reservations
     WHERE workload = %s AND state = 'bound' AND freed_version IS NULL
"""


async def latencies(durable: Durable, url: str, workloads: int) -> list[float]:
    """Milliseconds from apply to bound, one at a time."""
    taken: list[float] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for at in range(workloads):
            began = time.perf_counter()
            name = f"alone-{at}"
            asking = asyncio.create_task(
                durable.apply(manifest(name, at, 1), request_id=name), name=name
            )
            async with asyncio.timeout(60):
                while (await (await connection.execute(BOUND, [name])).fetchone()) != (1,):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            taken.append((time.perf_counter() - began) * 1000)
            await asking
    return sorted(taken)


def _figures(cpu: Mapping[str, float]) -> str:
    return f"{sum(cpu.values()):.0f} ({', '.join(f'{ms:.0f}' for ms in cpu.values())})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--singles", type=int, default=300)
    parser.add_argument("--workloads", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--latencies", type=int, default=40)
    return parser.parse_args()


async def main() -> None:
    sizes = arguments()
    collect_garbage_rarely()  # as workers do, or the yardstick would be shorter than it is
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - PostgreSQL may run as another user
        async with control_plane(Path(folder), fleet(NODES, TENANTS)) as plane:
            settings, databases, durable = plane.settings, plane.databases, plane.durable
            client = await connect(settings, settings.require_temporal_address())
            progress("warming up")
            await durable.place(manifest("warm-up", 0, 1), request_id="warm-up")
            url = settings.require_database_url()
            taken = await latencies(durable, url, sizes.latencies)
            progress("yardstick")
            before = await yardstick(client, 1, sizes.singles)
            progress(f"{sizes.singles} pairs of workflows with nothing in them")
            empty = await empty_pairs(client, sizes.singles)
            progress(f"{sizes.singles} workloads of one replica")
            pids = {**plane.pids, "client": os.getpid()}
            before_them = spent(pids)
            one_by_one = await singles(durable, url, sizes.singles)
            cpu = each(before_them, spent(pids), sizes.singles)
            progress("until every workload knows it")
            for at in range(sizes.singles):
                await durable.wait(f"tenant-{at % TENANTS}", f"single-{at}")
            after = await yardstick(client, 2, sizes.singles)
            progress(f"{sizes.workloads} workloads of {sizes.replicas} replicas")
            in_groups = await groups(durable, url, sizes.workloads, sizes.replicas)
            broken = await violations_everywhere(databases)
    rate = (before + after) / 2
    to_empty, to_yardstick = one_by_one / empty, in_groups / rate
    p50, p99 = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
    table(
        "Placements on a simulated fleet",
        ["what", "measured", "bar"],
        [
            ["yardstick: workflows of one local activity per second", rate, ""],
            ["empty pairs: two workflows with the same steps, per second", empty, ""],
            ["workloads of one replica, apply to serving, per second", one_by_one, ""],
            ["ratio of those to the empty pairs", to_empty, SINGLES_BAR],
            [f"CPU of each, ms ({', '.join(cpu)})", _figures(cpu), ""],
            [f"replicas in workloads of {sizes.replicas}, per second", in_groups, ""],
            ["ratio of those to the yardstick", to_yardstick, REPLICAS_BAR],
            ["apply to bound, one at a time, p50 ms", p50, ""],
            ["apply to bound, one at a time, p99 ms", p99, ""],
            ["broken invariants", len(broken), 0],
        ],
    )
    verdict(
        "placement",
        {"one_local_activity_per_second": rate, "empty_pairs_per_second": empty},
        {
            "singles_per_second": one_by_one,
            "singles_ratio_to_empty_pairs": to_empty,
            "cpu_ms_of_a_single": cpu,
            "replicas_per_second": in_groups,
            "replicas_ratio_to_yardstick": to_yardstick,
            "apply_to_bound_ms_p50": p50,
            "apply_to_bound_ms_p99": p99,
            "broken_invariants": len(broken),
        },
        holds=to_empty >= SINGLES_BAR and to_yardstick >= REPLICAS_BAR and not broken,
    )


if __name__ == "__main__":
    asyncio.run(main())

"""What recurs, timed with no past, with 100,000 and with 1,000,000 past claims, in one run.

A past claim leaves a reservation, a binding, an observation, intents, a transition, a decision and
audit behind, and every tenth a workload. Three databases of one server take turns, so that a noisy
machine is not taken for the past. The bar: nothing costs more than 1.5 times as much with all of it
as with none.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg

from bench import _recurring
from bench._past import add_past
from bench._report import progress, table, verdict
from durable.authority.db.connection import Databases
from durable.authority.migrations import upgrade_all
from durable.authority.reads.invariants import violations
from durable.model.ids import WorkloadName
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres

SIZES = (0, 100_000, 1_000_000)
LIVES, WARM_UP = 25, 12
BAR = 1.5
# What the bar is for; the rest is shown beside it.
JUDGED = (
    "commit", f"delete of {_recurring.SLOTS} slots", "status feed", "wakeup", "quota controller",
    "agent's look",
)  # fmt: skip
YARDSTICK = "SELECT sum(sqrt(number)) FROM generate_series(1, 20000) AS number"

Seconds = dict[str, list[float]]


def prepare(server: EmbeddedPostgres) -> dict[int, str]:
    """By the size of its past, the address of a database that is otherwise like the others."""
    upgrade_all(server.url(), {}, _recurring.ACTOR)
    asyncio.run(_build(server.url()))
    urls: dict[int, str] = {}
    with psycopg.connect(server.url("template1"), autocommit=True) as connection:
        for size in SIZES:
            name = f"past_{size}"
            connection.execute(f"CREATE DATABASE {name} TEMPLATE postgres".encode())
            urls[size] = server.url(name)
    for size, url in urls.items():
        progress(f"adding {size:,} past claims")
        of = (_recurring.REGION, _recurring.TENANT, _recurring.LIVING)
        add_past(url, size, region=of[0], tenant=of[1], living=of[2])
    return urls


async def _build(url: str) -> None:
    async with Databases(url) as databases:
        await _recurring.build(databases)


async def measure(urls: dict[int, str]) -> tuple[dict[int, Seconds], list[float]]:
    """What each step took in each database, life by life in turn; and a query without a table."""
    yardstick: list[float] = []
    async with AsyncExitStack() as stack:
        lives = {
            size: _recurring.Lives(await stack.enter_async_context(Databases(url)))
            for size, url in urls.items()
        }
        progress(f"warming up, then {LIVES} lives in each")
        for number in range(WARM_UP + LIVES):
            if number == WARM_UP:
                for one in lives.values():
                    one.seconds.clear()
            for one in lives.values():
                await one.whole(WorkloadName(f"life-{number}"))
            with psycopg.connect(urls[SIZES[0]], autocommit=True) as connection:
                began = time.perf_counter()
                connection.execute(YARDSTICK)
                yardstick.append(time.perf_counter() - began)
    return {size: one.seconds for size, one in lives.items()}, yardstick


async def broken_invariants(url: str) -> list[str]:
    """Where there is no past: a past that was written straight into the tables has no records."""
    async with (
        Databases(url) as databases,
        databases.at_global("durable_reader").begin() as connection,
    ):
        return [f"{found.invariant}: {found.row}" for found in await violations(connection)]


async def run(urls: dict[int, str]) -> bool:
    seconds, yardstick = await measure(urls)
    empty, full = SIZES[0], SIZES[-1]
    milliseconds = {
        what: [statistics.median(seconds[size][what]) * 1000 for size in SIZES]
        for what in seconds[empty]
    }
    ratios = {what: medians[-1] / medians[0] for what, medians in milliseconds.items()}
    broken = await broken_invariants(urls[empty])
    holds = all(ratios[what] <= BAR for what in JUDGED) and not broken
    table(
        "Milliseconds by past claims (median)",
        ("step", *(f"{size:,}" for size in SIZES), f"{full:,} to {empty}"),
        [(what, *medians, ratios[what]) for what, medians in milliseconds.items()],
    )
    verdict(
        "growth",
        {"query_milliseconds": round(statistics.median(yardstick) * 1000, 2)},
        {
            "milliseconds": {
                what: [round(one, 2) for one in medians] for what, medians in milliseconds.items()
            },
            "full_to_empty": {what: round(ratio, 2) for what, ratio in ratios.items()},
            "judged": JUDGED,
            "bar": BAR,
            "violations": broken[:5],
        },
        holds=holds,
    )
    return holds


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        directory = Path(folder) / "postgres"
        directory.mkdir()
        server = EmbeddedPostgres(directory)
        server.start(free_port())
        try:
            return 0 if asyncio.run(run(prepare(server))) else 1
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())

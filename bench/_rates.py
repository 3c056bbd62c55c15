"""What is asked of Temporal and of PostgreSQL in a second, sampled while something goes on."""

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import psycopg

COMMITS = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()"
FRONTEND = 'service_name="frontend"'


@dataclass
class Rates:
    """Requests to Temporal's frontend and commits of PostgreSQL, second by second."""

    requests: list[float] = field(default_factory=list[float])
    commits: list[float] = field(default_factory=list[float])

    @property
    def peak_requests(self) -> float:
        return max(self.requests, default=0.0)

    @property
    def peak_commits(self) -> float:
        return max(self.commits, default=0.0)


async def sample(metrics_url: str, database_url: str, into: Rates) -> None:
    """Until it is cancelled; one connection, so that looking costs little."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:

        async def commits() -> float:
            row = await (await connection.execute(COMMITS.encode())).fetchone()
            assert row is not None
            return float(row[0])

        async def requests() -> float:
            return await asyncio.to_thread(_requests, metrics_url)

        await asyncio.gather(
            _differences(requests, into.requests), _differences(commits, into.commits)
        )


async def _differences(read: Callable[[], Awaitable[float]], into: list[float]) -> None:
    before, at = await read(), time.perf_counter()
    while True:
        await asyncio.sleep(1.0)
        after, now = await read(), time.perf_counter()
        into.append((after - before) / (now - at))
        before, at = after, now


def _requests(url: str) -> float:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - a server of our own
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("service_requests{") and FRONTEND in line
    )

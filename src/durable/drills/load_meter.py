"""The load that a drill puts on the authority, in transactions."""

import asyncio
import time

from durable.authority.reads.transactions import count_commits
from durable.client import Durable
from durable.validation.value import Value


class ControlPlaneLoad(Value):
    """Transactions that the authority committed in a second, before the loss and during it."""

    calm_per_second: float
    mean_per_second: float
    peak_per_second: float


class LoadMeter:
    """Counts what the database commits, once a second."""

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._rates: list[float] = []
        self._calm = 0.0

    async def measure_calm(self, seconds: float = 3.0) -> None:
        """What goes on while nothing is lost."""
        self._calm = await self._rate(seconds)

    async def run(self) -> None:
        while True:
            self._rates.append(await self._rate(1.0))

    @property
    def load(self) -> ControlPlaneLoad:
        rates = self._rates or [0.0]
        return ControlPlaneLoad(
            calm_per_second=round(self._calm, 1),
            mean_per_second=round(sum(rates) / len(rates), 1),
            peak_per_second=round(max(rates), 1),
        )

    async def _rate(self, seconds: float) -> float:
        before, began = await count_commits(self._durable.databases), time.monotonic()
        await asyncio.sleep(seconds)
        after = await count_commits(self._durable.databases)
        return (after - before) / (time.monotonic() - began)

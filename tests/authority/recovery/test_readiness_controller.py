"""The readiness controller rests in proportion to how long a simulation took."""

from typing import Any

import pytest

from durable.controllers.readiness import REST, ReadinessController
from durable.plan.readiness import Readiness
from tests.authority.world import World

TOOK = 20.0


async def test_after_a_long_simulation_it_rests_for_long(
    two_regions: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    simulated: list[float] = []

    async def simulate(*_: object) -> list[Any]:
        nonlocal now
        simulated.append(now)
        now += TOOK
        return []

    monkeypatch.setattr(Readiness, "outlooks", simulate)
    nobody: Any = None  # there is no workload to tell
    controller = ReadinessController(two_regions.databases, nobody, lambda: now)
    await controller.once()
    rested = TOOK * (1 + REST)
    now = rested - 1
    await controller.once()
    now = rested
    await controller.once()
    assert simulated == [0, rested]

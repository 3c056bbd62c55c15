"""Temporal and the worker are killed between an approval and its effect: it has one, once."""

from pathlib import Path

import pytest

from durable.authority.audit.events import read_events
from durable.authority.overrides.reads import obeyed_overrides
from durable.failpoints import Failpoint
from durable.model.states import OverrideState
from tests.chaos.conftest import World
from tests.workflows.keys import Person
from tests.workflows.plane import EAST, until
from tests.workflows.processes import WORKER, process
from tests.workflows.test_killed_workers import insist

pytestmark = [pytest.mark.server, pytest.mark.soak]


async def test_temporal_killed_between_approve_and_effect(world: World, tmp_path: Path) -> None:
    plane, fired = world.plane, tmp_path / "fired"
    ann, ada = [await Person.make(plane, tmp_path, f"person:{one}") for one in ("ann", "ada")]
    scope, effect = {"region": "east", "tenant": "risk"}, {"amount": {"cpu": 1}}
    armed = f"{Failpoint.AFTER_CHANGE_OVERRIDE}=kill:{fired}"
    with process(plane.settings, WORKER, armed) as worker:
        async with ann.connected(plane) as hers:
            await insist(
                lambda: hers.overrides.create(
                    "emergency-quota", scope, effect=effect, reason="INC-1", id="o-1",
                    request_id="p",
                )
            )  # fmt: skip
        async with ada.connected(plane) as hers:
            approving = plane.background(
                insist(lambda: hers.overrides.approve("o-1", reason="yes", request_id="a"))
            )

            async def has_died() -> bool:
                return fired.exists() and worker.exit_code is not None

            await until(has_died, "the approval is committed, and the worker killed")
            world.temporal.kill()
            assert (await plane.durable.overrides.read("o-1")).state is OverrideState.ACTIVE
            assert await obeyed_overrides(plane.databases, EAST) == []
            await world.temporal.start()
            worker.start()
            await approving

            async def is_obeyed() -> bool:
                return await obeyed_overrides(plane.databases, EAST) == ["o-1"]

            await until(is_obeyed, "the region obeys it")
    events, _ = await read_events(plane.databases, last=500)
    told = [(one.chain, one.action) for one in events if one.object == "override/o-1"]
    assert sorted(told) == [
        ("east", "put override in force"),
        ("global", "activate override"),
        ("global", "propose override"),
    ]
    await plane.no_invariant_is_broken()

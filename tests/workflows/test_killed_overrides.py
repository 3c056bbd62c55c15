"""A worker is killed, or its answer lost, between each step of an override and its effect.

And inside the transaction of each step, between what it writes and its audit: both are there, or
neither.
"""

import asyncio
from pathlib import Path

import psycopg
import pytest

from durable.authority.overrides.reads import obeyed_overrides
from durable.failpoints import Failpoint
from durable.model.ids import OverrideId
from durable.model.states import OverrideState
from tests.workflows.conftest import MakePlane
from tests.workflows.override_life import Pair, read_story
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until
from tests.workflows.processes import AGENT, WORKER, Process, process
from tests.workflows.test_killed_workers import ACTIONS, insist, revive

POINTS = (
    Failpoint.AFTER_PROPOSE_OVERRIDE,
    Failpoint.AFTER_CHANGE_OVERRIDE,
    Failpoint.AFTER_COPY_OVERRIDE,
)
# In the order in which they are met.
INSIDE = (
    Failpoint.BEFORE_AUDIT_PROPOSAL,
    Failpoint.BEFORE_AUDIT_CHANGE,
    Failpoint.BEFORE_AUDIT_COPY,
    Failpoint.BEFORE_AUDIT_COPY_CHANGE,
)
OVERRIDE = OverrideId("o-1")
PROPOSED, ACTIVATED = ["propose override"], ["propose override", "activate override"]
IN_FORCE = ["put override in force"]


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_override_takes_effect_once_and_ends_whatever_dies_meanwhile(
    make_plane: MakePlane, tmp_path: Path, action: str
) -> None:
    # Most of it is waiting for a dead worker's tasks to time out, so both happen at once.
    async with asyncio.TaskGroup() as group:
        group.create_task(dies_between_steps(await make_plane(), tmp_path, action))
        group.create_task(dies_inside_steps(await make_plane(), tmp_path, action))


async def dies_between_steps(plane: Plane, fired: Path, action: str) -> None:
    await plane.load(small_fleet("east", nodes=2))
    armed = arm(POINTS, fired, action)
    overrides = plane.durable.overrides
    scope = {"tenant": "risk", "workload": "api"}
    with process(plane.settings, AGENT), process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive(worker, armed))
        await insist(lambda: plane.durable.apply(manifest(replicas=1), request_id="a"))
        await plane.durable.wait("risk", "api", within_seconds=180)
        await insist(
            lambda: overrides.create("hold", scope, reason="INC-1", id="o-1", request_id="p")
        )
        assert await obeyed_overrides(plane.databases, EAST) == ["o-1"]
        await insist(lambda: overrides.revoke("o-1", reason="done", request_id="r"))
        await has_ended_once(plane)
        reviving.cancel()
    assert all((fired / point).exists() for point in POINTS), "each point was met"
    await plane.no_invariant_is_broken()


async def dies_inside_steps(plane: Plane, fired: Path, action: str) -> None:
    """With a kind that a second person approves, and that gives something in the region."""
    await plane.load()
    pair, armed = await Pair.make(plane, fired), arm(INSIDE, fired, action)
    scope, effect = {"region": "east", "tenant": "risk"}, {"amount": {"cpu": 1}}
    at_deaths: list[Books] = []
    with process(plane.settings, WORKER, armed) as worker:
        reviving = plane.background(revive_after_a_look(plane, worker, armed, at_deaths))
        async with pair.ann.connected(plane) as ann, pair.ada.connected(plane) as ada:
            await insist(
                lambda: ann.overrides.create(
                    "emergency-quota", scope, effect=effect, reason="INC-1", id="o-1",
                    request_id="p",
                )
            )  # fmt: skip
            await insist(lambda: ada.overrides.approve("o-1", reason="yes", request_id="a"))

            async def is_obeyed() -> bool:
                return bool(await obeyed_overrides(plane.databases, EAST))

            await until(is_obeyed, "the region obeys it")
            assert await read_books(plane) == ("active", ACTIVATED, ("obeyed", "given"), IN_FORCE)
            await insist(lambda: ann.overrides.revoke("o-1", reason="done", request_id="r"))
        await has_ended_once(plane)
        reviving.cancel()
    assert all((fired / point).exists() for point in INSIDE), "each point was met"
    ended = [*ACTIVATED, "end override"]
    assert await read_books(plane) == (
        "revoked", ended, ("ended", "over"), [*IN_FORCE, "end override"]
    )  # fmt: skip
    if action == "kill":
        assert at_deaths == [
            (None, [], None, []),
            ("proposed", PROPOSED, None, []),
            ("active", ACTIVATED, None, []),
            ("revoked", ended, ("obeyed", "given"), IN_FORCE),
        ], "of the step inside which it died, neither its effect nor its audit is there"
    await plane.no_invariant_is_broken()


def arm(points: tuple[Failpoint, ...], fired: Path, action: str) -> str:
    return ",".join(f"{point}={action}:{fired / point}" for point in points)


async def revive_after_a_look(
    plane: Plane, worker: Process, armed: str, seen: "list[Books]"
) -> None:
    """Whatever kills the worker, what is committed is written down before another is started."""

    async def has_died() -> bool:
        return worker.exit_code is not None

    while True:
        await until(has_died, "the worker dies", seconds=3600)
        seen.append(await read_books(plane))
        worker.start(armed)


# Its state and its audit; its copy and what that gives in the region, and the audit there.
Books = tuple[str | None, list[str], tuple[str, str] | None, list[str]]

_STATE = "SELECT state FROM global.overrides WHERE override = 'o-1'"
_COPY = """
    SELECT CASE WHEN c.ended_at IS NULL THEN 'obeyed' ELSE 'ended' END,
           CASE WHEN d.override IS NULL THEN 'nothing' WHEN d.has_ended THEN 'over' ELSE 'given' END
      FROM regional.overrides AS c FULL JOIN regional.emergency_draws AS d USING (region, override)
     WHERE override = 'o-1'
"""


async def read_books(plane: Plane) -> Books:
    url = plane.settings.require_database_url()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        state = await (await connection.execute(_STATE)).fetchone()
        copy = await (await connection.execute(_COPY)).fetchone()
    told = await audited(plane)
    return (None if state is None else state[0], told.get("global", []), copy, told.get("east", []))


async def audited(plane: Plane) -> dict[str, list[str]]:
    """By chain, what was done to it."""
    story = await read_story(plane, OVERRIDE)
    return {chain: [action for _, action in told] for chain, told in story.items()}


async def has_ended_once(plane: Plane) -> None:
    async def has_ended() -> bool:
        return not await obeyed_overrides(plane.databases, EAST)

    await until(has_ended, "the region knows that it has ended")
    assert (await plane.durable.overrides.read(OVERRIDE)).state is OverrideState.REVOKED
    assert await audited(plane) == {
        "global": [*ACTIVATED, "end override"], "east": [*IN_FORCE, "end override"],
    }  # fmt: skip

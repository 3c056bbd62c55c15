"""A deletion that takes long says which node it waits for, and until when at most."""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

from durable.authority.db.connection import Databases
from durable.authority.reads.stops import Stop
from durable.cli.render.delays import describe_stops
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import stops_of
from durable.model.ids import NodeId, RegionId
from durable.settings import Settings
from durable.workflows.timeouts import STOP_TIMEOUT, UNKNOWN_TIMEOUT
from tests.agent.waiting import eventually

from ..conftest import Write
from ..terminal import Terminal

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WEB = """
tenant: shop
name: lingering
spec: {replicas: 1, resources: {cpu: 1, memory: 1Gi}}
"""


def stop(lease_seconds: float, *, slot: int = 0, after_seconds: float = 5) -> Stop:
    """Asked to stop at noon, with a lease of so long from then, and read a little later."""
    return Stop(
        region=RegionId("north"),
        slot=slot,
        node=NodeId("north-1"),
        requested_at=NOON,
        lease_expires_at=NOON + timedelta(seconds=lease_seconds),
        read_at=NOON + timedelta(seconds=after_seconds),
    )


def clock(after: timedelta) -> str:
    return f"{NOON + after:%H:%M:%S}Z"


def test_a_node_that_is_alive_is_waited_for_until_its_lease_would_lapse() -> None:
    said = describe_stops([stop(10), stop(9, slot=1)])
    assert (
        "Waiting for the agent of north-1 to report the end of slot 0 (and of 1 more slot)." in said
    )
    assert f"expires at {clock(timedelta(seconds=10))}" in said
    assert f"given up by {clock(STOP_TIMEOUT)}." in said


def test_a_silent_node_is_given_up_when_the_stop_is_overdue() -> None:
    said = describe_stops([stop(3)])
    assert f"its lease expired at {clock(timedelta(seconds=3))}" in said
    assert f"given up by {clock(STOP_TIMEOUT)}" in said


def test_a_lease_that_ends_after_the_stop_was_overdue_is_waited_for() -> None:
    late = STOP_TIMEOUT + timedelta(seconds=10)
    said = describe_stops([stop(late.total_seconds(), after_seconds=65)])
    assert f"given up by {clock(late + UNKNOWN_TIMEOUT)}" in said


def test_a_moment_that_has_passed_is_not_promised() -> None:
    late = STOP_TIMEOUT.total_seconds() + 1
    said = describe_stops([stop(3, after_seconds=late)])
    assert "given up at a worker's next check, or sooner if an agent comes back" in said
    assert clock(STOP_TIMEOUT) not in said


def test_nothing_is_said_of_what_does_not_stop() -> None:
    assert describe_stops([]) == ""


def until_asked_to_stop(plane: Path) -> None:
    async def wait() -> None:
        async with Databases(Settings(state_dir=plane).require_database_url()) as databases:

            async def is_asked() -> bool:
                return bool(await stops_of(databases, WaitTarget("shop", "lingering", "deleted")))

            await eventually("its slot is asked to stop", is_asked)

    asyncio.run(wait())


def test_a_deletion_says_whose_agent_it_waits_for(
    plane: Path, at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(WEB))
    parts = at_plane.json("status")["parts"]
    agent = next(part["pid"] for part in parts if part["name"] == "agent")
    os.kill(agent, signal.SIGSTOP)
    try:
        assert at_plane.run("delete", "shop/lingering", "--no-wait") == 0, at_plane.stderr
        until_asked_to_stop(plane)
        said = at_plane.refused("delete", "shop/lingering", "--timeout", "2")
    finally:
        os.kill(agent, signal.SIGCONT)
    # On a slow machine the lease of the agent that stands still has lapsed meanwhile.
    assert "report the end of slot 0" in said or "the end of slot 0 on " in said
    assert "given up " in said
    assert at_plane.run("delete", "shop/lingering") == 0, at_plane.stderr

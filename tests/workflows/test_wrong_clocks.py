"""A host whose clock is an hour off decides nothing by it: the database's clock says when.

The worker and the agent are processes of their own, so that all of each is deceived: durable, its
libraries, and the core of Temporal's SDK.
"""

import platform
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from durable.authority.db.clock import read_time
from durable.authority.reads.claims import read_claims
from durable.authority.recovery.region_facts import read_facts
from durable.controllers.region_lease import LEASE_SECONDS
from durable.model.overrides.override import Override
from durable.model.recovery.detection import LossKind
from durable.model.states import OverrideState
from tests.workflows.keys import Person
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until
from tests.workflows.processes import AGENT, WORKER, process_with_clock
from tests.workflows.test_override import API, state_of

HOUR = timedelta(hours=1)
# Far less than an hour, and more than the busiest machine is late.
LATE = timedelta(minutes=10)
LASTS = timedelta(seconds=5)

DECEIVES = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="the clock is exchanged by Linux's linker, with a library for x86-64",
)


@DECEIVES
@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_an_hour_off_ends_overrides_by_the_databases(
    plane: Plane, tmp_path: Path, ahead: timedelta
) -> None:
    await plane.load(small_fleet("east", nodes=2))
    with (
        process_with_clock(plane.settings, AGENT, -ahead),
        process_with_clock(plane.settings, WORKER, ahead) as log,
    ):
        await lives_by_another_clock(plane, log, ahead)
        await plane.durable.apply(manifest(replicas=2))
        await plane.durable.wait("risk", "api")

        held = await hold(plane)
        await plane.durable.scale("risk", "api", 3)
        await plane.durable.wait("risk", "api")
        claims = await read_claims(plane.databases, EAST)
        [third] = [one.reserved_at for one in claims if one.slot == 2]
        assert held.expires_at <= third < held.expires_at + LATE, "the commit obeyed it so long"
        ended = await has_expired(plane, held)
        assert ended.ended_at is not None
        assert held.expires_at <= ended.ended_at < held.expires_at + LATE

        await a_fresh_signature_is_fresh(plane, tmp_path)
        await looks_healthy(plane)
    await plane.no_invariant_is_broken()


async def lives_by_another_clock(plane: Plane, log: Path, ahead: timedelta) -> None:
    """By the first line that it wrote; otherwise the test would prove nothing."""

    async def has_begun() -> bool:
        return bool(first_line(log))

    await until(has_begun, "the worker serves")
    written = datetime.fromisoformat(first_line(log).split(maxsplit=1)[0])
    assert abs(written - await read_time(plane.databases) - ahead) < LATE


def first_line(log: Path) -> str:
    line, is_whole, _ = log.read_text().partition("\n")
    return line if is_whole else ""


async def hold(plane: Plane) -> Override:
    before = await read_time(plane.databases)
    held, _ = await plane.durable.overrides.create("hold", API, reason="INC-1", ttl=LASTS)
    assert held.activated_at is not None
    assert before <= held.activated_at <= await read_time(plane.databases)
    assert held.expires_at == held.activated_at + LASTS
    return held


async def has_expired(plane: Plane, override: Override) -> Override:
    async def is_so() -> bool:
        return await state_of(plane, override.id) is OverrideState.EXPIRED

    await until(is_so, "it ends by itself")
    return await plane.durable.overrides.read(override.id)


async def a_fresh_signature_is_fresh(plane: Plane, keys: Path) -> None:
    """One that was made an hour ago would be refused."""
    ann = await Person.make(plane, keys, "person:ann")
    async with ann.connected(plane) as hers:
        proposed, _ = await hers.overrides.create(
            "break-glass", API, effect={"gates": ["cordon"]}, reason="INC-2"
        )
    assert proposed.state is OverrideState.PROPOSED


async def looks_healthy(plane: Plane) -> None:
    """The region is on its lease, and its worker is seen to poll."""

    async def is_so() -> bool:
        seen = (await read_facts(plane.databases))[EAST].seen
        return seen is not None and seen.kind is LossKind.HEALTHY

    await until(is_so, "the region is taken for healthy")
    fact = (await read_facts(plane.databases))[EAST]
    assert fact.lease_expires_at is not None
    left = fact.lease_expires_at - fact.read_at
    assert timedelta(0) < left <= timedelta(seconds=LEASE_SECONDS)

"""What a region shows of the revision that decides there, by rows whose answer is known."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable.authority.policies.health import read_health, read_pending_percent
from durable.authority.queue.decisions import record_decisions
from durable.authority.queue.requests import write_requests
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.slots.shares import Publication, PublishedShare, publish
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.records import Decision
from durable.model.placement.request import SchedulingRequest
from durable.model.policy.rollout import PolicyHealth
from durable.model.resources import Resources
from durable.model.states import RequestState
from durable.model.work.share import DesiredShare
from durable.model.work.workload import WorkloadSpec
from tests.authority.policies.world import in_force, published
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, T0, World, seconds

SMALL = Resources.of(100, 64)
SPEC = WorkloadSpec(replicas=1, resources=SMALL)
SLOTS = 40


@pytest.fixture
async def world(ready_world: World) -> World:
    """Revision 2 is in force in us-east since T0."""
    world = await published(ready_world)
    await in_force(world)
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.assign(range(8, SLOTS), EAST, transfer="more")
    return world


async def waits_since(world: World, number: int, moment: float, **fields: Any) -> None:
    """A request of its own, for slot and generation of this number."""
    values: dict[str, Any] = {
        "state": RequestState.PENDING, "pending": Pending(code=PendingCode.QUEUED), "waiting": 1,
    }  # fmt: skip
    request = SchedulingRequest(
        region=EAST,
        tenant=RISK,
        workload=API,
        generation=number + 1,
        slots=(number,),
        priority=100,
        enqueued_at=seconds(moment),
        deadline=T0 + timedelta(days=1),
        spec=SPEC,
        **{**values, **fields},
    )
    await write_requests(world.databases, EAST, [request])


async def decide(
    world: World,
    number: int,
    moment: float,
    *,
    revision: int = 2,
    node: str = "n1",
    granted: bool = True,
) -> None:
    """A decision of this moment, and what the commit answers to it then."""
    made = Decision(
        region=EAST,
        tenant=RISK,
        workload=API,
        generation=number + 1,
        attempt=1,
        policy_revision=revision,
        cache_version=1,
        evidence={},
        decided_at=seconds(moment),
    )
    await record_decisions(world.databases, EAST, [made])
    world.now = seconds(moment)
    intent = world.reserve(
        number, node, generation=number + 1, policy_revision=revision, resources=SMALL
    )
    await (world.granted(intent) if granted else world.refused(intent))


async def given(world: World, **moments: float) -> None:
    """The share of generation 1 got each of these slots at its moment."""
    slots = tuple(int(name.removeprefix("slot")) for name in moments)
    share = DesiredShare(slots=slots, spec=SPEC, revision=1)
    published = PublishedShare(RISK, API, 1, share)
    publication = Publication(RISK, API, 1, None, (published,))
    assert await publish(world.databases, EAST, [publication]) == [True]
    at = [seconds(moment) for moment in moments.values()]
    with psycopg.connect(world.databases.url_of(EAST)) as owner:
        owner.execute("UPDATE regional.shares SET given_at = %s", [at])


async def grant(world: World, slot: int, moment: float) -> None:
    """A slot of generation 1 is decided and reserved at this moment."""
    made = Decision(
        region=EAST, tenant=RISK, workload=API, generation=1, attempt=slot + 1, policy_revision=2,
        cache_version=1, evidence={}, decided_at=seconds(moment),
    )  # fmt: skip
    await record_decisions(world.databases, EAST, [made])
    world.now = seconds(moment)
    await world.granted(world.reserve(slot, attempt=slot + 1, policy_revision=2, resources=SMALL))


async def place(world: World, number: int, since: float, waited: float, **fields: Any) -> None:
    await waits_since(world, number, since)
    await decide(world, number, since + waited, **fields)
    await waits_since(world, number, since, state=RequestState.PLACED, pending=None, waiting=0)


async def health(world: World, since: float = 0.0) -> PolicyHealth:
    return await read_health(world.databases, EAST, 2, seconds(since))


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([7.5], 7.5),
        ([1.0, 9.0], 9.0),
        # Of twenty, one may wait for as long as it likes; of nineteen, none.
        ([float(wait) for wait in range(1, 21)], 19.0),
        ([*[2.0] * 19, 500.0], 2.0),
        ([*[2.0] * 18, 500.0], 500.0),
        ([*[2.0] * 18, 500.0, 550.0], 500.0),
    ],
)
async def test_95_of_100_replicas_wait_no_longer(
    world: World, waits: Sequence[float], expected: float
) -> None:
    for number, waited in enumerate(waits):
        # In an order that is not theirs.
        await place(world, number, since=float((number * 7) % 20), waited=waited)
    found = await health(world)
    assert found.place_seconds == expected
    assert (found.decisions, found.reserves, found.refused) == (len(waits), len(waits), 0)


async def test_only_what_the_revision_placed_counts_and_only_since_it_was_watched(
    world: World,
) -> None:
    await place(world, 0, since=10, waited=3)
    # Decided before it was watched here, and by another revision.
    await place(world, 1, since=0, waited=9)
    with_first = await health(world, since=10)
    assert (with_first.decisions, with_first.place_seconds) == (1, 3.0)
    assert (await read_health(world.databases, EAST, 1, T0)).place_seconds is None
    # Waited for the revision before: it counts from the moment on at which this one came.
    await place(world, 2, since=2, waited=20)
    assert (await health(world, since=10)).place_seconds == 12.0


async def test_what_was_refused_has_waited_for_nothing_yet(world: World) -> None:
    await place(world, 0, since=0, waited=4)
    for number in (1, 2, 3):
        await waits_since(world, number, 0)
        await decide(world, number, 100, node="nowhere", granted=False)
    found = await health(world)
    assert (found.decisions, found.reserves, found.refused) == (4, 4, 3)
    assert found.place_seconds == 4.0


async def test_what_began_to_wait_again_is_not_said_to_have_waited_all_the_time(
    world: World,
) -> None:
    """Its row has only the later moment, so how long it waited before is not known."""
    await place(world, 0, since=200, waited=1)
    await place(world, 1, since=200, waited=2)
    assert (await health(world)).place_seconds == 2.0
    await waits_since(world, 1, 250)
    found = await health(world)
    assert (found.reserves, found.place_seconds) == (2, 1.0)


async def test_a_slot_waits_since_its_region_was_given_it(world: World) -> None:
    """A slow rollout is no long wait: its request began with the first slot."""
    await given(world, slot0=0, slot1=200, slot2=400)
    await waits_since(world, 0, 0)
    for slot, granted in ((0, 3.0), (1, 204.0), (2, 402.0)):
        await grant(world, slot, granted)
    assert (await health(world)).place_seconds == 4.0


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_a_placement_whose_clock_is_elsewhere_waited_no_other_time(
    world: World, ahead: float
) -> None:
    await given(world, slot0=300)
    await waits_since(world, 0, ahead)
    await grant(world, 0, 304.0)
    assert (await health(world)).place_seconds == 4.0


async def test_what_was_placed_at_once_again_begins_to_wait_then(world: World) -> None:
    """A replica that failed and was replaced in a second has waited a second."""
    await place(world, 0, since=0, waited=1)
    placed = {"state": RequestState.PLACED, "pending": None, "waiting": 0, "attempts": 2}
    await waits_since(world, 0, 500, **placed)
    await grant(world, 1, 501.0)
    assert (await health(world)).place_seconds == 1.0


async def test_what_waits_is_shown_as_a_part_of_all_that_is_wanted(world: World) -> None:
    for number in range(3):
        await place(world, number, since=0, waited=1)
    assert await read_pending_percent(world.databases, EAST) == 0.0
    await waits_since(world, 3, 0)
    assert await read_pending_percent(world.databases, EAST) == 25.0
    await waits_since(world, 4, 0, waiting=1, state=RequestState.TIMED_OUT)
    assert await read_pending_percent(world.databases, EAST) == 40.0
    await waits_since(world, 4, 0, waiting=1, state=RequestState.WITHDRAWN, pending=None)
    assert (await health(world)).pending_percent == 25.0

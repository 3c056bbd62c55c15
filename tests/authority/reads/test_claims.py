"""Objects read back are what was written, with what was seen of them since."""

from dataclasses import replace

import pytest

from durable.activities.steps import PlacementKey
from durable.authority.fleet.node_reads import read_node
from durable.authority.fleet.observations import Observation, observe
from durable.authority.fleet.regions import read_region
from durable.authority.reads import placements
from durable.authority.reads.claims import read_claims
from durable.authority.reads.placements import PlacementRead, PlacementReader
from durable.model.ids import ActorId, NodeId
from durable.model.placement.intents import ReleaseCause, Start
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import BindingState, ObservedState, ReservationState
from durable.model.work.share import DesiredShare
from durable.model.work.workload import WorkloadSpec
from durable.workflows.placement.state import PlacementState
from tests.authority.world import API, EAST, RISK, World, node, seconds


@pytest.fixture
def world(ready_world: World) -> World:
    return ready_world


async def test_a_claim_is_read_back_as_it_was_made(world: World) -> None:
    await world.with_nodes(node(gpus=2))
    wanted = Resources.of(1000, 1024, 1)
    granted = await world.granted(world.reserve(resources=wanted))
    (held,) = await read_claims(world.databases, EAST)
    assert (held.token, held.node, held.devices) == (granted.token, "n1", granted.devices)
    assert held.resources == wanted
    assert held.reservation is ReservationState.HELD
    assert held.state is None
    assert held.is_live

    await world.granted(world.release(granted.token))
    assert await read_claims(world.databases, EAST) == []
    (ended,) = await read_claims(world.databases, EAST, and_ended=True)
    assert ended.reservation is ReservationState.RELEASED
    assert not ended.is_live


async def test_a_binding_shows_what_its_agent_last_saw(world: World) -> None:
    token = await world.running()
    assert await shown(world) == BindingState.STARTING
    for sequence, seen in enumerate(ObservedState, start=1):
        report = Observation(
            token=token,
            node=NodeId("n1"),
            session=world.sessions["n1"],
            sequence=sequence,
            state=seen,
            evidence="probe",
        )
        await observe(world.databases, EAST, [report], observer=ActorId("agent:n1"))
        assert await shown(world) == seen

    await world.granted(world.release(token, cause=ReleaseCause.STOPPED))
    assert await read_claims(world.databases, EAST, now=world.now) == []
    (released,) = await read_claims(world.databases, EAST, and_ended=True, now=world.now)
    assert released.state is BindingState.RELEASED


async def shown(world: World) -> BindingState | None:
    (binding,) = await read_claims(world.databases, EAST, now=world.now)
    return binding.state


async def test_a_binding_is_unknown_once_its_node_is_silent(world: World) -> None:
    await world.running()
    world.now = seconds(600)
    (binding,) = await read_claims(world.databases, EAST, now=world.now)
    assert binding.state is BindingState.UNKNOWN
    assert binding.since == world.now, "since its lease ran out"


async def test_a_node_is_read_with_its_devices_and_their_holders(world: World) -> None:
    await world.with_nodes(node(gpus=2))
    granted = await world.granted(world.reserve(resources=Resources.of(1000, 1024, 1)))
    found = await read_node(world.databases, EAST, NodeId("n1"))
    assert {device.device: device.holder for device in found.devices} == {
        "gpu-0": granted.token,
        "gpu-1": None,
    }
    assert found.used == Resources.of(1000, 1024, 1)
    assert found.takes_work(await read_region(world.databases, EAST), world.now)


async def test_an_unknown_node_is_a_refusal(world: World) -> None:
    with pytest.raises(RefusedError) as caught:
        await read_node(world.databases, EAST, NodeId("ghost"))
    assert caught.value.refusal.code is RefusalCode.UNKNOWN_NODE


async def test_a_run_that_begins_goes_on_after_the_ordinals_that_refusals_used_up(
    world: World,
) -> None:
    """As after continue-as-new, a reset or a termination: none of it remembers an ordinal."""
    token = (await world.granted(world.reserve())).token
    for ordinal in (1, 2, 3):
        start = world.start(token, ordinal=ordinal)
        assert await world.refused(start) is RefusalCode.WRONG_STATE
    await world.granted(world.bind(token))

    async with PlacementReader(world.databases, EAST) as reader:
        read = PlacementRead(RISK, API, 1, known_revision=0, with_past=True)
        facts = await reader.facts(read)
    key = PlacementKey(region=EAST, tenant=RISK, workload=API, generation=1)
    state = PlacementState.begin(key, None, world.now)
    spec = WorkloadSpec.model_validate({"replicas": 1, "resources": {"cpu": 1}})
    share = DesiredShare(slots=(0,), spec=spec, revision=1)
    state.learn(facts.model_copy(update={"share": share}), world.now)
    claim = state.slots.by_number[0].claim
    await world.granted(Start(**claim.intent(key, world.epoch, "start the slot")))


async def test_what_is_recalled_of_many_slots_comes_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placements, "SLOTS_PER_PAGE", 2)
    for slot in (0, 1, 4):
        await world.granted(world.reserve(slot))
    read = PlacementRead(RISK, API, 1, known_revision=0, with_past=True)
    pages: list[list[int]] = []
    async with PlacementReader(world.databases, EAST) as reader:
        first: int | None = 0
        while first is not None:
            facts = await reader.facts(replace(read, first_slot=first))
            pages.append([claim.slot for claim in facts.claims])
            first = facts.next_slot
    assert pages == [[0, 1], [], [4]]

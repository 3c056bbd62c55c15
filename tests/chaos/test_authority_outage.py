"""The authority hangs while nodes run: what is committed goes on, and nobody is taken for lost."""

import time

import pytest

from durable.authority.db.breaker import PROBE_SECONDS
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.model.ids import ActorId
from durable.model.states import RegionState
from durable.state_dir.record import StackError
from tests.chaos.conftest import World
from tests.workflows.plane import EAST, WEST, manifest, small_fleet, until

pytestmark = [pytest.mark.server, pytest.mark.soak]

# A server that hangs lets everybody wait who asks whether it lives: long enough in all for every
# lease of a node to lapse.
TIMES_ASKED = 7


async def test_the_authority_hangs_while_nodes_run(world: World) -> None:
    plane = world.plane
    await apply_fleet(
        plane.databases,
        small_fleet(EAST, WEST, nodes=4, cpu=8),
        actor=ActorId("test"),
        request="two regions",
        report=lambda _: None,
    )
    await (await plane.host(EAST, WEST)).work(EAST, WEST)
    await plane.durable.place(manifest("kept", replicas=4), request_id="kept")
    before = await plane.bindings(EAST, WEST)
    breaker = plane.databases.at_global("durable_reader").breaker

    async def was_asked() -> bool:
        return breaker.outage is not None and breaker.outage.asked >= TIMES_ASKED

    began = time.monotonic()
    world.postgres.freeze()
    try:
        with pytest.raises(StackError, match="answer"):
            await plane.durable.apply(manifest("new", replicas=1), request_id="new")
        await until(was_asked, "every lease has lapsed")
    finally:
        world.postgres.thaw()

    # The same request again, as its sender is told to do.
    await plane.durable.place(manifest("new", replicas=1), request_id="new", within_seconds=180)
    assert (await plane.durable.wait("risk", "kept", within_seconds=180)).serving == 4
    outage = breaker.last_outage
    assert outage is not None
    assert outage.refused > 0
    assert outage.asked <= (time.monotonic() - began) / PROBE_SECONDS + 1, "one asks for all"
    after = await plane.bindings(EAST, WEST)
    kept = {key: one.token for key, one in before.items()}
    assert {key: after[key].token for key in kept} == kept, "what ran went on where it was"

    async def are_open() -> bool:
        facts = await read_facts(plane.databases)
        return {fact.state for fact in facts.values()} == {RegionState.OPEN}

    await until(are_open, "whatever was suspected before every node had renewed is open again")
    assert await list_recoveries(plane.databases, ended=True) == []
    await plane.no_invariant_is_broken()

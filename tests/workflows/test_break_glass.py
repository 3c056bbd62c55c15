"""Two people with key files open a gate together, and neither does it alone."""

import json
from pathlib import Path

import pytest

from durable.authority.audit.events import read_events
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.overrides.reads import obeyed_overrides
from durable.client import Durable
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from tests.workflows.keys import Person
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until

CORDON = {"gates": ["cordon"]}
API = {"tenant": "risk", "workload": "api"}


async def waits_for_a_cordoned_node(plane: Plane) -> None:
    await plane.load(small_fleet("east", nodes=1))
    await (await plane.host()).work()
    zone = NodesTarget.model_validate({"region": "east", "kind": "zone", "name": "east-a"})
    await cordon_nodes(plane.databases, zone, reason="upkeep", actor=ActorId("test"))
    await plane.durable.apply(manifest(replicas=1))

    async def waits() -> bool:
        return (await plane.placement()).pending is not None

    await until(waits, "nothing takes it")


async def test_break_glass_takes_two_people_and_both_sign(plane: Plane, tmp_path: Path) -> None:
    await waits_for_a_cordoned_node(plane)
    ann, ada = [await Person.make(plane, tmp_path, f"person:{one}") for one in ("ann", "ada")]
    async with ann.connected(plane) as hers:
        made, _ = await hers.overrides.create(
            "break-glass", API, effect=CORDON, reason="INC-42", id="glass"
        )
        assert made.state is OverrideState.PROPOSED
        with pytest.raises(RefusedError) as alone:
            await hers.overrides.approve("glass", reason="hurry")
        assert alone.value.refusal.code is RefusalCode.SELF_APPROVAL
    # Nobody is asked to sign what would be refused all the same.
    unsigned_ann = Durable(plane.durable.client, plane.databases, ann.actor)
    with pytest.raises(RefusedError) as alone:
        await unsigned_ann.overrides.approve("glass", reason="hurry")
    assert alone.value.refusal.code is RefusalCode.SELF_APPROVAL
    # Ada's name without her key is a claim.
    claimed = Durable(plane.durable.client, plane.databases, ada.actor)
    with pytest.raises(RefusedError) as unsigned:
        await claimed.overrides.approve("glass", reason="me, really")
    assert unsigned.value.refusal.code is RefusalCode.SIGNATURE_MISSING
    assert await plane.durable.overrides.read("glass") == made
    assert await obeyed_overrides(plane.databases, EAST) == []
    assert await plane.bindings() == {}

    why = ("--reason", "INC-42", "--json")
    code, output = await ada.run(plane, "override", "approve", "glass", *why)
    assert code == 0, output
    assert json.loads(output)["answer"].startswith("Approved: break-glass on")
    assert (await plane.durable.wait("risk", "api")).serving == 1

    # It is not extended by whoever proposed it, and ended by either.
    longer = ("override", "extend", "glass", "--by", "5m", *why)
    code, output = await ann.run(plane, *longer)
    assert (code, json.loads(output)["error"]["code"]) == (1, "self_approval"), output
    code, output = await ada.run(plane, *longer)
    assert code == 0, output
    code, output = await ann.run(plane, "override", "revoke", "glass", *why)
    assert code == 0, output
    assert await obeyed_overrides(plane.databases, EAST) == []
    assert len(await plane.bindings()) == 1, "what was placed under it goes on"

    events, _ = await read_events(plane.databases, last=500)
    of_glass = [one for one in events if (one.object, one.chain) == ("override/glass", "global")]
    told = [(str(one.actor), one.action) for one in of_glass]
    assert [one for one in told if not one[1].startswith("reject message ")] == [
        ("person:ann", "propose override"), ("person:ada", "activate override"),
        ("person:ada", "extend override"), ("person:ann", "end override"),
    ]  # fmt: skip
    await plane.no_invariant_is_broken()

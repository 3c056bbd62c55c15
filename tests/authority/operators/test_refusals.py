"""A command that somebody may not give changes nothing, and is in the audit."""

import pytest

from durable.authority.audit.events import read_events
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.policies.publishing import publish_next
from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import ActorId, Identifier
from durable.model.refusal import RefusedError
from durable.scheduling.policies import first_policy
from tests.authority.policies.world import publication
from tests.authority.world import EAST, World

EVE = ActorId("eve")


async def test_every_command_that_is_refused_is_in_the_audit(ready_world: World) -> None:
    databases = ready_world.databases
    target = NodesTarget(region=EAST, kind=NodesKind.NODE, name=Identifier("n1"))
    spec = first_policy().model_dump(mode="json")
    attempts = {
        "cordon on region us-east": cordon_nodes(databases, target, actor=EVE, reason="x"),
        "cordon on region us-east again": uncordon_nodes(databases, target, actor=EVE, reason="x"),
        "policy on everything": publish_next(databases, publication(spec, EVE)),
    }
    for attempt in attempts.values():
        with pytest.raises(RefusedError, match="eve is not an operator"):
            await attempt
    events, _ = await read_events(databases, chain="global", actor=str(EVE))
    assert [(event.action, event.object) for event in events] == [
        ("refuse command", "operator/eve")
    ] * len(attempts)
    recorded = [event.after or {} for event in events]
    found = [f"{after['verb']} on {after['on']}" for after in recorded]
    assert found == [words.removesuffix(" again") for words in attempts]

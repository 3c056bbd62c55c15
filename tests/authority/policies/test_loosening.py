"""What protects is not lifted by a message that anybody could have sent."""

from typing import Any

import pytest

from durable.authority.policies.loosening import what_it_lifts
from durable.authority.policies.rows import read_rollout
from durable.model.operators.rights import Verb
from durable.model.overrides.effects import Gate
from durable.model.policy.policy import DEFAULT_GATES
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusalCode, RefusedError
from tests.authority.policies.world import everywhere, order, published
from tests.authority.world import World

USUAL = (Verb.APPROVE, Verb.BREAK_GLASS, Verb.FENCE)
STRICT = (*USUAL, Verb.SCALE)


@pytest.mark.parametrize(
    ("current", "coming", "lifted"),
    [
        ({}, {}, ""),
        ({}, {"signed_verbs": STRICT, "overridable_gates": ["spread"]}, ""),
        ({"signed_verbs": STRICT}, {}, "demands no signature for scale"),
        ({}, {"signed_verbs": []}, "demands no signature for approve, break-glass, fence"),
        ({}, {"overridable_gates": [*DEFAULT_GATES, "hold"]}, "lets overrides skip hold"),
        ({"overridable_gates": ["cordon"]}, {"overridable_gates": ["cordon"]}, ""),
        (
            {"signed_verbs": ["scale"], "overridable_gates": []},
            {"signed_verbs": [], "overridable_gates": ["taints"]},
            "demands no signature for scale and lets overrides skip taints",
        ),
    ],
)
def test_what_a_revision_lifts(current: Any, coming: Any, lifted: str) -> None:
    assert what_it_lifts(current, coming) == lifted


async def refused(world: World, *given: Any, **fields: Any) -> str:
    with pytest.raises(RefusedError) as no:
        await order(world, *given, **fields)
    assert no.value.refusal.code is RefusalCode.SIGNATURE_MISSING
    return str(no.value)


@pytest.mark.parametrize(
    "changes",
    [{"signed_verbs": (Verb.APPROVE,)}, {"overridable_gates": (*DEFAULT_GATES, Gate.HOLD)}],
)
async def test_a_revision_that_protects_less_is_promoted_with_a_signature_only(
    ready_world: World, changes: dict[str, Any]
) -> None:
    world = await published(ready_world, **changes)
    sentence = await refused(world, "promote")
    assert "Revision 2 " in sentence
    assert "`durable sign policy/2 promote JSON`" in sentence
    assert (await read_rollout(world.databases, 2)).phase is PolicyPhase.SHADOW
    assert (await order(world, "promote", signed=True)).phase is PolicyPhase.CANARY
    await order(world, "pause")
    await refused(world, "promote", request="on again")
    await order(world, "rollback")


async def test_a_rollback_to_what_protects_less_is_signed_also_when_nobody_names_it(
    ready_world: World,
) -> None:
    world = ready_world
    await everywhere(world, 2, signed_verbs=STRICT)
    for fields in ({}, {"to_revision": 1}):
        assert "demands no signature for scale" in await refused(world, "rollback", **fields)
    assert (await read_rollout(world.databases, 2)).phase is PolicyPhase.EVERYWHERE
    assert (await order(world, "rollback", signed=True)).to_revision == 1


async def test_a_rollback_to_what_protects_as_much_needs_no_signature(ready_world: World) -> None:
    world = ready_world
    await everywhere(world, 2, signed_verbs=STRICT)
    await everywhere(world, 3, signed_verbs=STRICT, crash_pair_seconds=3)
    assert (await order(world, "rollback", 3)).to_revision == 2

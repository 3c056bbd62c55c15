"""Orders about revisions: one wins, the other is told who; each counts once, and is audited."""

import asyncio

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from durable.authority.audit.events import read_events
from durable.authority.policies.publishing import publish_next
from durable.authority.policies.rows import list_rollouts, read_orders, read_rollout
from durable.model.ids import ActorId
from durable.model.operators.rights import Verb
from durable.model.operators.signature import public_key_of
from durable.model.policy.rollout import PolicyPhase, PolicyRollout
from durable.model.refusal import RefusalCode, RefusedError
from durable.scheduling.policies import first_policy
from durable.signals.names import NEXT_POLICY
from durable.temporal.signing import Signer
from tests.authority.policies.world import (
    ALICE,
    BOB,
    everywhere,
    have_operators,
    order,
    publication,
    published,
)
from tests.authority.world import World
from tests.conftest import DEPLOYMENT


async def test_of_two_operators_at_once_one_wins_and_the_other_is_told_who(
    ready_world: World,
) -> None:
    world = await published(ready_world)
    await order(world, "promote")
    seen = (await read_rollout(world.databases, 2)).number
    answers = await asyncio.gather(
        order(world, "pause", actor=ALICE, after=seen),
        order(world, "rollback", actor=BOB, after=seen),
        return_exceptions=True,
    )
    (won,) = [one for one in answers if isinstance(one, PolicyRollout)]
    (lost,) = [one for one in answers if isinstance(one, RefusedError)]
    assert lost.refusal.code is RefusalCode.OVERTAKEN
    assert str(won.actor) in lost.refusal.sentence
    assert won.reason in lost.refusal.sentence
    assert await read_rollout(world.databases, 2) == won


async def test_one_revision_at_a_time_is_on_its_way(ready_world: World) -> None:
    world = await published(await published(ready_world), 3)
    answers = await asyncio.gather(
        order(world, "promote", 2, actor=ALICE),
        order(world, "promote", 3, actor=BOB),
        return_exceptions=True,
    )
    (won,) = [one for one in answers if isinstance(one, PolicyRollout)]
    (lost,) = [one for one in answers if isinstance(one, RefusedError)]
    assert lost.refusal.code is RefusalCode.POLICY_UNDER_WAY
    assert f"{won.actor} promoted revision {won.revision}" in lost.refusal.sentence


async def test_an_order_that_is_sent_again_counts_once(ready_world: World) -> None:
    world = await published(ready_world)
    first = await order(world, "promote", request="one")
    assert await order(world, "promote", request="one") == first
    assert len(await read_orders(world.databases, 2)) == 1
    with pytest.raises(RefusedError, match="Request id one was used for the promote at 20") as no:
        await order(world, "rollback", request="one")
    assert no.value.refusal.code is RefusalCode.KEY_CONFLICT
    with pytest.raises(RefusedError, match="was used by alice for the promote at 20") as no:
        await order(world, "promote", request="one", actor=ActorId("eve"))
    assert no.value.refusal.code is RefusalCode.KEY_CONFLICT


async def test_an_order_that_was_taken_stays_so_without_the_right(ready_world: World) -> None:
    world = await published(ready_world)
    first = await order(world, "promote", request="one")
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("UPDATE global.operators SET removed_at = now() WHERE operator = 'alice'")
    assert await order(world, "promote", request="one") == first


async def test_only_who_has_the_right_gives_orders(ready_world: World) -> None:
    world = await published(ready_world)
    for asking in (
        order(world, "promote", actor=ActorId("eve")),
        publish_next(world.databases, publication({}, ActorId("eve"))),
    ):
        with pytest.raises(RefusedError, match="eve is not an operator"):
            await asking
    assert (await read_rollout(world.databases, 2)).phase is PolicyPhase.SHADOW
    assert len(await list_rollouts(world.databases)) == 2


async def test_a_rollback_goes_to_no_revision_that_was_rolled_back(ready_world: World) -> None:
    world = await published(await published(ready_world), 3)
    await order(world, "rollback", 2)
    async with world.databases.at_global("durable_policy").begin() as connection:
        ended = "UPDATE global.policy_rollouts SET phase = 'rolled_back' WHERE revision = 2"
        await connection.execute(text(ended))
    with pytest.raises(RefusedError, match="or was rolled back itself; go back to one"):
        await order(world, "rollback", 3, to_revision=2)
    with pytest.raises(RefusedError, match="There is no policy revision 9") as no:
        await order(world, "promote", 9)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_POLICY


async def test_a_rollback_goes_to_no_revision_that_was_only_published(ready_world: World) -> None:
    world = await published(ready_world)
    await everywhere(world, 3)
    for unwatched in (2, 4):
        await published(world, unwatched)
        with pytest.raises(RefusedError, match=f"Revision {unwatched} was never in force .*1"):
            await order(world, "rollback", 3, to_revision=unwatched)
    assert (await read_rollout(world.databases, 2)).phase is PolicyPhase.SUPERSEDED
    assert (await order(world, "rollback", 3)).to_revision == 1


async def test_the_first_revision_is_not_rolled_back_to_nothing(ready_world: World) -> None:
    world = await published(ready_world)
    with pytest.raises(RefusedError, match="there is none to go back to"):
        await order(world, "rollback", 1)
    await order(world, "promote", 2)


async def test_the_same_content_is_one_revision_until_it_is_taken_back(ready_world: World) -> None:
    world = ready_world
    have_operators(world, ALICE)
    spec = first_policy().model_copy(update={"choice_band": 0.5}).model_dump(mode="json")
    first = await publish_next(world.databases, publication(spec))
    assert first == 2
    assert await publish_next(world.databases, publication(spec)) == first
    await order(world, "rollback", first)
    assert await publish_next(world.databases, publication(spec)) == 3


async def test_a_policy_is_published_with_a_signature_where_the_one_in_force_demands_it(
    ready_world: World,
) -> None:
    world = ready_world
    await everywhere(world, signed_verbs=(Verb.POLICY,))
    key = Ed25519PrivateKey.generate()
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("UPDATE global.operators SET public_key = %s WHERE operator = 'alice'",
                      [public_key_of(key)])  # fmt: skip
    plain = publication(first_policy().model_dump(mode="json"))
    signed = Signer(key, DEPLOYMENT).sign(NEXT_POLICY, "publish", plain)
    changed = signed.model_copy(update={"spec": {**signed.spec, "crash_pair_seconds": 7}})
    for wrong, code in (
        (plain, RefusalCode.SIGNATURE_MISSING),
        (changed, RefusalCode.SIGNATURE_WRONG),
    ):
        with pytest.raises(RefusedError) as no:
            await publish_next(world.databases, wrong)
        assert no.value.refusal.code is code
    events, _ = await read_events(world.databases, chain="global", actor="alice")
    assert [one.action for one in events[-2:]] == ["refuse command"] * 2
    assert await publish_next(world.databases, signed) == 3


async def test_every_order_is_in_the_audit(ready_world: World) -> None:
    world = await published(ready_world)
    await order(world, "promote", actor=ALICE)
    await order(world, "pause", actor=BOB)
    await order(world, "rollback", actor=BOB, reroll=True)
    query = text("SELECT actor, action, after FROM audit.events WHERE object = 'policy/2'"
                 " AND chain = 'global' ORDER BY sequence")  # fmt: skip
    async with world.databases.at_global("durable_reader").begin() as connection:
        events = (await connection.execute(query)).all()
    assert [(one.actor, one.action) for one in events] == [
        ("test", "publish policy"),
        ("alice", "promote policy"),
        ("bob", "pause policy"),
        ("bob", "roll back policy"),
    ]
    assert events[-1].after["reroll"] is True

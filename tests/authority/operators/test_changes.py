"""Operators come and go; every change is audited, and somebody who may make them is always left."""

import asyncio
from typing import Any

import psycopg
import pytest

from durable.authority.audit.events import read_events
from durable.authority.db.connection import Databases
from durable.authority.operators.changes import (
    add_operator,
    ensure_operator,
    grant_right,
    list_operators,
    read_operator,
    remove_operator,
    revoke_right,
    set_key,
)
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.operators.rights import OperatorKind, Right, Scope, Verb
from durable.model.refusal import RefusalCode, RefusedError
from tests.authority.world import TEST, World

BOB, EVE = ActorId("bob"), ActorId("eve")
RISK = Scope(tenant=TenantId("risk"))
KEY, NEXT_KEY = ("ed25519:" + letter * 43 + "=" for letter in "QE")


async def add(world: World, *rights: Right, name: ActorId = BOB) -> None:
    await add_operator(
        world.databases,
        name,
        kind=OperatorKind.SERVICE,
        rights=rights,
        actor=TEST,
        reason="new here",
    )


async def actions(world: World) -> list[tuple[str, str, str]]:
    events, _ = await read_events(world.databases, chain="global")
    return [(event.actor, event.action, event.object) for event in events]


async def test_an_operator_is_added_with_rights_and_shown(world: World) -> None:
    rights = (Right(verb=Verb.APPLY, scope=RISK), Right(verb=Verb.DRAIN))
    await add(world, *rights)
    found = await read_operator(world.databases, BOB)
    assert (found.id, found.kind, found.created_by) == (BOB, OperatorKind.SERVICE, TEST)
    assert set(found.rights) == set(rights)
    assert found in await list_operators(world.databases)
    assert await actions(world) == [("test", "add operator", "operator/bob")]
    with pytest.raises(RefusedError, match="is an operator already"):
        await add(world)


async def test_rights_are_granted_and_revoked_as_they_were_granted(world: World) -> None:
    await add(world)
    evict = Right(verb=Verb.EVICT, scope=Scope(tenant=TenantId("risk"), region=RegionId("east")))
    for _ in range(2):
        granted = await grant_right(world.databases, BOB, evict, actor=TEST, reason="on call")
        assert granted.rights == (evict,)
    with pytest.raises(RefusedError, match="was not granted evict on everything; its rights are"):
        await revoke_right(world.databases, BOB, Right(verb=Verb.EVICT), actor=TEST, reason="x")
    revoked = await revoke_right(world.databases, BOB, evict, actor=TEST, reason="shift ended")
    assert revoked.rights == ()
    assert [action for _, action, _ in await actions(world)] == [
        "add operator", "grant right", "revoke right"
    ]  # fmt: skip


async def test_who_was_removed_is_unknown_until_added_again_without_key_or_rights(
    world: World,
) -> None:
    await add(world, Right())
    await set_key(world.databases, BOB, KEY, actor=TEST, reason="his key")
    await remove_operator(world.databases, BOB, actor=TEST, reason="left")
    with pytest.raises(RefusedError) as refused:
        await read_operator(world.databases, BOB)
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_OPERATOR
    removed = [one.id for one in await list_operators(world.databases, removed=True)]
    assert BOB in removed
    await add(world)
    found = await read_operator(world.databases, BOB)
    assert (found.rights, found.public_key, found.removed_at) == ((), None, None)


async def test_only_who_may_manage_operators_changes_them(world: World) -> None:
    await add(world, Right(scope=RISK))
    attempts = (
        add_operator(world.databases, EVE, kind=OperatorKind.PERSON, actor=BOB, reason="x"),
        grant_right(world.databases, BOB, Right(), actor=BOB, reason="more"),
        revoke_right(world.databases, TEST, Right(), actor=BOB, reason="less"),
        remove_operator(world.databases, TEST, actor=BOB, reason="out"),
        set_key(world.databases, TEST, KEY, actor=BOB, reason="mine"),
    )
    before = await list_operators(world.databases)
    for attempt in attempts:
        with pytest.raises(RefusedError) as refused:
            await attempt
        assert refused.value.refusal.code is RefusalCode.NOT_ALLOWED
    assert await list_operators(world.databases) == before
    refused_here = ("bob", "refuse command", "operator/bob")
    assert (await actions(world))[1:] == [refused_here] * len(attempts)


async def test_a_key_belongs_to_one_operator(world: World) -> None:
    for name in (BOB, EVE):
        await add(world, name=name)
    await set_key(world.databases, BOB, KEY, actor=TEST, reason="his")
    with pytest.raises(RefusedError, match="That is the key of bob already"):
        await set_key(world.databases, EVE, KEY, actor=TEST, reason="hers")
    with psycopg.connect(world.databases.urls[0]) as owner, pytest.raises(psycopg.IntegrityError):
        owner.execute("UPDATE global.operators SET public_key = %s WHERE operator = 'eve'", [KEY])
    assert (await set_key(world.databases, BOB, KEY, actor=TEST, reason="again")).public_key == KEY
    await remove_operator(world.databases, BOB, actor=TEST, reason="gone")
    assert (await set_key(world.databases, EVE, KEY, actor=TEST, reason="hers")).public_key == KEY


async def test_nobody_gives_a_name_a_key_by_claiming_it(world: World) -> None:
    await add(world, Right(verb=Verb.APPROVE))
    keys: list[str | None] = [KEY, NEXT_KEY, None]
    for key in keys:
        wanted = "--forget" if key is None else f"--public {key}"
        with pytest.raises(RefusedError) as refused:
            await set_key(world.databases, BOB, key, actor=BOB, reason="mine")
        assert refused.value.refusal.code is RefusalCode.NOT_ALLOWED
        assert f"durable operator key bob {wanted}" in refused.value.refusal.sentence
        found = await set_key(world.databases, BOB, key, actor=TEST, reason="bob told me")
        assert found.public_key == key
    with pytest.raises(RefusedError):
        await set_key(world.databases, BOB, KEY, actor=BOB, reason="forgotten, so my first again")


async def test_somebody_is_always_left_to_manage_operators(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM global.operator_rights")
        connection.execute("DELETE FROM global.operators")
    async with Databases(database_url) as databases:
        assert await ensure_operator(databases, BOB)
        assert not await ensure_operator(databases, EVE)
        who: dict[str, Any] = {"actor": BOB, "reason": "x"}
        with pytest.raises(RefusedError, match="the last who may manage operators"):
            await remove_operator(databases, BOB, **who)
        with pytest.raises(RefusedError, match="the last who may manage operators"):
            await revoke_right(databases, BOB, Right(), **who)
        manage = [Right(verb=Verb.OPERATORS)]
        await add_operator(databases, EVE, kind=OperatorKind.PERSON, rights=manage, **who)
        # Two who remove each other at once: one of them finds that it may not any more.
        results = await asyncio.gather(
            remove_operator(databases, EVE, actor=BOB, reason="out"),
            remove_operator(databases, BOB, actor=EVE, reason="out"),
            return_exceptions=True,
        )
        assert sum(isinstance(result, RefusedError) for result in results) == 1
        assert len(await list_operators(databases)) == 1

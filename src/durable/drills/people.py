"""People of a drill: keys and operators that last as long as it, and two who agree."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.db.connection import Databases
from durable.authority.operators.changes import (
    add_operator,
    read_operator,
    remove_operator,
    set_key,
)
from durable.client import Durable
from durable.drills.checks import is_refused, obeying, override_ends
from durable.drills.drill import Expectation
from durable.drills.world import World
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorKind, Right
from durable.model.operators.signature import public_key_of
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.temporal.signing import read_key, signer_of
from durable.validation.text import show_clock

WHY = "an operator for a drill"
WITHIN_SECONDS = 60.0
# What the audit has of an override that two people put in force: also that one person alone, and
# a name alone, were refused.
OF_TWO_PEOPLE = (
    "propose override", "reject message approve", "reject message approve", "activate override",
    "put override in force", "end override",
)  # fmt: skip


async def use_own_key(databases: Databases, settings: Settings) -> None:
    """Makes the key of whoever rehearses count in a stack of its own, which knows none yet.

    Everything that they send is signed where their key is, so all of it would be refused.
    """
    actor = ActorId(settings.acting_as)
    key = read_key(settings.own_keys, actor)
    if key is not None:
        await set_key(
            databases, actor, public_key_of(key), actor=actor, reason="a stack to rehearse on"
        )


@asynccontextmanager
async def temporary_person(durable: Durable, *rights: Right) -> AsyncGenerator[Durable]:
    """A connection of a new operator with these rights and a key; afterwards they have neither."""
    databases, by = durable.databases, durable.actor
    name = ActorId(f"person:drill-{uuid.uuid4().hex[:8]}")
    try:
        # Inside: an interruption may come after it was written.
        await add_operator(
            databases, name, kind=OperatorKind.PERSON, rights=rights, actor=by, reason=WHY
        )
        yield await with_new_key(durable, name)
    finally:
        with suppress(RefusedError):  # it was never added
            await remove_operator(databases, name, actor=by, reason="the drill is over")


async def with_new_key(durable: Durable, name: ActorId) -> Durable:
    """A connection of this operator, whose key is another one from now on."""
    key = Ed25519PrivateKey.generate()
    await set_key(
        durable.databases, name, public_key_of(key), actor=durable.actor, reason="a key for a drill"
    )
    signer = await signer_of(durable.databases, key)
    return Durable(durable.client, durable.databases, name, signer=signer)


def without_key(durable: Durable) -> Durable:
    """A connection in the name of the same operator that cannot sign."""
    return Durable(durable.client, durable.databases, durable.actor)


@asynccontextmanager
async def signed(durable: Durable) -> AsyncGenerator[None]:
    """Inside, everything is signed; a key that was made for it counts no longer afterwards."""
    operator = await read_operator(durable.databases, durable.actor)
    if operator.public_key is not None:
        if not durable.signer.has_key:
            raise StackError(
                f"{durable.actor} has a key in this stack, and the drill has to sign with it: set "
                "DURABLE_KEYS_DIR to where it is."
            )
        yield
        return
    own, key = durable.signer, Ed25519PrivateKey.generate()
    try:
        # Inside: an interruption may come after it was written.
        await _set(durable, public_key_of(key), "a drill has to sign")
        durable.signer = await signer_of(durable.databases, key)
        yield
    finally:
        durable.signer = own
        await _set(durable, None, "the drill is over")


async def _set(durable: Durable, public_key: str | None, reason: str) -> None:
    await set_key(durable.databases, durable.actor, public_key, actor=durable.actor, reason=reason)


# ── two people ──────────────────────────────────────────────────────────────────────────────────


async def two_approve(
    world: World, second: Durable, proposed: Override, *, reason: str
) -> AsyncIterator[Expectation]:
    """Tries without the second person, then without their key, and then as it has to be."""
    durable = world.durable
    override = await durable.overrides.read(proposed.id)
    yield Expectation(
        what=f"{proposed.kind} is proposed, and no region obeys it yet",
        met=override.state is OverrideState.PROPOSED and not await obeying(world, proposed.id),
        seen=f"override {proposed.id}, {override.state}",
    )
    yield await is_refused(
        f"{durable.actor}, who proposed it, cannot approve it",
        RefusalCode.SELF_APPROVAL,
        durable.overrides.approve(proposed.id, reason=reason),
    )
    yield await is_refused(
        f"it cannot be approved in the name of {second.actor} without their key",
        RefusalCode.SIGNATURE_MISSING,
        without_key(second).overrides.approve(proposed.id, reason=reason),
    )
    if (await durable.overrides.read(proposed.id)).state is OverrideState.PROPOSED:
        await second.overrides.approve(proposed.id, reason=reason)
    override = await durable.overrides.read(proposed.id)
    yield Expectation(
        what=f"{second.actor} approves it with their key, and it is in force",
        met=override.state is OverrideState.ACTIVE and override.approver == second.actor,
        seen=f"{override.state} until {show_clock(override.expires_at)}",
    )


async def revoke(world: World, override: Override, *, reason: str) -> Expectation:
    """Ends it, long before its time."""
    await world.durable.overrides.revoke(override.id, reason=reason)
    what = "it is revoked, and no region obeys it any more"
    return await override_ends(world, override, what, OverrideState.REVOKED, WITHIN_SECONDS)

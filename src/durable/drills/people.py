"""People who are operators for as long as a drill lasts, with keys that nobody keeps."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.operators.changes import add_operator, remove_operator, set_key
from durable.client import Durable
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorKind, Right
from durable.model.operators.signature import public_key_of
from durable.model.refusal import RefusedError
from durable.temporal.signing import signer_of

WHY = "somebody for a drill"


@asynccontextmanager
async def temporary_person(durable: Durable, *rights: Right) -> AsyncGenerator[Durable]:
    """A connection of somebody with these rights and a key; afterwards they have neither."""
    databases, by = durable.databases, durable.actor
    name = ActorId(f"person:drill-{uuid.uuid4().hex[:8]}")
    try:
        # Inside: whoever interrupts it may do so after it was written.
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
    """A connection of whoever claims to be the same operator, and cannot sign."""
    return Durable(durable.client, durable.databases, durable.actor)

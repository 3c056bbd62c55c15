"""What must be signed is: with one's own key, or with one that lasts for a drill."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.operators.changes import read_operator, set_key
from durable.client import Durable
from durable.model.operators.signature import public_key_of
from durable.state_dir.record import StackError
from durable.temporal.signing import signer_of


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
        # Inside: whoever interrupts it may do so after it was written.
        await _set(durable, public_key_of(key), "a drill has to sign")
        durable.signer = await signer_of(durable.databases, key)
        yield
    finally:
        durable.signer = own
        await _set(durable, None, "the drill is over")


async def _set(durable: Durable, public_key: str | None, reason: str) -> None:
    await set_key(durable.databases, durable.actor, public_key, actor=durable.actor, reason=reason)

"""The key that a person or a service signs with, and messages signed by it.

A key is a file of its owner's, below `~/.config/durable/keys` or DURABLE_KEYS_DIR. Where there is
one, everything its owner sends through commands and the SDK is signed; the authority knows the
public half.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.db.connection import Databases
from durable.authority.operators.authorization import read_deployment
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorMessage
from durable.model.operators.signature import sign
from durable.settings import SettingsError
from durable.signals.payloads import OperatorRequest

P = TypeVar("P", bound=OperatorRequest)
_OTHERS = 0o077


def key_path(keys: Path, actor: ActorId) -> Path:
    """Where the actor's key is, or would be."""
    return keys / f"{quote(actor, safe='@:')}.pem"


def read_key(keys: Path, actor: ActorId) -> Ed25519PrivateKey | None:
    """The actor's key, if there is one here; one that others may read is not used."""
    path = key_path(keys, actor)
    try:
        if path.stat().st_mode & _OTHERS:
            raise SettingsError(
                f"Others may read the key {path}; assume that it is known. Run chmod 600 on it or, "
                "better, make a new one: see runbooks/lost-operator-key.md."
            )
        found = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"The key {path} cannot be read: {error}") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise SettingsError(
            f"The key {path} is not an Ed25519 key; see `durable operator key --help`."
        )
    return found


def create_key(keys: Path, actor: ActorId) -> Ed25519PrivateKey:
    """Makes a key for the actor; only the owner of the file may read it."""
    key = Ed25519PrivateKey.generate()
    written = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = key_path(keys, actor)
    try:
        keys.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(written)
    except OSError as error:
        raise SettingsError(f"The key {path} cannot be written: {error}") from None
    return key


class Signer:
    """Signs what its actor sends, if it has a key; without one everything is sent as it is.

    What it signs is for one deployment, by its id: the same names elsewhere mean something else.
    """

    def __init__(self, key: Ed25519PrivateKey | None = None, deployment: str = "") -> None:
        assert key is None or deployment, "a signature is for one deployment"
        self._key, self._deployment = key, deployment

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def sign(self, workflow_id: str, message: str, payload: P) -> P:
        """The payload with a signature of this moment: it lasts for minutes, so sign each send."""
        if self._key is None:
            return payload
        at = payload.model_copy(update={"signed_at": datetime.now(UTC), "signature": None})
        content = at.model_dump(mode="json")
        signature = sign(self._key, _asked(workflow_id, message, content), self._deployment)
        return at.model_copy(update={"signature": signature})

    def sign_content(
        self, workflow_id: str, message: str, content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The same for what a person wrote, which is left as it was written."""
        assert self._key is not None, "the caller has a key"
        whole = {**content, "signed_at": datetime.now(UTC).isoformat(timespec="seconds")}
        asked = _asked(workflow_id, message, whole)
        return {**whole, "signature": sign(self._key, asked, self._deployment)}


async def signer_of(databases: Databases, key: Ed25519PrivateKey | None) -> Signer:
    """One for the deployment of these databases."""
    return Signer() if key is None else Signer(key, await read_deployment(databases))


def _asked(workflow_id: str, message: str, content: Mapping[str, Any]) -> OperatorMessage:
    return OperatorMessage(workflow_id=workflow_id, message=message, payload=dict(content))

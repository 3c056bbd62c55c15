"""Signatures of messages: Ed25519 over one canonical form, so that spacing and order are free."""

import base64

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import JsonValue

from durable.model.operators.rights import OperatorMessage, canonical_json

_PREFIX = "ed25519:"


def canonical(message: OperatorMessage, deployment: str) -> bytes:
    """The bytes that are signed: the message without its signature, to one workflow."""
    payload = {key: value for key, value in message.payload.items() if key != "signature"}
    to = {"deployment": deployment, "workflow_id": message.workflow_id}
    whole: dict[str, JsonValue] = {**to, "message": message.message, "payload": payload}
    return canonical_json(whole).encode()


def sign(key: Ed25519PrivateKey, message: OperatorMessage, deployment: str) -> str:
    """The signature as text."""
    return base64.b64encode(key.sign(canonical(message, deployment))).decode()


def is_signed_by(public_key: str, message: OperatorMessage, deployment: str) -> bool:
    """Whether this key made the signature that the message carries."""
    try:
        signature = base64.b64decode(str(message.payload.get("signature")), validate=True)
        raw = base64.b64decode(public_key.removeprefix(_PREFIX), validate=True)
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, canonical(message, deployment))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key_of(key: Ed25519PrivateKey) -> str:
    """The public half, as operators are known by it."""
    return _PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()

"""Signatures of messages: Ed25519 over one canonical form, so that spacing and order are free."""

import base64
import json
from typing import Any, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from durable.model.operators.rights import Asked

_PREFIX = "ed25519:"


def canonical(asked: Asked, deployment: str) -> bytes:
    """The bytes that are signed: the message without its signature, to one workflow."""
    payload = {key: value for key, value in asked.payload.items() if key != "signature"}
    to = {"deployment": deployment, "workflow_id": asked.workflow_id}
    whole = {**to, "message": asked.message, "payload": payload}
    return json.dumps(_normal(whole), sort_keys=True, separators=(",", ":")).encode()


def sign(key: Ed25519PrivateKey, asked: Asked, deployment: str) -> str:
    """The signature as text."""
    return base64.b64encode(key.sign(canonical(asked, deployment))).decode()


def is_signed_by(public_key: str, asked: Asked, deployment: str) -> bool:
    """Whether this key made the signature that the message carries."""
    try:
        signature = base64.b64decode(str(asked.payload.get("signature")), validate=True)
        raw = base64.b64decode(public_key.removeprefix(_PREFIX), validate=True)
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, canonical(asked, deployment))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key_of(key: Ed25519PrivateKey) -> str:
    """The public half, as operators are known by it."""
    return _PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _normal(value: Any) -> Any:
    """Whole numbers alike, however they are written: a browser sends 1.0 as 1."""
    if isinstance(value, dict):
        return {key: _normal(inner) for key, inner in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_normal(inner) for inner in cast(list[Any], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value

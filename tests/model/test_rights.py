"""Which rights cover what, and what a signature is over."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import TypeAdapter, ValidationError

from durable.model.ids import RegionId, TenantId
from durable.model.operators import rights
from durable.model.operators.rights import EVERYTHING, OperatorMessage, Right, Scope, Verb, covers
from durable.model.operators.signature import canonical, is_signed_by, public_key_of, sign

RISK, BILLING = TenantId("risk"), TenantId("billing")
EAST, WEST = RegionId("us-east"), RegionId("us-west")


@pytest.mark.parametrize(
    ("right", "asked", "allowed"),
    [
        (EVERYTHING, EVERYTHING, True),
        (EVERYTHING, Scope(tenant=RISK, region=EAST), True),
        (Scope(tenant=RISK), Scope(tenant=RISK), True),
        (Scope(tenant=RISK), Scope(tenant=RISK, region=WEST), True),
        (Scope(tenant=RISK), Scope(tenant=BILLING), False),
        (Scope(tenant=RISK), Scope(region=EAST), False),
        (Scope(tenant=RISK), EVERYTHING, False),
        (Scope(region=EAST), Scope(region=EAST), True),
        (Scope(region=EAST), Scope(tenant=BILLING, region=EAST), True),
        (Scope(region=EAST), Scope(tenant=BILLING), False),
        (Scope(region=EAST), Scope(region=WEST), False),
        (Scope(tenant=RISK, region=EAST), Scope(tenant=RISK, region=EAST), True),
        (Scope(tenant=RISK, region=EAST), Scope(tenant=RISK), False),
        (Scope(tenant=RISK, region=EAST), Scope(tenant=BILLING, region=EAST), False),
    ],
    ids=str,
)
def test_a_right_covers_what_its_scope_contains(right: Scope, asked: Scope, allowed: bool) -> None:
    assert covers([Right(verb=Verb.EVICT, scope=right)], Verb.EVICT, asked) is allowed
    assert covers([Right(scope=right)], Verb.EVICT, asked) is allowed
    assert not covers([Right(verb=Verb.APPLY, scope=right)], Verb.EVICT, asked)
    assert not covers([], Verb.EVICT, asked)


KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
HERE = "here"


def signed(**other: Any) -> OperatorMessage:
    payload: dict[str, Any] = {"actor": "alice", "reason": "r", "request_id": "1", "slots": [1, 0]}
    whole = OperatorMessage(
        workflow_id="placement/a", message="evict", payload={**payload, **other}
    )
    return OperatorMessage(
        workflow_id=whole.workflow_id,
        message=whole.message,
        payload={**whole.payload, "signature": sign(KEY, whole, HERE)},
    )


def test_a_signature_counts_for_the_message_whose_it_is_and_no_other() -> None:
    asked, public = signed(), public_key_of(KEY)
    assert is_signed_by(public, asked, HERE)
    others = [
        asked.model_copy(update={"workflow_id": "placement/b"}),
        asked.model_copy(update={"message": "retry_now"}),
        asked.model_copy(update={"payload": {**asked.payload, "slots": [0, 1]}}),
        asked.model_copy(update={"payload": {**asked.payload, "actor": "bob"}}),
        asked.model_copy(update={"payload": {**asked.payload, "force": True}}),
    ]
    assert not any(is_signed_by(public, other, HERE) for other in others)
    assert not is_signed_by(public_key_of(Ed25519PrivateKey.generate()), asked, HERE)
    assert not is_signed_by(public, asked, "another deployment")


@pytest.mark.parametrize("signature", [None, "", "x", "====", "A" * 88, 5, []])
def test_what_is_no_signature_is_refused_and_not_an_error(signature: Any) -> None:
    asked = signed()
    forged = asked.model_copy(update={"payload": {**asked.payload, "signature": signature}})
    assert not is_signed_by(public_key_of(KEY), forged, HERE)


def test_order_spacing_and_the_spelling_of_whole_numbers_are_free() -> None:
    one = OperatorMessage(workflow_id="w", message="m", payload={"a": 1.0, "b": [{"c": 2}]})
    other = OperatorMessage(workflow_id="w", message="m", payload={"b": [{"c": 2.0}], "a": 1})
    assert canonical(one, HERE) == canonical(other, HERE)
    assert canonical(one, HERE) == (
        b'{"deployment":"here","message":"m","payload":{"a":1,"b":[{"c":2}]},"workflow_id":"w"}'
    )


@pytest.mark.parametrize("sign_bit", [0x00, 0x80])
@pytest.mark.parametrize("point", sorted(rights._SMALL_ORDER))  # pyright: ignore[reportPrivateUsage]
def test_a_key_that_anybody_can_sign_with_is_refused(point: bytes, sign_bit: int) -> None:
    raw = bytes([*point[:31], point[31] | sign_bit])
    key = f"ed25519:{base64.b64encode(raw).decode()}"
    with pytest.raises(ValidationError, match="anyone can sign with this key"):
        TypeAdapter(rights.PublicKey).validate_python(key)


def test_a_key_that_was_made_here_is_not() -> None:
    TypeAdapter(rights.PublicKey).validate_python(public_key_of(KEY))

"""Who may do what: unknown, without the right, unsigned, wrongly or too long ago signed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.fleet.policies import publish_policy
from durable.authority.operators.authorization import Authorizer, check_message, count_message
from durable.authority.operators.ledger import RecordedRequest
from durable.authority.policies.phases import reach_phase
from durable.model.ids import ActorId, TenantId
from durable.model.operators.rights import (
    EVERYTHING,
    CountedRequest,
    Operator,
    OperatorKind,
    OperatorMessage,
    Right,
    Scope,
    SlotEffect,
    Verb,
)
from durable.model.operators.signature import public_key_of, sign
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusalCode, RefusedError
from durable.scheduling.policies import first_policy
from tests.authority.policies.world import everywhere, order
from tests.authority.world import TEST, World
from tests.conftest import DEPLOYMENT

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
RISK, BILLING = Scope(tenant=TenantId("risk")), Scope(tenant=TenantId("billing"))


def operator(name: str, *rights: Right, **fields: Any) -> Operator:
    return Operator(
        id=ActorId(name),
        kind=OperatorKind.PERSON,
        rights=rights,
        created_by=TEST,
        created_at=NOW,
        **fields,
    )


AUTHORIZER = Authorizer(
    {
        one.id: one
        for one in (
            operator("ann", Right(scope=RISK), public_key=public_key_of(KEY)),
            operator("keyless", Right()),
            operator("gone", Right(), removed_at=NOW),
            operator("nobody"),
        )
    },
    frozenset({Verb.FENCE}),
    ("person:root",),
    NOW,
    DEPLOYMENT,
)


def asked(actor: str = "ann", **payload: Any) -> OperatorMessage:
    who = {"actor": actor, "reason": "INC-42", "request_id": "1"}
    return OperatorMessage(
        workflow_id="workload/risk/api", message="scale", payload={**who, **payload}
    )


def signed(key: Ed25519PrivateKey = KEY, at: datetime = NOW, **other: Any) -> OperatorMessage:
    message = asked(signed_at=at.isoformat(), **other)
    signature = sign(key, message, DEPLOYMENT)
    return message.model_copy(update={"payload": {**message.payload, "signature": signature}})


@pytest.mark.parametrize(
    ("message", "verb", "scope", "code", "words"),
    [
        (asked("eve"), Verb.SCALE, RISK, "unknown_operator", "person:root can add it"),
        (asked("eve"), Verb.SCALE, RISK, "unknown_operator", "eve --right scale --tenant risk`"),
        (asked("gone"), Verb.SCALE, RISK, "unknown_operator", "was removed"),
        (asked("nobody"), Verb.SCALE, RISK, "not_allowed", "person:root can grant it"),
        (asked(), Verb.SCALE, BILLING, "not_allowed", "grant ann scale --tenant billing"),
        (asked(), Verb.FLEET, EVERYTHING, "not_allowed", "lacks the right `fleet` on everything"),
        (asked(), Verb.FENCE, RISK, "signature_missing", "durable sign workload/risk/api scale"),
        (asked("keyless"), Verb.FENCE, RISK, "signature_missing", "durable operator key"),
        (signed(actor="keyless"), Verb.FENCE, RISK, "signature_wrong", "has no key"),
        (signed(OTHER_KEY), Verb.FENCE, RISK, "signature_wrong", "not one by the key of ann"),
        # A signature that is given has to be right, also where none is needed.
        (signed(OTHER_KEY), Verb.SCALE, RISK, "signature_wrong", "not one by the key of ann"),
        (signed(at=NOW - timedelta(minutes=6)), Verb.FENCE, RISK, "signature_old", "11:54:00Z"),
        (signed(at=NOW + timedelta(seconds=31)), Verb.FENCE, RISK, "signature_old", "clock"),
    ],
)
def test_what_is_refused_says_what_to_do_next(
    message: OperatorMessage, verb: Verb, scope: Scope, code: str, words: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        AUTHORIZER.check(message, verb, scope)
    assert refused.value.refusal.code == code
    assert words in refused.value.refusal.sentence


def test_a_signature_of_another_message_is_refused() -> None:
    one = signed()
    for other in (
        one.model_copy(update={"message": "delete"}),
        one.model_copy(update={"workflow_id": "workload/risk/other"}),
        one.model_copy(update={"payload": {**one.payload, "request_id": "2"}}),
        one.model_copy(update={"payload": {**one.payload, "signed_at": "2030-01-01T12:00:01Z"}}),
    ):
        with pytest.raises(RefusedError) as refused:
            AUTHORIZER.check(other, Verb.FENCE, RISK)
        assert refused.value.refusal.code is RefusalCode.SIGNATURE_WRONG


def test_what_is_allowed_and_signed_where_it_must_be_passes() -> None:
    AUTHORIZER.check(asked(), Verb.SCALE, RISK)
    AUTHORIZER.check(signed(), Verb.FENCE, RISK)
    AUTHORIZER.check(signed(at=NOW - timedelta(minutes=4)), Verb.SCALE, RISK)
    AUTHORIZER.check(signed(at=NOW + timedelta(seconds=30)), Verb.SCALE, RISK)
    AUTHORIZER.check(asked("keyless"), Verb.DELETE, EVERYTHING)


async def test_without_a_policy_the_shipped_one_says_what_must_be_signed(world: World) -> None:
    await check_message(world.databases, asked("test"), Verb.SCALE, RISK)
    for verb in (Verb.APPROVE, Verb.BREAK_GLASS, Verb.FENCE):
        with pytest.raises(RefusedError) as refused:
            await check_message(world.databases, asked("test"), verb, RISK)
        assert refused.value.refusal.code is RefusalCode.SIGNATURE_MISSING


async def test_the_policy_that_is_everywhere_says_what_must_be_signed(ready_world: World) -> None:
    spec = {**first_policy().model_dump(mode="json"), "signed_verbs": ["scale"]}
    await publish_policy(ready_world.databases, 2, spec, TEST, phase=PolicyPhase.EVERYWHERE)
    # One that nobody has promoted yet lifts nothing.
    await publish_policy(ready_world.databases, 3, {**spec, "signed_verbs": []}, TEST)
    await check_message(ready_world.databases, asked("test"), Verb.FENCE, RISK)
    with pytest.raises(RefusedError, match="demands a signature for scale"):
        await check_message(ready_world.databases, asked("test"), Verb.SCALE, RISK)


async def test_a_policy_demands_signatures_until_it_is_rolled_back(ready_world: World) -> None:
    await everywhere(ready_world, 2, signed_verbs=(Verb.SCALE,))
    back = await order(ready_world, "rollback", 2, signed=True)
    with pytest.raises(RefusedError, match="demands a signature for scale"):
        await check_message(ready_world.databases, asked("test"), Verb.SCALE, RISK)
    await reach_phase(ready_world.databases, back, PolicyPhase.ROLLED_BACK, [1])
    await check_message(ready_world.databases, asked("test"), Verb.SCALE, RISK)


FIRST = SlotEffect(slots={0: 7})


async def counted(
    world: World,
    message: OperatorMessage,
    answer: str | None = "Done.",
    effect: SlotEffect = FIRST,
) -> CountedRequest | None:
    return await count_message(world.databases, message, Verb.SCALE, RISK, answer, effect)


async def test_a_request_is_counted_with_its_answer_and_what_that_promised(world: World) -> None:
    """A workflow that was terminated or reset does not know what it has done before."""
    message = asked("test")
    assert await counted(world, message, answer=None) is None, "what is refused leaves its id free"
    assert await counted(world, message) is None
    again = await counted(world, message, "Something else.", SlotEffect(slots={1: 8}))
    assert again is not None
    assert (again.answer, again.effect) == ("Done.", FIRST)
    assert again.repeated.startswith("Done. (Request id 1 was used for the scale at 20")
    assert again.repeated.endswith("; nothing changed now.)")
    for wrong in (asked("another"), asked("test", replicas=7)):
        with pytest.raises(RefusedError, match="send another request id") as refused:
            await counted(world, wrong)
        assert refused.value.refusal.code is RefusalCode.KEY_CONFLICT
    assert await counted(world, asked("test", request_id="2")) is None
    with psycopg.connect(world.databases.urls[0], autocommit=True) as owner:
        owner.execute("DELETE FROM global.operator_rights WHERE operator = 'test'")
    assert await counted(world, message) is not None, "what was done stays answered"
    with pytest.raises(RefusedError, match="lacks the right `scale`"):
        # It is done only now, or counted where it is acted on.
        await check_message(world.databases, message, Verb.SCALE, RISK)


async def test_requests_that_were_taken_are_forgotten_after_a_month(world: World) -> None:
    for request in ("old", "new"):
        message = asked("test", request_id=request)
        await counted(world, message)
    with psycopg.connect(world.databases.urls[0], autocommit=True) as owner:
        owner.execute("ALTER TABLE global.operator_requests DISABLE TRIGGER append_only")
        owner.execute(
            "UPDATE global.operator_requests SET kept_until = kept_until - interval '31 days'"
            " WHERE request = 'old'"
        )
        message = asked("test", request_id="next")
        await counted(world, message)
        kept = owner.execute("SELECT request FROM global.operator_requests ORDER BY at").fetchall()
    assert kept == [("new",), ("next",)]


def test_a_signed_request_is_answered_again_only_to_who_signs_it() -> None:
    old = signed(at=NOW - timedelta(hours=1))
    first = RecordedRequest("scale", old.digest, "ann", is_signed=True, answer={})
    first = replace(first, public_key=public_key_of(KEY), deployment=DEPLOYMENT)
    first.check_proof(old)  # what was done stays answered
    replace(first, is_signed=False).check_proof(asked())
    forged = asked(signature=old.payload["signature"])
    for other in (asked(), forged, signed(Ed25519PrivateKey.generate()), asked("keyless")):
        with pytest.raises(RefusedError, match="was signed when it was first sent") as refused:
            first.check_proof(other)
        assert refused.value.refusal.code is RefusalCode.SIGNATURE_MISSING

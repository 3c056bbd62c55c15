"""Who may do what: verbs, where a right holds, and the message that a person claims to have sent.

A right that names no tenant and no region holds everywhere. One that names a tenant holds for that
tenant in every region, one that names a region for everything in it, one that names both for that
tenant there.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Generic, Self, TypeVar, cast

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue

from durable.model.ids import ActorId, RegionId, TenantId
from durable.validation.value import Value

T = TypeVar("T")
V = TypeVar("V", bound=Value)

# A signature counts for so long after the moment it was made, by the database's clock; and from a
# clock that is ahead of it by at most so much, so that nothing is signed for later.
SIGNATURE_LASTS = timedelta(minutes=5)
SIGNER_AHEAD = timedelta(seconds=30)

# What a message says of its sender, and which order was the last that they had seen; the rest is
# what it asks for.
_SENDER_FIELDS = frozenset({"actor", "reason", "request_id", "signed_at", "signature", "after"})

# The points of small order, in every encoding, without the sign bit: under such a key one signature
# is right for many messages, and takes no private key to make.
_SMALL_ORDER = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


def _refuse_small_order(key: str) -> str:
    raw = base64.b64decode(key.removeprefix("ed25519:"))
    if bytes([*raw[:31], raw[31] & 0x7F]) in _SMALL_ORDER:
        raise ValueError(
            "anyone can sign with this key; allowed: one that `durable operator key` made"
        )
    return key


# Raw Ed25519, as text that can be pasted; the last letter has no spare bits, so that one key is one
# text.
PublicKey = Annotated[
    str,
    Field(pattern=r"^ed25519:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"),
    AfterValidator(_refuse_small_order),
]
Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{86}==$")]


class Verb(StrEnum):
    """What a right allows; docs/operators.md says which messages and commands each one covers."""

    APPLY = "apply"
    SCALE = "scale"
    DELETE = "delete"
    ROLLOUT = "rollout"
    REPLACE = "replace"
    EVICT = "evict"
    RETRY = "retry"
    DRAIN = "drain"
    CORDON = "cordon"
    FLEET = "fleet"
    OVERRIDE = "override"
    APPROVE = "approve"
    BREAK_GLASS = "break-glass"
    FENCE = "fence"
    RESTORE = "restore"
    POLICY = "policy"
    OPERATORS = "operators"


# What only commands do, which write the authority themselves: they carry no signature.
NEVER_SIGNED = frozenset({Verb.CORDON, Verb.FLEET, Verb.OPERATORS, Verb.RESTORE})


class Scope(Value):
    """What a right holds for, and what a request is about; without names, everything."""

    tenant: TenantId | None = None
    region: RegionId | None = None

    def contains(self, other: "Scope") -> bool:
        return self.tenant in (None, other.tenant) and self.region in (None, other.region)

    def __str__(self) -> str:
        named = [
            *([] if self.tenant is None else [f"tenant {self.tenant}"]),
            *([] if self.region is None else [f"region {self.region}"]),
        ]
        return " in ".join(named) or "everything"


EVERYTHING = Scope()


class Right(Value):
    """One verb, or every verb if none is named, in a scope."""

    verb: Verb | None = None
    scope: Scope = EVERYTHING

    def __str__(self) -> str:
        return f"{self.verb or 'every verb'} on {self.scope}"


def covers(rights: Iterable[Right], verb: Verb, scope: Scope) -> bool:
    """Whether one of these rights allows the verb there."""
    return any(right.verb in (None, verb) and right.scope.contains(scope) for right in rights)


class OperatorKind(StrEnum):
    PERSON = "person"
    SERVICE = "service"


class Operator(Value):
    """A person or a service that may ask for changes."""

    id: ActorId
    kind: OperatorKind
    public_key: PublicKey | None = None
    rights: tuple[Right, ...] = ()
    created_by: ActorId
    created_at: AwareDatetime
    removed_at: AwareDatetime | None = None


class OperatorMessage(Value):
    """A person's or a service's message as it came: to which workflow, its name, what it carried.

    The payload has at least the actor, the reason and the request id. A signature is over all of
    it, so that of a signed message it is exactly what was sent.
    """

    workflow_id: str
    message: str
    payload: dict[str, JsonValue]

    @classmethod
    def unsigned(
        cls,
        workflow_id: str,
        message: str,
        *,
        actor: ActorId,
        reason: str,
        request_id: str,
        **content: JsonValue,
    ) -> Self:
        """A message without a signature, such as the orders that controllers give by themselves."""
        sender: dict[str, JsonValue] = {"actor": str(actor), "reason": reason}
        payload = {**sender, "request_id": request_id, **content}
        return cls(workflow_id=workflow_id, message=message, payload=payload)

    def payload_as(self, payload: type[V]) -> V:
        """What it carries, as the payload of its kind; it was read once before, so it can be."""
        return payload.model_validate_json(json.dumps(self.payload))

    @property
    def actor(self) -> ActorId:
        return ActorId(str(self.payload["actor"]))

    @property
    def reason(self) -> str:
        return str(self.payload["reason"])

    @property
    def request_id(self) -> str:
        return str(self.payload["request_id"])

    @property
    def is_signed(self) -> bool:
        """Whether it carries a signature, right or wrong."""
        return self.payload.get("signature") is not None

    @cached_property
    def digest(self) -> str:
        """What it asks for, without who asks and why: the same when it is sent twice.

        A field that is empty counts as one that was left out.
        """
        content: dict[str, JsonValue] = {
            key: value
            for key, value in self.payload.items()
            if key not in _SENDER_FIELDS and value not in (None, [], {})
        }
        return hashlib.sha256(f"{self.message} {canonical_json(content)}".encode()).hexdigest()


class SlotEffect(Value):
    """What a message does to slots that a workflow alone remembers, as it was planned.

    Each is named with a number that another deed would change, so that whoever reads this later
    finds out what of it is still undone.
    """

    slots: Mapping[int, int] = Field(default_factory=dict[int, int])
    # The number of the next decision, for what only brings one about.
    attempt: int = 0


class CountedRequest(Value):
    """A request that was counted, with what it was answered and what that answer promised."""

    answer: str
    # The answer for a sender who has to know that nothing changed now.
    repeated: str
    effect: SlotEffect


class OrderAnswer(Value, Generic[T]):
    """What an order is about, as it leaves it, and what its sender is answered."""

    target: T
    sentence: str


def canonical_json(value: JsonValue) -> str:
    """One text for one value, however it was spaced and ordered, and its whole numbers written."""
    return json.dumps(_normal(value), sort_keys=True, separators=(",", ":"))


def _normal(value: Any) -> Any:
    """Whole numbers alike: a browser sends 1.0 as 1."""
    if isinstance(value, dict):
        return {key: _normal(inner) for key, inner in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_normal(inner) for inner in cast(list[Any], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value

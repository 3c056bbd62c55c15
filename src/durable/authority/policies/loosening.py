"""An order that would lift a protection has to be signed, whatever the policy says of `policy`.

Signatures and closed gates protect from those who claim to be another person. Were an order without
a signature enough to bring a revision into force that demands less, they would protect nothing.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.operators.authorization import (
    DEMANDING,
    NotAllowedError,
    signature_missing,
)
from durable.model.ids import PolicyRevision
from durable.model.operators.rights import EVERYTHING, Operator, OperatorMessage, Verb
from durable.model.policy.policy import DEFAULT_GATES, Policy
from durable.model.policy.rollout import PolicyOrderKind, PolicyRollout

_DEMANDING = text(f"SELECT spec {DEMANDING}")
_SPEC = text("SELECT spec FROM global.policies WHERE revision = :revision")
_SIGNED: tuple[Verb, ...] = Policy.model_fields["signed_verbs"].default


async def refuse_unsigned_loosening(
    connection: AsyncConnection,
    operator: Operator,
    asked: OperatorMessage,
    kind: PolicyOrderKind,
    after: PolicyRollout,
) -> None:
    """Refuses an order without a signature to what protects less than the policy everywhere.

    A signature that there is was found right before.
    """
    revision = _comes_into_force(kind, after)
    if revision is None or asked.is_signed:
        return
    current: Mapping[str, Any] = (await connection.execute(_DEMANDING)).scalar_one_or_none() or {}
    coming: Mapping[str, Any] = (
        await connection.execute(_SPEC, {"revision": revision})
    ).scalar_one()
    lifted = what_it_lifts(current, coming)
    if lifted:
        why = f"Revision {revision} {lifted}, so this has to be signed"
        refusal = signature_missing(operator, asked, why).refusal
        raise NotAllowedError(operator.id, Verb.POLICY, EVERYTHING, refusal.code, refusal.sentence)


def what_it_lifts(current: Mapping[str, Any], coming: Mapping[str, Any]) -> str:
    """What one revision's content demands and another one's does not; pure."""
    verbs = _listed(current, "signed_verbs", _SIGNED) - _listed(coming, "signed_verbs", _SIGNED)
    key = "overridable_gates"
    gates = _listed(coming, key, DEFAULT_GATES) - _listed(current, key, DEFAULT_GATES)
    unsigned = f"demands no signature for {', '.join(sorted(verbs))}" if verbs else ""
    opened = f"lets overrides skip {', '.join(sorted(gates))}" if gates else ""
    return " and ".join(part for part in (unsigned, opened) if part)


def _comes_into_force(kind: PolicyOrderKind, after: PolicyRollout) -> PolicyRevision | None:
    match kind:
        case PolicyOrderKind.PROMOTE:
            return after.revision
        case PolicyOrderKind.ROLLBACK:
            return after.to_revision
        case PolicyOrderKind.PAUSE:
            return None


def _listed(spec: Mapping[str, Any], key: str, default: tuple[str, ...]) -> frozenset[str]:
    listed = spec.get(key)
    return frozenset(map(str, default if listed is None else listed))

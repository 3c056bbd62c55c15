"""People who ask for overrides in tests: each with a key, so that whatever must be signed is."""

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from durable.authority.commit.regional_commit import commit_intents
from durable.authority.db.connection import Databases
from durable.authority.overrides.changes import Change, ChangeKind, change_override
from durable.authority.overrides.copies import CopyResult, copy_override
from durable.authority.overrides.proposals import OverrideProposal, propose_override
from durable.model.ids import OverrideId, RegionId
from durable.model.operators.rights import OperatorMessage, OrderAnswer
from durable.model.operators.signature import public_key_of, sign
from durable.model.overrides.effects import OverrideScope
from durable.model.overrides.kinds import KINDS
from durable.model.overrides.override import Override
from durable.model.placement.intents import AnyIntent, Refused
from durable.model.refusal import RefusalCode
from durable.signals.names import override_id
from tests.authority.world import EAST, World
from tests.conftest import DEPLOYMENT

KEYS = {name: Ed25519PrivateKey.generate() for name in ("ann", "bob")}

_SET_KEY = text("""
    INSERT INTO global.operators (operator, kind, public_key, created_by, created_at)
    VALUES (:operator, 'person', :key, 'test', now())
        ON CONFLICT (operator) DO UPDATE SET public_key = excluded.public_key
""")
_GRANT = text("""
    INSERT INTO global.operator_rights (operator, verb, granted_by, granted_at)
    VALUES (:operator, '*', 'test', now()) ON CONFLICT DO NOTHING
""")


async def give_keys(databases: Databases) -> None:
    """Makes ann and bob operators with every right and a key of their own."""
    async with databases.at_global("durable_operators").begin() as connection:
        for name, key in KEYS.items():
            values = {"operator": name, "key": public_key_of(key)}
            await connection.execute(_SET_KEY, values)
            await connection.execute(_GRANT, {"operator": name})


def asked(name: str, message: str, who: str, request: str, **fields: Any) -> OperatorMessage:
    """A message as it comes from somebody who signs it."""
    payload: dict[str, Any] = {
        "actor": who, "reason": "INC-1", "request_id": request,
        "signed_at": datetime.now(UTC).isoformat(), **fields,
    }  # fmt: skip
    made = OperatorMessage(
        workflow_id=override_id(OverrideId(name)), message=message, payload=payload
    )
    key = KEYS.get(who)
    if key is None:
        return made
    return made.model_copy(
        update={"payload": {**payload, "signature": sign(key, made, DEPLOYMENT)}}
    )


async def propose(
    databases: Databases,
    kind: str,
    scope: dict[str, str],
    *,
    effect: dict[str, Any] | None = None,
    ttl: timedelta = timedelta(minutes=30),
    name: str = "o-1",
    who: str = "ann",
    request_id: str = "r-1",
    **fields: Any,
) -> OrderAnswer[Override]:
    proposal = OverrideProposal(
        OverrideId(name), KINDS[kind], OverrideScope.model_validate(scope), effect or {}, ttl
    )
    content = {"kind": kind, "scope": scope, "effect": effect or {}, "ttl": ttl.total_seconds()}
    message = asked(name, "propose", who, request_id, **content, **fields)
    return await propose_override(databases, proposal, message)


async def change(
    databases: Databases,
    kind: str,
    *,
    name: str = "o-1",
    who: str = "bob",
    request_id: str = "r-2",
    by: timedelta = timedelta(0),
    **fields: Any,
) -> OrderAnswer[Override]:
    made = Change(OverrideId(name), ChangeKind(kind), by)
    message = asked(name, kind, who, request_id, by=by.total_seconds(), **fields)
    return await change_override(databases, made, message)


async def in_force(
    databases: Databases,
    region: RegionId,
    kind: str,
    scope: dict[str, str],
    *,
    name: str = "o-1",
    **fields: Any,
) -> Override:
    """An override that was proposed, approved if it has to be, and that the region obeys."""
    answered = await propose(databases, kind, scope, name=name, **fields)
    if KINDS[kind].needs_approval:
        answered = await change(databases, "approve", name=name)
    await copy_override(databases, region, answered.target)
    return answered.target


async def ended(
    databases: Databases, region: RegionId, name: str = "o-1", request_id: str = "r-9"
) -> CopyResult:
    """Revokes it, and has the region know."""
    answered = await change(databases, "revoke", name=name, request_id=request_id)
    return await copy_override(databases, region, answered.target)


async def outcome(
    world: World, intent: AnyIntent, now: datetime | None = None
) -> RefusalCode | int:
    """The code of the refusal, or the token of the grant; by the database's own clock."""
    engine = world.databases.at_region(EAST, "durable_commit")
    (found,) = await commit_intents(engine, EAST, [intent], now=now)
    return found.refusal.code if isinstance(found, Refused) else found.token

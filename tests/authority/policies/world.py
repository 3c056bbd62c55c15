"""A world with revision 2 published, people who may promote it, and orders in one line."""

from datetime import UTC, datetime
from typing import Any

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durable.authority.fleet.policies import publish_policy
from durable.authority.policies.orders import take_order
from durable.authority.policies.phases import reach_phase
from durable.authority.policies.region_reads import read_region_policy
from durable.authority.policies.regions import enter_region
from durable.model.ids import ActorId, RegionId
from durable.model.operators.rights import OperatorMessage
from durable.model.operators.signature import public_key_of, sign
from durable.model.policy.rollout import PolicyOrder, PolicyOrderKind, PolicyPhase, PolicyRollout
from durable.model.states import PolicyState
from durable.scheduling.policies import first_policy
from durable.signals.names import policy_id
from durable.signals.policies import PublishPolicy
from tests.authority.world import EAST, TEST, World
from tests.conftest import DEPLOYMENT

ALICE, BOB = ActorId("alice"), ActorId("bob")
# Bob has the one that others give him, or none.
KEYS = {ALICE: Ed25519PrivateKey.generate()}


def have_operators(world: World, *operators: ActorId) -> None:
    """People with every right on everything."""
    with psycopg.connect(world.databases.urls[0]) as owner:
        for operator in operators:
            key = KEYS.get(operator)
            owner.execute(
                "INSERT INTO global.operators VALUES (%s, 'person', %s, 'test', now())"
                " ON CONFLICT (operator) DO UPDATE"
                " SET public_key = coalesce(excluded.public_key, operators.public_key)",
                [operator, None if key is None else public_key_of(key)],
            )
            owner.execute(
                "INSERT INTO global.operator_rights VALUES (%s, '*', '', '', 'test', now())"
                " ON CONFLICT DO NOTHING",
                [operator],
            )


async def published(world: World, revision: int = 2, **changes: Any) -> World:
    """Revision 2 as the first one but for these fields, and Alice and Bob to promote it."""
    have_operators(world, ALICE, BOB)
    changed = first_policy().model_copy(update=changes or {"crash_pair_seconds": revision})
    await publish_policy(world.databases, revision, changed.model_dump(mode="json"), TEST)
    return world


def publication(spec: dict[str, Any], actor: ActorId = ALICE) -> PublishPolicy:
    """What a command hands to the authority to publish a policy, without a signature."""
    return PublishPolicy(actor=actor, reason="CHG-7", request_id="CHG-7", spec=spec)


async def order(
    world: World,
    kind: PolicyOrderKind | str,
    revision: int = 2,
    *,
    actor: ActorId = ALICE,
    request: str = "",
    signed: bool = False,
    **fields: Any,
) -> PolicyRollout:
    wanted = PolicyOrderKind(kind)
    given = {
        "reason": f"INC-42 of {actor}",
        "request": request or f"{actor}/{kind}/{revision}/{fields}",
    }
    payload = {
        **fields, "actor": str(actor), "reason": given["reason"], "request_id": given["request"],
        "signed_at": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    asked = OperatorMessage(workflow_id=policy_id(revision), message=wanted, payload={**payload})
    if signed:
        payload["signature"] = sign(KEYS[actor], asked, DEPLOYMENT)
        asked = asked.model_copy(update={"payload": payload})
    taken = await take_order(
        world.databases,
        PolicyOrder(
            revision=revision,
            kind=wanted,
            actor=actor,
            **given,
            **fields,
        ),
        asked=asked,
        default_canary=EAST,
    )
    return taken.target


async def in_force(world: World, region: RegionId = EAST, revision: int = 2) -> PolicyRollout:
    """Promoted, and active in a region."""
    promoted = await order(world, "promote", revision, signed=True)
    widening = await reach_phase(world.databases, promoted, PolicyPhase.WIDENING)
    await enter_region(world.databases, region, widening, PolicyState.ACTIVE)
    return widening


async def everywhere(world: World, revision: int = 2, **changes: Any) -> PolicyRollout:
    """Published, promoted, and in force in every region of this world."""
    await published(world, revision, **changes)
    widening = await in_force(world, revision=revision)
    return await reach_phase(world.databases, widening, PolicyPhase.EVERYWHERE)


async def state(world: World, revision: int, region: RegionId = EAST) -> PolicyState:
    return (await read_region_policy(world.databases, region, revision)).state

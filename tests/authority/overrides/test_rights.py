"""A person whose rights are limited steps in within them; beyond them nothing changes at all."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from durable.authority.overrides.rows import read_override
from durable.authority.quota.quotas import set_quota
from durable.model.ids import OverrideId
from durable.model.operators.signature import public_key_of
from durable.model.overrides.kinds import KINDS
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import OverrideState
from tests.authority.overrides.asking import KEYS, change, give_keys, propose
from tests.authority.world import BILLING, EAST, RISK, TEST, World

# Whose right it is: verb, tenant, region; empty for every one.
LIMITED = {
    "of-risk": ("*", "risk", ""),
    "of-west": ("*", "", "us-west"),
    "of-risk-in-west": ("*", "risk", "us-west"),
    "overrides-only": ("override", "", ""),
    "approves-only": ("approve", "", ""),
}
EFFECTS: Mapping[str, dict[str, Any]] = {
    "priority-boost": {"by": 10},
    "emergency-quota": {"amount": {"cpu": 1, "memory": "1Gi"}},
    "recovery-budget": {"amount": {"cpu": 1, "memory": "1Gi"}, "incident": "inc-1"},
    "break-glass": {"gates": ["cordon"]},
}
Scope = dict[str, str]
EAST_A: Scope = {"region": "us-east", "zone": "a"}
EAST_N1: Scope = {"region": "us-east", "node": "n1"}
MINUTE = timedelta(minutes=1)


def api_of(tenant: str) -> Scope:
    return {"tenant": tenant, "workload": "api"}


@pytest.fixture
async def world(ready_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two tenants with a workload each; whoever is limited signs like everybody else."""
    world = ready_world
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    await set_quota(world.databases, BILLING, hard=Resources.of(1000), actor=TEST)
    async with world.databases.at_global("durable_workload").begin() as connection:
        for tenant in (RISK, BILLING):
            await connection.execute(
                text("""
                    INSERT INTO global.workloads (tenant, workload, generation, spec)
                    VALUES (:tenant, 'api', 1, '{}')
                """),
                {"tenant": tenant},
            )
    async with world.databases.at_global("durable_operators").begin() as connection:
        for name, (verb, tenant, region) in LIMITED.items():
            key = Ed25519PrivateKey.generate()
            monkeypatch.setitem(KEYS, name, key)
            await connection.execute(
                text("""
                    INSERT INTO global.operators
                           (operator, kind, public_key, created_by, created_at)
                    VALUES (:name, 'person', :key, 'test', now())
                """),
                {"name": name, "key": public_key_of(key)},
            )
            await connection.execute(
                text("""
                    INSERT INTO global.operator_rights
                           (operator, verb, tenant, region, granted_by, granted_at)
                    VALUES (:name, :verb, :tenant, :region, 'test', now())
                """),
                {"name": name, "verb": verb, "tenant": tenant, "region": region},
            )
    return world


_WRITTEN = text("""
    SELECT (SELECT coalesce(jsonb_agg(to_jsonb(g) ORDER BY override), '[]')
              FROM global.overrides AS g),
           (SELECT coalesce(jsonb_agg(to_jsonb(r) ORDER BY region, override), '[]')
              FROM regional.overrides AS r),
           (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY chain, sequence), '[]')
              FROM audit.events AS a),
           (SELECT coalesce(jsonb_agg(to_jsonb(v) ORDER BY region), '[]')
              FROM regional.regions AS v)
""")


async def everything(world: World) -> list[Any]:
    """All that an override writes."""
    async with world.databases.at_global("durable_reader").begin() as connection:
        return list((await connection.execute(_WRITTEN)).one())


async def refuse(world: World, call: Any) -> None:
    """It is not allowed, and nothing has changed: the workflow that took it audits the refusal."""
    before = await everything(world)
    with pytest.raises(RefusedError) as caught:
        await call
    assert caught.value.refusal.code is RefusalCode.NOT_ALLOWED
    assert await everything(world) == before


def proposing(world: World, kind: str, scope: Scope, who: str, name: str = "o-1") -> Any:
    effect = EFFECTS.get(kind)
    return propose(world.databases, kind, scope, effect=effect, who=who, name=name)


# ── proposing ───────────────────────────────────────────────────────────────────────────────────

IN_EAST: Scope = {"region": "us-east"}
# Of every kind: what the right on one tenant allows, if the kind can name one, and what not.
OF_A_TENANT: tuple[tuple[str, Scope | None, tuple[Scope, ...]], ...] = (
    ("avoid-zone", {**EAST_A, "tenant": "risk"}, (EAST_A, {**EAST_A, "tenant": "billing"})),
    ("avoid-node", {**EAST_N1, "tenant": "risk"}, (EAST_N1, {**EAST_N1, "tenant": "billing"})),
    ("hold", api_of("risk"), (api_of("billing"),)),
    ("pin", {**EAST_N1, **api_of("risk")}, ({**EAST_N1, **api_of("billing")},)),
    ("priority-boost", {"tenant": "risk"}, ({"tenant": "billing"}, api_of("billing"))),
    ("emergency-quota", {**IN_EAST, "tenant": "risk"}, ({**IN_EAST, "tenant": "billing"},)),
    ("recovery-budget", None, (IN_EAST,)),
    ("policy-freeze", None, ({}, IN_EAST)),
    ("break-glass", {"tenant": "risk"}, ({"tenant": "billing"}, api_of("billing"))),
)


def test_every_kind_is_tried() -> None:
    assert {kind for kind, _, _ in OF_A_TENANT} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "own", "others"), OF_A_TENANT, ids=[kind for kind, _, _ in OF_A_TENANT]
)
async def test_a_tenants_operator_proposes_for_that_tenant_alone(
    world: World, kind: str, own: Scope | None, others: tuple[Scope, ...]
) -> None:
    for scope in others:
        await refuse(world, proposing(world, kind, scope, "of-risk"))
    if own is not None:
        answered: Any = await proposing(world, kind, own, "of-risk")
        assert answered.target.actor == "of-risk"


@pytest.mark.parametrize(
    ("who", "kind", "scope"),
    [
        ("of-west", "avoid-zone", EAST_A),
        ("of-west", "avoid-zone", {**EAST_A, "tenant": "risk"}),
        ("of-west", "emergency-quota", {**IN_EAST, "tenant": "risk"}),
        ("of-west", "recovery-budget", IN_EAST),
        ("of-west", "policy-freeze", IN_EAST),
        # Without a region they are for all of them.
        ("of-west", "policy-freeze", {}),
        ("of-west", "hold", api_of("risk")),
        ("of-west", "break-glass", {"tenant": "risk"}),
        ("of-risk-in-west", "hold", api_of("risk")),
        ("of-risk-in-west", "priority-boost", {"tenant": "risk"}),
        ("of-risk-in-west", "avoid-zone", {**EAST_A, "tenant": "risk"}),
        # Another verb.
        ("overrides-only", "break-glass", {"tenant": "risk"}),
        ("approves-only", "hold", api_of("risk")),
        ("approves-only", "break-glass", {"tenant": "risk"}),
    ],
)
async def test_nobody_proposes_what_their_right_does_not_cover(
    world: World, who: str, kind: str, scope: Scope
) -> None:
    await refuse(world, proposing(world, kind, scope, who))
    assert await read_override(world.databases, OverrideId("o-1")) is None


# ── changing what somebody else proposed ────────────────────────────────────────────────────────

BEYOND_RISK = {
    "another tenant's": ("avoid-zone", {**EAST_A, "tenant": "billing"}),
    "everybody's": ("avoid-zone", EAST_A),
    "another tenant's quota": ("emergency-quota", {**IN_EAST, "tenant": "billing"}),
    "a region's budget": ("recovery-budget", IN_EAST),
    "another tenant's glass": ("break-glass", {"tenant": "billing"}),
}


@pytest.mark.parametrize(("kind", "scope"), BEYOND_RISK.values(), ids=BEYOND_RISK)
@pytest.mark.parametrize("who", ["of-risk", "of-west", "of-risk-in-west"])
async def test_nobody_changes_what_their_right_does_not_cover(
    world: World, kind: str, scope: Scope, who: str
) -> None:
    await proposing(world, kind, scope, "ann")
    for act in ("approve", "reject", "revoke", "extend"):
        await refuse(world, change(world.databases, act, who=who, by=MINUTE))
    if KINDS[kind].needs_approval:
        await change(world.databases, "approve", who="bob")
        for act in ("revoke", "extend"):
            await refuse(world, change(world.databases, act, who=who, by=MINUTE, request_id="r-3"))


async def test_who_may_only_override_approves_nothing(world: World) -> None:
    await proposing(world, "emergency-quota", {**IN_EAST, "tenant": "risk"}, "ann")
    for act in ("approve", "reject"):
        await refuse(world, change(world.databases, act, who="overrides-only"))
    await change(world.databases, "approve", who="approves-only")
    for act in ("revoke", "extend"):
        await refuse(
            world,
            change(world.databases, act, who="approves-only", by=MINUTE, request_id="r-3"),
        )


async def test_an_override_of_break_glass_takes_that_right_to_end_too(world: World) -> None:
    await proposing(world, "break-glass", {"tenant": "risk"}, "ann")
    await change(world.databases, "approve", who="bob")
    for act in ("revoke", "extend"):
        await refuse(
            world,
            change(world.databases, act, who="overrides-only", by=MINUTE, request_id="r-3"),
        )


async def test_within_their_tenant_an_operator_does_all_of_it(world: World) -> None:
    own = {**IN_EAST, "tenant": "risk"}
    await proposing(world, "emergency-quota", own, "ann")
    approved = await change(world.databases, "approve", who="of-risk")
    assert approved.target.approver == "of-risk"
    await change(world.databases, "extend", who="of-risk", by=MINUTE, request_id="r-3")
    revoked = await change(world.databases, "revoke", who="of-risk", request_id="r-4")
    assert revoked.target.state is OverrideState.REVOKED
    await proposing(world, "break-glass", {"tenant": "risk"}, "ann", name="o-2")
    rejected = await change(world.databases, "reject", name="o-2", who="of-risk")
    assert rejected.target.state is OverrideState.REJECTED
    there = {**own, "region": str(EAST)}
    await refuse(world, proposing(world, "emergency-quota", there, "of-risk-in-west", name="o-3"))

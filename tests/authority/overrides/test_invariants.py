"""`durable doctor` finds steps that an override in force forbade, or that an ended one let pass.

The commits are right, so a test forges the one fact that would be wrong: when the step was taken.
"""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.fleet.cordons import write_cordons
from durable.authority.overrides.copies import copy_override
from durable.authority.reads.invariants import violations_everywhere
from durable.model.ids import NodeId, TenantId
from durable.model.overrides.effects import Gate
from durable.model.overrides.override import Override
from tests.authority.overrides.asking import change, ended, give_keys, in_force
from tests.authority.policies.world import everywhere
from tests.authority.world import EAST, TEST, World, node

GATES = "S8: no cordon, avoidance or hold is passed unless an override opens it"
DRAWS = "S3: beside its grant a tenant gets and starts things only on a draw in force"
BUDGETS = "S7: what an override keeps for recovery is drawn on only while it is in force"
WORKLOAD = {"tenant": "risk", "workload": "api"}
IN_EAST = {"region": "us-east"}
AMOUNT = {"amount": {"cpu": 2, "memory": "4Gi"}}
HOUR = timedelta(hours=1)


@pytest.fixture
async def world(ready_world: World) -> World:
    """Node n1 in zone a, n2 in zone b; every gate may be opened."""
    world = ready_world
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    await everywhere(world, overridable_gates=tuple(Gate))
    await world.with_nodes(node("n1"), node("n2", zone="b"))
    async with world.databases.at_global("durable_workload").begin() as connection:
        await connection.execute(
            text("""
                INSERT INTO global.workloads (tenant, workload, generation, spec)
                VALUES ('risk', 'api', 1, '{}')
            """)
        )
    return world


def running(world: World, slot: int = 0, **fields: Any) -> Any:
    return world.running(slot, policy_revision=2, **fields)


async def avoid(world: World, **fields: Any) -> Override:
    zone = {**IN_EAST, "zone": "a"}
    return await in_force(world.databases, EAST, "avoid-zone", zone, **fields)


async def found(world: World) -> list[str]:
    return sorted({one.invariant for one in await violations_everywhere(world.databases)})


def next_version(world: World) -> int:
    """A version between what came before and what comes after."""
    with psycopg.connect(world.databases.urls[0]) as owner:
        query = "UPDATE regional.regions SET version = version + 1 RETURNING version"
        row = owner.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def forge(
    world: World, token: int, version: int, *, at: datetime | None = None, state: str = "held"
) -> None:
    """Says that the step to this state was taken then; nobody but the owner could."""
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute(
            "UPDATE regional.transitions SET version = %s, at = coalesce(%s, at)"
            " WHERE token = %s AND to_state = %s",
            [version, at, token, state],
        )


async def cordon(world: World, reason: str | None = "fan") -> None:
    async with world.databases.at_region(EAST, "durable_operator").begin() as connection:
        await write_cordons(connection, EAST, [NodeId("n1")], reason=reason, actor=TEST)


# What closes n1 to risk/api, by gate, and which steps it is asked at.
ALL_STEPS = ("held", "bound", "starting")
CLOSING: dict[str, tuple[str, dict[str, str], Gate, tuple[str, ...]]] = {
    "avoid-zone": ("avoid-zone", {**IN_EAST, "zone": "a"}, Gate.AVOIDED, ALL_STEPS),
    "avoid-node": ("avoid-node", {**IN_EAST, "node": "n1"}, Gate.AVOIDED, ALL_STEPS),
    "pin to a zone": ("pin", {**IN_EAST, **WORKLOAD, "zone": "b"}, Gate.AVOIDED, ALL_STEPS),
    "pin to a node": ("pin", {**IN_EAST, **WORKLOAD, "node": "n2"}, Gate.AVOIDED, ALL_STEPS),
    "hold": ("hold", WORKLOAD, Gate.HOLD, ("held", "bound")),
}


@pytest.mark.parametrize(("kind", "scope", "gate", "steps"), CLOSING.values(), ids=CLOSING)
async def test_a_step_against_an_override_in_force_is_found(
    world: World, kind: str, scope: dict[str, str], gate: Gate, steps: tuple[str, ...]
) -> None:
    tokens = {state: await running(world, slot) for slot, state in enumerate(ALL_STEPS)}
    await in_force(world.databases, EAST, kind, scope)
    assert await found(world) == []
    while_in_force = next_version(world)
    for state, token in tokens.items():
        forge(world, token, while_in_force, state=state)
    shown = await violations_everywhere(world.databases)
    assert {one.invariant for one in shown} == {GATES}
    assert len(shown) == len(steps)
    for state in steps:
        assert any(state in one.row and gate.value in one.row for one in shown)


@pytest.mark.parametrize(
    ("scope", "is_wrong"),
    [
        ({**IN_EAST, "zone": "a", "tenant": "risk"}, True),
        ({**IN_EAST, "zone": "a", **WORKLOAD}, True),
        ({**IN_EAST, "zone": "b"}, False),
        ({**IN_EAST, "zone": "a", "tenant": "billing"}, False),
    ],
)
async def test_only_those_whom_an_override_means_have_to_obey_it(
    world: World, scope: dict[str, str], is_wrong: bool
) -> None:
    await world.with_tenant(TenantId(scope.get("tenant", "risk")))
    token = await running(world)
    await in_force(world.databases, EAST, "avoid-zone", scope)
    forge(world, token, next_version(world))
    assert await found(world) == ([GATES] if is_wrong else [])


async def test_a_step_before_or_after_an_override_is_none_against_it(world: World) -> None:
    before, after, late = [await running(world, slot) for slot in range(3)]
    early = next_version(world)
    override = await avoid(world)
    while_in_force = next_version(world)
    await ended(world.databases, EAST)
    forge(world, before, early)
    forge(world, after, next_version(world))
    # By the clock that its commit went by, its time was over.
    forge(world, late, while_in_force, at=override.expires_at)
    assert await found(world) == []
    forge(world, late, while_in_force, at=override.expires_at - timedelta(microseconds=1))
    assert await found(world) == [GATES], "although it has ended since"


async def test_a_step_in_the_gap_before_an_extension_came_is_none_against_it(world: World) -> None:
    """The region's clock had ended it when a longer copy arrived."""
    in_the_gap, after = await running(world, 0), await running(world, 1)
    override = await avoid(world)
    short = next_version(world)
    longer = (await change(world.databases, "extend", by=HOUR, request_id="r-3")).target
    await copy_override(world.databases, EAST, longer)
    forge(world, in_the_gap, short, at=override.expires_at)
    assert await found(world) == []
    forge(world, after, next_version(world), at=override.expires_at)
    assert await found(world) == [GATES]


GLASS: dict[str, tuple[dict[str, str], list[Gate], bool]] = {
    "this gate": ({"tenant": "risk"}, [Gate.AVOIDED], True),
    "of this workload": (WORKLOAD, [Gate.CORDON, Gate.AVOIDED], True),
    "another gate": ({"tenant": "risk"}, [Gate.CORDON, Gate.HOLD], False),
    "another tenant": ({"tenant": "billing"}, [Gate.AVOIDED], False),
}


@pytest.mark.parametrize(("scope", "gates", "is_open"), GLASS.values(), ids=GLASS)
async def test_what_an_override_in_force_let_pass_is_no_fault(
    world: World, scope: dict[str, str], gates: list[Gate], is_open: bool
) -> None:
    await world.with_tenant(TenantId(scope["tenant"]))
    token = await running(world)
    await avoid(world)
    effect = {"gates": gates}
    await in_force(world.databases, EAST, "break-glass", scope, effect=effect, name="glass")
    forge(world, token, next_version(world))
    assert await found(world) == ([] if is_open else [GATES])
    await ended(world.databases, EAST, "glass")
    forge(world, token, next_version(world))
    assert await found(world) == [GATES], "it is over"


async def test_a_cordon_is_passed_only_while_an_override_opens_it(world: World) -> None:
    token = await running(world)
    await cordon(world)
    assert await found(world) == [], "it came first"
    effect = {"gates": ["cordon"]}
    scope = {"tenant": "risk"}
    glass = await in_force(world.databases, EAST, "break-glass", scope, effect=effect)
    opened = next_version(world)
    forge(world, token, opened)
    assert await found(world) == []
    forge(world, token, opened, at=glass.expires_at)
    assert await found(world) == [GATES]
    await cordon(world, None)
    forge(world, token, next_version(world))
    assert await found(world) == []


# ── what is drawn on ────────────────────────────────────────────────────────────────────────────


async def fill_grant(world: World) -> None:
    async with world.databases.at_region(EAST, "durable_quota").begin() as connection:
        await connection.execute(
            text("UPDATE regional.grants SET owed_cpu_millis = granted_cpu_millis")
        )


@pytest.mark.parametrize("state", ALL_STEPS)
async def test_a_step_on_a_draw_that_is_over_is_found(world: World, state: str) -> None:
    await fill_grant(world)
    scope = {**IN_EAST, "tenant": "risk"}
    draw = await in_force(world.databases, EAST, "emergency-quota", scope, effect=AMOUNT)
    token = await running(world)
    while_in_force = next_version(world)
    forge(world, token, while_in_force, at=draw.expires_at, state=state)
    assert await found(world) == [DRAWS]
    forge(world, token, while_in_force, at=world.now, state=state)
    assert await found(world) == []
    await ended(world.databases, EAST)
    assert await found(world) == [], "what runs on it goes on"
    forge(world, token, next_version(world), state=state)
    assert await found(world) == [DRAWS], "it was revoked, long before its time"


async def test_a_draw_of_another_tenant_is_no_draw(world: World) -> None:
    await fill_grant(world)
    scope = {**IN_EAST, "tenant": "risk"}
    await in_force(world.databases, EAST, "emergency-quota", scope, effect=AMOUNT)
    await running(world)
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("""UPDATE regional.overrides SET scope = scope || '{"tenant": "billing"}'""")
    assert await found(world) == [DRAWS]


async def test_a_claim_on_a_recovery_budget_that_is_over_is_found(world: World) -> None:
    effect = {**AMOUNT, "incident": "inc-1"}
    kept = await in_force(world.databases, EAST, "recovery-budget", IN_EAST, effect=effect)
    await world.with_moved("inc-1")
    token = await running(world, draw={"budget": "override/o-1", "incident": "inc-1"})
    while_in_force = next_version(world)
    forge(world, token, while_in_force, at=kept.expires_at)
    assert await found(world) == [BUDGETS]
    forge(world, token, while_in_force, at=world.now)
    await ended(world.databases, EAST)
    assert await found(world) == []
    forge(world, token, next_version(world))
    assert await found(world) == [BUDGETS]

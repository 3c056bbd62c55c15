"""With every gate open to it, work passes gates and nothing else: no safety invariant is a gate."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.fleet.cordons import write_cordons
from durable.authority.fleet.devices import report_unhealthy_devices
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.recovery.fence import fence, reopen
from durable.model.ids import DeviceId, NodeId, RegionId, ZoneId
from durable.model.overrides.effects import Gate
from durable.model.placement.intents import AnyIntent, Requirements
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from tests.authority.overrides.asking import ended, give_keys, in_force, outcome
from tests.authority.policies.world import everywhere
from tests.authority.world import BILLING, EAST, TEST, World, labels, node

WORKLOAD = {"tenant": "risk", "workload": "api"}
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def world(ready_world: World) -> World:
    """Every node is cordoned, its zone is avoided, the workload is held: and all gates are open.

    n1 is shared, n2 is billing's alone, and one of n3's two devices is not healthy.
    """
    world = ready_world
    world.now = datetime.now().astimezone()
    databases = world.databases
    await give_keys(databases)
    await everywhere(world, overridable_gates=tuple(Gate))
    nodes = (node("n1", gpus=1), node("n2", dedicated_to=BILLING), node("n3", gpus=2))
    await world.with_nodes(*nodes)
    await report_unhealthy_devices(databases, EAST, {NodeId("n3"): [DeviceId("gpu-0")]})
    async with databases.at_global("durable_workload").begin() as connection:
        await connection.execute(
            text("""
                INSERT INTO global.workloads (tenant, workload, generation, spec)
                VALUES ('risk', 'api', 1, '{}')
            """)
        )
    async with databases.at_region(EAST, "durable_operator").begin() as connection:
        names = [one.id for one in nodes]
        await write_cordons(connection, EAST, names, reason="fan", actor=TEST)
    zone = {"region": "us-east", "zone": "a"}
    await in_force(databases, EAST, "avoid-zone", zone, name="zone")
    await in_force(databases, EAST, "hold", WORKLOAD, name="hold")
    gates = {"gates": list(Gate)}
    await in_force(databases, EAST, "break-glass", {"tenant": "risk"}, effect=gates, name="glass")
    return world


async def reserved(world: World, slot: int, now: datetime | None = None, **fields: Any) -> int:
    token = await outcome(world, reserve(world, slot, **fields), now)
    assert isinstance(token, int), token
    return token


async def bound(world: World, slot: int) -> int:
    token = await reserved(world, slot)
    assert await outcome(world, world.bind(token, slot)) == token
    return token


def reserve(world: World, slot: int = 1, **fields: Any) -> AnyIntent:
    fields.setdefault("policy_revision", 2)
    return world.reserve(slot, **fields)


# ── what speaks against it ──────────────────────────────────────────────────────────────────────


async def nothing(_: World) -> None:
    """It is as the fixture made it."""


async def use_up_the_grant(world: World) -> None:
    async with world.databases.at_region(EAST, "durable_quota").begin() as connection:
        await connection.execute(
            text("UPDATE regional.grants SET owed_cpu_millis = granted_cpu_millis")
        )


async def keep_all_for_recovery(world: World) -> None:
    # The fixture's worlds have a clock of their own; the nodes have 24 cpu in all.
    await world.with_headroom(Resources.of(24_000))


async def fence_region(world: World) -> None:
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")


async def fence_and_reopen(world: World) -> None:
    await fence_region(world)
    await reopen(world.databases, EAST, expected_epoch=2, actor=TEST, reason="test")


async def lapse_region_lease(world: World) -> None:
    async with world.databases.at_region(EAST, "durable_region").begin() as connection:
        await connection.execute(
            text("UPDATE regional.regions SET lease_expires_at = clock_timestamp()")
        )


async def lapse_node_lease(world: World) -> None:
    async with world.databases.at_region(EAST, "durable_agent").begin() as connection:
        await connection.execute(
            text("UPDATE regional.node_leases SET expires_at = clock_timestamp()")
        )


async def lose_node(world: World) -> None:
    async with world.databases.at_region(EAST, "durable_node_life").begin() as connection:
        await connection.execute(text("UPDATE regional.regions SET version = version + 1"))
        await connection.execute(
            text("""
                UPDATE regional.nodes AS n SET state = 'unknown', changed_version = r.version
                  FROM regional.regions AS r WHERE r.region = n.region
            """)
        )


@dataclass(frozen=True)
class Case:
    """What is done to the world, the reservation that is asked for then, and the answer."""

    refused: RefusalCode
    arrange: Callable[[World], Awaitable[object]] = nothing
    intent: Callable[[World], AnyIntent] = reserve


def asking(**fields: Any) -> Callable[[World], AnyIntent]:
    return lambda world: reserve(world, **fields)


CASES = {
    "capacity": Case(RefusalCode.NODE_FULL, intent=asking(resources=Resources.of(8_000))),
    "gpus": Case(RefusalCode.NODE_FULL, intent=asking(resources=Resources.of(0, 0, 2))),
    "a device that is not healthy": Case(
        RefusalCode.DEVICES_TAKEN, intent=asking(node="n3", resources=Resources.of(0, 0, 2))
    ),
    "the quota's grant": Case(RefusalCode.GRANT_EXHAUSTED, use_up_the_grant),
    "recovery headroom": Case(RefusalCode.HEADROOM_RESERVED, keep_all_for_recovery),
    "no recovery budget": Case(
        RefusalCode.UNKNOWN_BUDGET, intent=asking(draw={"budget": "b", "incident": "i"})
    ),
    "residency in a region": Case(
        RefusalCode.RESIDENCY,
        intent=asking(requirements=Requirements(regions=(RegionId("us-west"),))),
    ),
    "residency in a zone": Case(
        RefusalCode.RESIDENCY, intent=asking(requirements=Requirements(zones=(ZoneId("b"),)))
    ),
    "another tenant's node": Case(RefusalCode.TENANCY, intent=asking(node="n2")),
    "a shared node for dedicated work": Case(
        RefusalCode.TENANCY, intent=asking(requirements=Requirements(dedicated=True))
    ),
    "a required label": Case(
        RefusalCode.REQUIRED_LABELS,
        intent=asking(requirements=Requirements(labels=labels(disk="nvme"))),
    ),
    "a slot that is taken": Case(RefusalCode.SLOT_TAKEN, intent=asking(slot=0, attempt=2)),
    "a slot of another region": Case(RefusalCode.SLOT_NOT_OWNED, intent=asking(slot=99)),
    "a policy that was not published": Case(
        RefusalCode.UNKNOWN_POLICY, intent=asking(policy_revision=7)
    ),
    "a superseded policy": Case(
        RefusalCode.POLICY_WITHDRAWN, intent=asking(policy_revision=1)
    ),
    "a fenced region": Case(RefusalCode.REGION_FENCED, fence_region, asking(epoch=2)),
    "the epoch before a fence": Case(RefusalCode.FENCED_WRITER, fence_region),
    "a node of the epoch before": Case(RefusalCode.NODE_STALE, fence_and_reopen, asking(epoch=2)),
    "a lapsed region lease": Case(RefusalCode.REGION_LEASE_LAPSED, lapse_region_lease),
    "a lapsed node lease": Case(RefusalCode.NODE_STALE, lapse_node_lease),
    "a silent node": Case(RefusalCode.NODE_NOT_READY, lose_node),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_no_open_gate_lets_a_reservation_past_an_invariant(world: World, case: Case) -> None:
    # Past the cordon, the avoided zone and the hold: the gates are open.
    await reserved(world, 0)
    await case.arrange(world)
    assert await outcome(world, case.intent(world)) is case.refused
    assert await violations_everywhere(world.databases) == []


# Asked again at every step until the work is started.
LATER = {
    "a fenced region": (RefusalCode.REGION_FENCED, fence_region, 2),
    "the epoch before a fence": (RefusalCode.FENCED_WRITER, fence_region, 1),
    "a node of the epoch before": (RefusalCode.NODE_STALE, fence_and_reopen, 2),
    "a lapsed region lease": (RefusalCode.REGION_LEASE_LAPSED, lapse_region_lease, 1),
    "a lapsed node lease": (RefusalCode.NODE_STALE, lapse_node_lease, 1),
    "a silent node": (RefusalCode.NODE_NOT_READY, lose_node, 1),
}


@pytest.mark.parametrize(("refused", "arrange", "epoch"), LATER.values(), ids=LATER)
async def test_no_open_gate_lets_a_bind_or_a_start_past_an_invariant(
    world: World,
    refused: RefusalCode,
    arrange: Callable[[World], Awaitable[object]],
    epoch: int,
) -> None:
    to_bind, to_start = await reserved(world, 0), await bound(world, 1)
    await arrange(world)
    assert await outcome(world, world.bind(to_bind, 0, epoch=epoch)) is refused
    assert await outcome(world, world.start(to_start, 1, epoch=epoch)) is refused
    assert await violations_everywhere(world.databases) == []


async def test_no_open_gate_binds_a_reservation_that_has_expired(world: World) -> None:
    past = datetime.now().astimezone() - MINUTE
    token = await reserved(world, 0, past, lease_ttl_seconds=30)
    assert await outcome(world, world.bind(token, 0)) is RefusalCode.LEASE_EXPIRED
    assert await violations_everywhere(world.databases) == []


async def test_no_open_gate_starts_anything_on_an_emergency_quota_that_is_over(
    world: World,
) -> None:
    await use_up_the_grant(world)
    draw = {"region": "us-east", "tenant": "risk"}
    two = {"amount": {"cpu": 2, "memory": "4Gi"}}
    await in_force(world.databases, EAST, "emergency-quota", draw, effect=two, name="draw")
    to_bind, to_start = await reserved(world, 0), await bound(world, 1)
    await ended(world.databases, EAST, "draw")
    assert await outcome(world, world.bind(to_bind, 0)) is RefusalCode.DRAW_ENDED
    assert await outcome(world, world.start(to_start, 1)) is RefusalCode.DRAW_ENDED
    assert await violations_everywhere(world.databases) == []

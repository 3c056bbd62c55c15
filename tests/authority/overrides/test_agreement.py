"""A decision and the commit agree on what a tenant may place: with a grant, a draw, or neither."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from durable.authority.cache.cached_region import CachedRegion
from durable.authority.cache.region_read import read_whole
from durable.authority.commit.regional_commit import commit_intents
from durable.authority.quota.quotas import set_quota
from durable.authority.reads.invariants import violations_everywhere
from durable.model.placement.intents import Refused
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.decide import decide
from durable.scheduling.policies import first_policy
from durable.scheduling.request import PlacementRequest, Proposal
from durable.scheduling.work_overrides import override_fields
from tests.authority.overrides.asking import ended, give_keys, in_force
from tests.authority.world import API, BILLING, EAST, TEST, World, node

SLOTS = 4
ONE = Resources.of(1000, 1024)
# What the commit answers to those whom the decision lets wait, for this reason.
REFUSED_AS = {
    PendingCode.NO_GRANT: RefusalCode.UNKNOWN_TENANT,
    PendingCode.GRANT: RefusalCode.GRANT_EXHAUSTED,
}


@dataclass(frozen=True)
class Case:
    """For how many replicas billing has a grant, draws, and a draw that ended while it was used."""

    grant: int | None
    draws: tuple[int, ...] = ()
    overdrawn: int = 0
    placed: int = 0


CASES = {
    "neither grant nor draw": Case(None),
    "a draw and no grant": Case(None, (2,), placed=2),
    "draws and no grant": Case(None, (1, 2), placed=3),
    "a draw for all and no grant": Case(None, (4,), placed=4),
    "no grant, and a draw that is over": Case(None, overdrawn=1),
    "no grant, a draw, and one that is over": Case(None, (1,), overdrawn=1, placed=1),
    "a grant and no draw": Case(2, placed=2),
    "a grant and a draw": Case(1, (2,), placed=3),
    "a grant, and a draw that is over": Case(3, overdrawn=1, placed=2),
    "a grant for all": Case(4, placed=4),
}


@pytest.fixture
async def world(ready_world: World) -> World:
    world = ready_world
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    await set_quota(world.databases, BILLING, hard=ONE * 100, actor=TEST)
    await world.with_slots(2 * SLOTS, tenant=BILLING)
    await world.with_nodes(node("n1", capacity={"cpu_millis": 64_000, "memory_mib": 65_536}))
    return world


async def draw(world: World, name: str, replicas: int) -> None:
    """An emergency quota of billing, in force."""
    await in_force(
        world.databases,
        EAST,
        "emergency-quota",
        {"region": str(EAST), "tenant": str(BILLING)},
        effect={"amount": {"cpu": replicas, "memory": f"{replicas}Gi"}},
        name=name,
    )


async def arrange(world: World, case: Case) -> None:
    if case.overdrawn:
        await draw(world, "over", case.overdrawn)
        for slot in range(SLOTS, SLOTS + case.overdrawn):
            assert await commit(world, slot) is None
        await ended(world.databases, EAST, "over")
    if case.grant is not None:
        await world.with_tenant(BILLING, grant=ONE * case.grant)
    for number, replicas in enumerate(case.draws):
        await draw(world, f"draw-{number}", replicas)


async def decided(world: World) -> Proposal:
    """As a worker decides: by the region as it reads it."""
    cached = CachedRegion(EAST)
    cached.merge(await read_whole(world.databases, EAST), sent_at=time.monotonic(), is_whole=True)
    snapshot = cached.snapshot()
    fields: dict[str, Any] = override_fields(snapshot, BILLING, API)
    request = PlacementRequest(
        region=EAST, tenant=BILLING, workload=API, generation=1, attempt=1,
        slots=tuple(range(SLOTS)), spec=WorkloadSpec(replicas=SLOTS, resources=ONE), **fields,
    )  # fmt: skip
    return decide(snapshot, request, first_policy(), policy_revision=1)


async def commit(world: World, slot: int) -> RefusalCode | None:
    engine = world.databases.at_region(EAST, "durable_commit")
    intent = world.reserve(slot, tenant=BILLING, resources=ONE)
    (found,) = await commit_intents(engine, EAST, [intent])
    return found.refusal.code if isinstance(found, Refused) else None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_decision_proposes_exactly_what_the_commit_grants(world: World, case: Case) -> None:
    await arrange(world, case)
    proposal = await decided(world)
    placed = [one.slot for one in proposal.assignments]
    assert len(placed) == case.placed
    assert [await commit(world, slot) for slot in placed] == [None] * case.placed
    if proposal.pending is None:
        assert case.placed == SLOTS
    else:
        waits = next(slot for slot in range(SLOTS) if slot not in placed)
        assert await commit(world, waits) is REFUSED_AS[proposal.pending.code]
    assert await violations_everywhere(world.databases) == []

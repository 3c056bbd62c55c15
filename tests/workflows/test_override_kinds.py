"""Each kind of override through a real Temporal: its effect on placements, its end, its audit.

Each ends in both ways, here or in test_override*.py: it expires by the database's clock, and
somebody revokes it. `Pair` checks after every end that the audit names who took each step.
"""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import text

from durable.activities import reserve
from durable.authority.cache.region_read import read_whole
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.overrides.reads import drawn_on, read_effects
from durable.authority.overrides.rows import read_overrides
from durable.authority.queue.requests import read_waiting
from durable.authority.quota.budgets import read_budget
from durable.authority.reads.claims import read_claims
from durable.controllers import reconciler, wakeups
from durable.model.fleet.drain import NodesTarget
from durable.model.fleet.manifest import Fleet
from durable.model.ids import ActorId, BudgetId
from durable.model.overrides.kinds import KINDS
from durable.model.overrides.override import Override
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.pending_reasons import PendingCode
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import override_id
from tests.workflows.override_life import ENDS, End, Pair
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.test_policy import WHO, came_to, publish, ready
from tests.workflows.test_queue import cpus, one_node
from tests.workflows.test_queue import waits as waits_for_room
from tests.workflows.test_recovery import CRITICAL, LOST, declare, whole
from tests.workflows.test_recovery import serving as serving_two_regions
from tests.workflows.test_rollout import rolled_out, version
from tests.workflows.test_self_healing import runs_again

API = {"tenant": "risk", "workload": "api"}
ONE_PER_NODE: dict[str, Any] = {"spread": {"max_per_node": 1}}


def zones(**nodes: int) -> Fleet:
    """A region with so many nodes in each zone, and a tenant that may use all of it."""
    fleet = small_fleet("east", nodes=sum(nodes.values())).model_dump(mode="json")
    (region,) = fleet["regions"]
    (pool,) = region["pools"]
    region["zones"] = list(nodes)
    region["pools"] = [
        {**pool, "name": zone, "zone": zone, "count": count} for zone, count in nodes.items()
    ]
    return Fleet.model_validate(fleet)


async def begin(
    plane: Plane, keys: Path, fleet: Fleet, *, cordoned: str | None = None, **spec: Any
) -> Pair:
    """Workers, an agent, two people, and one replica that serves, in no cordoned zone."""
    await plane.load(fleet)
    await (await plane.host()).work()
    if cordoned is not None:
        zone = NodesTarget.model_validate({"region": "east", "kind": "zone", "name": cordoned})
        await cordon_nodes(plane.databases, zone, reason="upkeep", actor=ActorId("test"))
    await plane.durable.apply(manifest(replicas=1, **spec))
    await plane.durable.wait("risk", "api")
    return await Pair.make(plane, keys)


async def running(plane: Plane) -> dict[int, RegionalClaim]:
    """The replicas of the workload by slot, wherever they are on their way."""
    return {slot: one for (name, slot), one in (await plane.bindings()).items() if name == "api"}


async def nodes_in_use(plane: Plane) -> set[str]:
    return {str(one.node) for one in (await running(plane)).values()}


async def scale(plane: Plane, replicas: int) -> None:
    """Until so many serve."""
    await plane.durable.scale("risk", "api", replicas)

    async def is_so() -> bool:
        return len(await running(plane)) == replicas

    await until(is_so, f"{replicas} replicas")
    await plane.durable.wait("risk", "api")


async def waits(
    plane: Plane,
    code: PendingCode,
    *,
    serving: int,
    generation: int = 1,
    because_of: Override | None = None,
) -> None:
    """So many replicas serve; the others wait for this reason, which names the override."""

    async def is_so() -> bool:
        pending = (await plane.placement(generation=generation)).pending
        found = [one for one in (await running(plane)).values() if one.state == "serving"]
        if pending is None or pending.code is not code or len(found) != serving:
            return False
        return because_of is None or str(because_of.id) in pending.sentence

    await until(is_so, f"{serving} serve, and the rest waits: {code}")


# ── where work may go ───────────────────────────────────────────────────────────────────────────

A1, A2, B1, B2 = "east-a-0000", "east-a-0001", "east-b-0000", "east-b-0001"
ZONE, NODE = {"region": "east", "zone": "a"}, {"region": "east", "node": A1}
# What each means, the nodes that it leaves, why work then waits, and how it ends.
KEPT_OFF: list[tuple[str, dict[str, str], set[str], PendingCode, End]] = [
    ("avoid-zone", ZONE, {B1}, PendingCode.SPREAD, Pair.revoke),
    ("avoid-node", NODE, {A2, B1}, PendingCode.SPREAD, Pair.revoke),
    ("pin", {**API, **ZONE}, {A1, A2}, PendingCode.SPREAD, Pair.revoke),
    ("pin", {**API, **NODE}, {A1}, PendingCode.SPREAD, Pair.let_expire),
    ("hold", API, set(), PendingCode.HELD, Pair.let_expire),
]


async def test_work_goes_only_where_an_override_leaves_it_until_that_ends(
    plane: Plane, tmp_path: Path
) -> None:
    pair = await begin(plane, tmp_path, zones(a=2, b=1), **ONE_PER_NODE)
    for number, (kind, scope, allowed, code, end) in enumerate(KEPT_OFF):
        await scale(plane, 0)
        given = await pair.give(kind, scope, id=f"o-{number}")
        await plane.durable.scale("risk", "api", 3)
        await waits(plane, code, serving=len(allowed), because_of=given)
        assert await nodes_in_use(plane) == allowed, kind
        await end(pair, given)
        await plane.durable.wait("risk", "api")
        assert await nodes_in_use(plane) == {A1, A2, B1}
        assert await placed_under(plane, given) == allowed, kind
    await plane.no_invariant_is_broken()


async def placed_under(plane: Plane, override: Override) -> set[str]:
    """The nodes of what was reserved while it was in force, by the region's clock."""
    ended = await plane.durable.overrides.read(override.id)
    assert ended.activated_at is not None
    assert ended.ended_at is not None
    over_at = min(ended.expires_at, ended.ended_at)
    claims = await read_claims(plane.databases, EAST, and_ended=True)
    return {str(one.node) for one in claims if ended.activated_at <= one.reserved_at < over_at}


async def test_a_pin_lasts_across_generations_and_the_termination_of_a_placement(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 0.2)
    spec: dict[str, Any] = {**ONE_PER_NODE, "rollout": {"max_surge": 0, "max_unavailable": 1}}
    pair = await begin(plane, tmp_path, zones(a=2, b=2), **spec)
    there = {B1, B2}
    pin = {**API, "region": "east", "zone": "b"}
    given = await pair.give("pin", pin, id="pinned", effect={"move": True})
    await scale(plane, 2)

    async def is_there() -> bool:
        return await nodes_in_use(plane) == there

    await until(is_there, "what ran elsewhere was moved")
    await plane.durable.apply(version(2, replicas=2, **spec))
    await rolled_out(plane, 2)
    assert await nodes_in_use(plane) == there
    handle = plane.handle(generation=2)
    run = (await handle.describe()).run_id
    await handle.terminate("by mistake")
    await runs_again(handle, run)
    await plane.durable.scale("risk", "api", 3)
    await waits(plane, PendingCode.SPREAD, serving=2, generation=2, because_of=given)
    assert await nodes_in_use(plane) == there
    await pair.let_expire(given)
    await plane.durable.wait("risk", "api")
    assert await placed_under(plane, given) == there
    assert await nodes_in_use(plane) > there, "and then it went elsewhere"
    await plane.no_invariant_is_broken()


# ── the order of the queue ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("end", "first"),
    [(None, "low"), *((end, "high") for end in ENDS)],
    ids=["in force", "expired", "revoked"],
)
async def test_a_boost_leads_the_queue_while_it_is_in_force(
    plane: Plane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: End | None,
    first: str,
) -> None:
    # Only a wakeup brings back what waits, and those come in the order of the queue.
    monkeypatch.setattr(reserve, "retry_after_seconds", Mock(return_value=3_600.0))
    monkeypatch.setattr(wakeups, "VAIN_FIRST_SECONDS", 0.0)
    pair = await begin(plane, tmp_path, one_node(), resources=cpus(4))
    for name, priority in (("high", 500), ("low", 100)):
        await plane.durable.apply(manifest(name, replicas=1, resources=cpus(4), priority=priority))
        await until(lambda name=name: waits_for_room(plane, name), f"{name} waits")
    low = {"tenant": "risk", "workload": "low"}
    given = await pair.give("priority-boost", low, id="boost", effect={"by": 600})
    if end is not None:
        await end(pair, given)
    await have_decided_again(plane)

    await plane.durable.delete("risk", "api")
    await plane.durable.wait("risk", first)
    assert {name for name, _ in await plane.bindings()} == {first}
    await plane.no_invariant_is_broken()


async def have_decided_again(plane: Plane) -> None:
    """An override that comes or ends wakes all who wait, as room would; here there is none yet."""
    version = (await read_whole(plane.databases, EAST)).version

    async def is_so() -> bool:
        queue = await read_waiting(plane.databases, EAST)
        return all(one.waits.decided_version >= version for one in queue)

    await until(is_so, "whoever waits knows of it")


# ── what may be used ────────────────────────────────────────────────────────────────────────────


def narrow_quota(cores: int) -> Fleet:
    """Three nodes of four cores, and a tenant that may use so many of them."""
    most = {"cpu": cores, "memory": "48Gi"}
    tenant = {"id": "risk", "hard": most, "grants": {"east": most}}
    fleet = small_fleet("east").model_dump(mode="json")
    return Fleet.model_validate({**fleet, "tenants": [tenant]})


@pytest.mark.parametrize("end", ENDS, ids=["expires", "is revoked"])
async def test_an_emergency_quota_serves_what_waits_and_is_shown_until_that_has_ended(
    plane: Plane, tmp_path: Path, end: End
) -> None:
    pair = await begin(plane, tmp_path, narrow_quota(3), resources=cpus(1))
    await plane.durable.apply(manifest("other", replicas=2, resources=cpus(1)))
    await plane.durable.wait("risk", "other")
    await plane.durable.scale("risk", "api", 2)
    await waits(plane, PendingCode.GRANT, serving=1)
    scope, effect = {"region": "east", "tenant": "risk"}, {"amount": {"cpu": 1, "memory": "1Gi"}}
    given = await pair.give("emergency-quota", scope, id="more", effect=effect)
    await plane.durable.wait("risk", "api")
    before = {slot: one.token for slot, one in (await running(plane)).items()}

    await end(pair, given)
    await plane.durable.scale("risk", "api", 3)
    await waits(plane, PendingCode.GRANT, serving=2)
    now = {slot: one.token for slot, one in (await running(plane)).items()}
    assert now == before, "what runs goes on, and nothing new began"
    assert await over_quota(plane) == {"more": 1_000}
    code, shown = await pair.ann.run(plane, "get", "overrides", "--json")
    assert code == 0
    assert "over quota until that has ended" in shown

    await scale(plane, 1)
    assert await over_quota(plane) == {}, "it ended with its use"
    await plane.durable.scale("risk", "api", 2)
    await waits(plane, PendingCode.GRANT, serving=1)
    await plane.no_invariant_is_broken()


async def over_quota(plane: Plane) -> dict[str, int]:
    """By override, the thousandths of a core that run on what it no longer gives."""
    effects = await read_effects(plane.databases, EAST)
    listed = await read_overrides(plane.databases, also=drawn_on([effects]))
    used = {str(one.id): effects[one.id].used for one in listed if one.has_ended}
    return {name: amounts[0] for name, amounts in used.items() if amounts is not None}


async def test_a_recovery_budget_keeps_its_part_free_of_other_work_until_it_ends(
    plane: Plane, tmp_path: Path
) -> None:
    pair = await begin(plane, tmp_path, small_fleet("east", nodes=1, cpu=2), resources=cpus(1))
    # Another region that may be lost one day; nothing runs there.
    async with plane.databases.at_global("durable_operator").begin() as connection:
        await connection.execute(text("INSERT INTO global.regions (region) VALUES ('west')"))
    effect = {"amount": {"cpu": 1, "memory": "1Gi"}, "incident": "west-2"}
    for number, end in enumerate(ENDS):
        given = await pair.give(
            "recovery-budget", {"region": "east"}, id=f"o-{number}", effect=effect
        )
        assert await incident_of(plane, given) == "west-2"
        await plane.durable.scale("risk", "api", 2)
        await waits(plane, PendingCode.HEADROOM, serving=1)
        await end(pair, given)
        assert await incident_of(plane, given) is None
        await plane.durable.wait("risk", "api")
        await scale(plane, 1)
    await plane.no_invariant_is_broken()


async def incident_of(plane: Plane, override: Override) -> str | None:
    """For which its budget is open."""
    region = override.scope.region or EAST
    budget = await read_budget(plane.databases, region, BudgetId(override_id(override.id)))
    assert budget is not None
    return budget.incident


async def test_a_recovery_draws_on_the_budget_that_was_given_for_its_incident(
    plane: Plane, tmp_path: Path
) -> None:
    critical = manifest(replicas=4, **CRITICAL)
    async with serving_two_regions(plane, critical, nodes=1, cpu=2) as agents:
        pair = await Pair.make(plane, tmp_path)
        # All that west has left.
        effect = {"amount": {"cpu": 1, "memory": "1Gi"}, "incident": LOST.incident}
        given = await pair.give("recovery-budget", {"region": "west"}, id="kept", effect=effect)
        await agents.aclose()
        await declare(plane)
        await whole(plane)
        budget = await read_budget(plane.databases, WEST, BudgetId("override/kept"))
        assert budget is not None
        assert (budget.incident, budget.used.cpu_millis) == (LOST.incident, 1_000)
        await pair.revoke(given)
        assert await incident_of(plane, given) is None
        assert len(await plane.bindings(WEST)) == 4, "what was moved goes on"
        await plane.no_invariant_is_broken()


# ── what is skipped, and what is refused ────────────────────────────────────────────────────────


async def test_a_gate_is_closed_again_when_break_glass_ends(plane: Plane, tmp_path: Path) -> None:
    pair = await begin(plane, tmp_path, zones(a=1, b=3), cordoned="b", **ONE_PER_NODE)
    for number, end in enumerate(ENDS):
        await plane.durable.scale("risk", "api", number + 2)
        await waits(plane, PendingCode.SPREAD, serving=number + 1)
        given = await pair.give("break-glass", API, id=f"o-{number}", effect={"gates": ["cordon"]})
        await plane.durable.wait("risk", "api")
        await end(pair, given)
        assert len(await plane.bindings()) == number + 2, "what was placed under it goes on"
    await plane.durable.scale("risk", "api", 4)
    await waits(plane, PendingCode.SPREAD, serving=3)
    await plane.no_invariant_is_broken()


async def test_a_frozen_policy_is_promoted_when_the_freeze_ends(
    plane: Plane, tmp_path: Path
) -> None:
    await ready(plane)
    pair = await Pair.make(plane, tmp_path)
    for revision, end in enumerate(ENDS, start=2):
        await publish(plane, weights={"packing": float(revision)})
        given = await pair.give("policy-freeze", {"region": "east"}, id=f"o-{revision}")
        with pytest.raises(RefusedError) as refused:
            await plane.durable.policies.promote(revision, request_id=f"no-{revision}", **WHO)
        assert refused.value.refusal.code is RefusalCode.POLICY_FROZEN
        await end(pair, given)
        await plane.durable.policies.promote(revision, request_id=f"yes-{revision}", **WHO)
        await came_to(plane, PolicyPhase.EVERYWHERE, revision)
    await plane.no_invariant_is_broken()


def test_every_kind_is_tested_here() -> None:
    here = {kind for kind in KINDS if f'"{kind}"' in Path(__file__).read_text()}
    assert here == set(KINDS)

"""An override that ends while a rollout is under way: obeyed until its end, forgotten after it."""

from datetime import timedelta
from typing import Any

from durable.authority.reads.claims import read_claims
from durable.model.fleet.manifest import Fleet
from durable.model.states import OverrideState
from tests.workflows.plane import EAST, Plane, small_fleet, until
from tests.workflows.serving_log import ServingLog
from tests.workflows.test_override import state_of
from tests.workflows.test_rollout import rolled_out, running, version

REPLICAS = 4
# One replica on each node, and room for one more than there are.
NODES = {"a": 3, "b": 2}
SPEC: dict[str, Any] = {
    "replicas": REPLICAS,
    "spread": {"max_per_node": 1},
    "rollout": {"pauses": [1], "max_surge": 1, "max_unavailable": 1},
}


def two_zones() -> Fleet:
    fleet = small_fleet("east", nodes=sum(NODES.values())).model_dump(mode="json")
    (region,) = fleet["regions"]
    (pool,) = region["pools"]
    region["zones"] = list(NODES)
    region["pools"] = [
        {**pool, "name": zone, "zone": zone, "count": count} for zone, count in NODES.items()
    ]
    return Fleet.model_validate(fleet)


async def test_an_avoided_zone_is_used_by_a_rollout_once_the_override_has_expired(
    plane: Plane,
) -> None:
    await plane.load(two_zones())
    log = ServingLog(plane)
    await (await plane.host()).work()
    await plane.durable.apply(version(1, **SPEC))
    await plane.durable.wait("risk", "api")
    await plane.durable.apply(version(2, **SPEC))

    async def is_at_its_pause() -> bool:
        generations = await running(plane)
        return [generations.get(slot) for slot in range(REPLICAS)].count(2) == 1

    await until(is_at_its_pause, "one slot was replaced")
    avoided, _ = await plane.durable.overrides.create(
        "avoid-zone", {"region": "east", "zone": "a"}, reason="INC-1", ttl=timedelta(seconds=15)
    )
    await plane.durable.promote("risk", "api")
    # The other zone has no room for the rest: it cannot be done before the override ends.
    await rolled_out(plane, 2)
    assert await running(plane) == dict.fromkeys(range(REPLICAS), 2)

    claims = await read_claims(plane.databases, EAST, and_ended=True)
    begun = [one.reserved_at for one in claims if str(one.node).startswith("east-a-")]
    assert avoided.activated_at is not None
    early = [at for at in begun if avoided.activated_at <= at < avoided.expires_at]
    assert early == [], "nothing was placed in the zone while it was avoided"
    assert [at for at in begun if at >= avoided.expires_at], "and then it was"

    async def has_ended() -> bool:
        return await state_of(plane, avoided.id) is OverrideState.EXPIRED

    await until(has_ended, "it ended by itself")
    assert log.fewest(REPLICAS) >= REPLICAS - 1
    await plane.no_invariant_is_broken()

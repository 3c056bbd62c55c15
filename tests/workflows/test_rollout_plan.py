"""What `plan` says while a workload rolls out: what is kept, what goes, and by whose size."""

from typing import Any

from durable.model.ids import RegionId
from durable.model.work.workload import WorkloadManifest
from durable.plan.planner import Plan, Planner, RegionPlan
from durable.plan.step import Action
from tests.workflows.plane import EAST, Plane, until
from tests.workflows.test_rollout import serving, version
from tests.workflows.test_trouble import set_faults

# Three nodes of four cores. The old ones fill two of them, and a new one needs half a node.
OLD: dict[str, Any] = {"replicas": 2, "resources": {"cpu": 4, "memory": "256Mi"}}
NEW: dict[str, Any] = {"replicas": 2, "resources": {"cpu": 2, "memory": "256Mi"}}
SAFE: dict[str, Any] = {"rollout": {"max_unavailable": 0, "max_surge": 1}}


async def planned(plane: Plane, manifest: dict[str, Any]) -> tuple[Plan, RegionPlan]:
    plan = await Planner(plane.databases).plan(WorkloadManifest.model_validate(manifest))
    [region] = plan.regions
    return plan, region


async def stuck(plane: Plane) -> None:
    """Generation 2 has a surge replica that never gets ready; both old replicas serve."""
    set_faults(plane, {"kind": "never_ready", "generation": 2})
    await serving(plane, RegionId("east"), **OLD, **SAFE)
    await plane.durable.apply(version(2, **NEW, **SAFE))

    async def is_up() -> bool:
        return any(one.generation == 2 for one in (await plane.bindings()).values())

    await until(is_up, "a surge replica was started")


async def test_old_claims_leave_what_they_use_themselves(plane: Plane) -> None:
    await stuck(plane)
    plan, east = await planned(plane, version(3, **OLD, **SAFE))
    assert (plan.action, plan.generation) == (Action.ROLL_OUT, 3)
    assert sorted(one.slot for one in east.stops) == [0, 1, 2], "of both generations"
    assert (len(east.places), east.waits) == (2, ()), "when those have gone, both find a node"
    _, east = await planned(plane, version(3, **{**NEW, "replicas": 6}))
    assert (len(east.places), east.waits) == (6, ()), "all twelve cores are free then"


async def test_the_same_again_goes_on_with_the_rollout(plane: Plane) -> None:
    await stuck(plane)
    plan, east = await planned(plane, version(2, **NEW, **SAFE))
    assert (plan.action, plan.generation) == (Action.NOTHING, 2)
    assert plan.rollout is not None, "it still rolls"
    assert plan.rollout.surge_fits == {EAST: 1}, "the one that is up already"
    assert east.keeps == (), "no base slot runs it yet"
    assert sorted(one.slot for one in east.stops) == [0, 1, 2]
    assert sorted(one.slot for one in east.places) == [0, 1]


async def test_what_was_before_goes_back_as_an_apply_would(plane: Plane) -> None:
    await stuck(plane)
    plan, east = await planned(plane, version(1, **OLD, **SAFE))
    assert (plan.action, plan.generation) == (Action.GO_BACK, 1)
    assert sorted(one.slot for one in east.keeps) == [0, 1]
    assert [one.slot for one in east.stops] == [2], "the surge replica"
    assert (east.places, east.waits) == ((), ())
    admitted = await plane.durable.apply(version(1, **OLD, **SAFE))
    assert admitted.generation == plan.generation

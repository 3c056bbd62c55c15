"""The path from apply to serving and back to nothing, on a simulated fleet."""

from typing import Any

import pytest
from sqlalchemy import text

from durable.model.fleet.manifest import Fleet
from durable.model.refusal import RefusedError
from durable.model.states import BindingState
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until


async def test_a_workload_is_bound_started_and_serves(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()

    answer = await plane.durable.apply(manifest(replicas=3), request_id="one")
    status = await plane.durable.wait("risk", "api")

    assert (answer.generation, dict(answer.share)) == (1, {EAST: (0, 1, 2)})
    assert (status.bound, status.ready, status.serving) == (3, 3, 3)
    assert status.observed_generation == 1
    assert await observed_generation(plane) == 1
    assert [c.type for c in status.conditions if c.status] == [
        "Opened",
        "Bound",
        "Serving",
        "Updated",
    ]
    bindings = await plane.bindings()
    assert {binding.state for binding in bindings.values()} == {BindingState.SERVING}
    await plane.no_invariant_is_broken()


async def test_a_workload_that_remembers_an_older_division_goes_on_from_the_newer(
    plane: Plane,
) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=1))
    await plane.durable.wait("risk", "api")
    # As after a reset of the workflow: the authority knows of a division that it does not.
    async with plane.databases.at_global("durable_workload").begin() as connection:
        ahead = text("UPDATE global.workloads SET revision = revision + 1000000000")
        await connection.execute(ahead)

    await plane.durable.scale("risk", "api", 2)
    status = await plane.durable.wait("risk", "api")

    assert (status.serving, status.own_waits) == (2, ())
    await plane.no_invariant_is_broken()


async def observed_generation(plane: Plane) -> int:
    async with plane.databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT observed_generation FROM global.workloads")
        return (await connection.execute(query)).scalar_one()


async def test_replicas_are_split_over_regions_by_weight(plane: Plane) -> None:
    await plane.load(small_fleet("east", "west"))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)

    answer = await plane.durable.apply(manifest(replicas=6, weights={"east": 2}))
    status = await plane.durable.wait("risk", "api")

    assert {region: len(slots) for region, slots in answer.share.items()} == {EAST: 4, WEST: 2}
    assert [(one.region, one.serving) for one in status.regions] == [(EAST, 4), (WEST, 2)]
    await plane.no_invariant_is_broken()


async def test_scaling_keeps_what_runs_and_gives_back_what_is_too_much(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=2))
    await plane.durable.wait("risk", "api")
    before = await plane.bindings()

    await plane.durable.scale("risk", "api", 4)
    await plane.durable.wait("risk", "api")
    grown = await plane.bindings()
    assert {key: grown[key].token for key in before} == {
        key: binding.token for key, binding in before.items()
    }
    assert len(grown) == 4

    await plane.durable.scale("risk", "api", 1)

    async def shrunk() -> bool:
        return set(await plane.bindings()) == {("api", 0)}

    await until(shrunk, "only slot 0 is bound")
    assert (await plane.durable.status("risk", "api")).generation == 1
    await plane.no_invariant_is_broken()


async def test_deleting_releases_everything_and_ends_both_workflows(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")

    await plane.durable.delete("risk", "api", reason="no longer needed")
    status = await plane.durable.wait("risk", "api", until="deleted")

    assert status.deleting
    assert await plane.bindings() == {}
    assert (await plane.handle().describe()).close_time is not None
    await plane.no_invariant_is_broken()


async def test_what_is_applied_again_after_its_deletion_is_a_new_generation(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")
    await plane.durable.delete("risk", "api")
    await plane.durable.wait("risk", "api", until="deleted")

    again = await plane.durable.apply(manifest())
    status = await plane.durable.wait("risk", "api")

    assert again.generation == 2
    assert status.serving == 2
    await plane.no_invariant_is_broken()


async def test_another_template_replaces_what_runs(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")

    changed = await plane.durable.apply(manifest(run={"image": "api:2"}))
    await plane.durable.wait("risk", "api")

    assert changed.generation == 2
    assert {binding.generation for binding in (await plane.bindings()).values()} == {2}
    await plane.no_invariant_is_broken()


async def test_a_job_runs_to_completion_and_can_run_again(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()

    status = await plane.durable.place(manifest("score", kind="job"), request_id="run-1")

    assert (status.phase, status.completed) == ("complete", 2)
    assert await plane.bindings() == {}
    again = await plane.durable.place(manifest("score", kind="job"), request_id="run-2")
    assert again.generation == 2
    await plane.no_invariant_is_broken()


async def test_a_workload_goes_only_to_regions_where_it_could_ever_run(plane: Plane) -> None:
    fleet = small_fleet("east", "west").model_dump(mode="json")
    (pool,) = fleet["regions"][1]["pools"]
    pool["labels"] = {"disk": "fast"}
    await plane.load(Fleet.model_validate(fleet))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)

    wants: dict[str, Any] = {"requirements": {"labels": {"disk": "fast"}}}
    plan = await plane.durable.plan(manifest(replicas=2, **wants))
    answer = await plane.durable.apply(manifest(replicas=2, **wants))
    await plane.durable.wait("risk", "api")

    assert [one.region for one in plan.regions] == [WEST]
    assert dict(answer.share) == {WEST: (0, 1)}
    with pytest.raises(RefusedError, match="label disk=fast missing"):
        await plane.durable.apply(manifest("named", weights={"east": 1, "west": 1}, **wants))


async def test_what_waits_again_after_it_served_is_not_overdue_at_once(plane: Plane) -> None:
    await (await (await plane.load(small_fleet(nodes=1))).host()).work()
    await plane.durable.place(manifest("other", replicas=6), request_id="other")
    late = {"placed": "30m"}
    await plane.durable.place(manifest(replicas=1, deadlines=late), request_id="api")
    first = (await plane.placement()).placed_by

    await plane.durable.scale("risk", "api", 8)  # more than there is room for beside the other

    async def waits() -> bool:
        return (await plane.placement()).pending is not None

    await until(waits, "some of it waits")
    assert (await plane.placement()).placed_by > first


async def test_grant_that_lies_in_another_region_comes_where_it_is_waited_for(
    plane: Plane,
) -> None:
    fleet = small_fleet("east", "west").model_dump(mode="json")
    (tenant,) = fleet["tenants"]
    tenant["hard"] = {"cpu": 5, "memory": "5Gi"}
    tenant["grants"] = {"east": {"cpu": 4, "memory": "4Gi"}, "west": {"cpu": 1, "memory": "1Gi"}}
    await plane.load(Fleet.model_validate(fleet))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)

    resources = {"cpu": 1, "memory": "1Gi"}
    await plane.durable.apply(manifest(replicas=3, resources=resources, weights={"east": 0}))
    assert (await plane.durable.wait("risk", "api")).serving == 3

    assert len(await plane.bindings(WEST)) == 3
    await plane.no_invariant_is_broken()


async def test_a_wait_for_something_that_never_comes_is_refused_with_what_there_is(
    plane: Plane,
) -> None:
    with pytest.raises(RefusedError, match="'sleeping' is none of bound, ready, serving"):
        await plane.durable.wait("risk", "api", until="sleeping")  # pyright: ignore[reportArgumentType]

"""Another generation takes the place of the one before it, slot by slot, within the floor."""

from typing import Any

from tests.workflows.plane import Plane, manifest, small_fleet


def version(number: int, **spec: Any) -> dict[str, Any]:
    """The workload in one of its versions: what it runs differs, nothing else."""
    rollout = {"bake": None, **spec.pop("rollout", {})}
    run = {"environment": {"VERSION": str(number)}}
    return manifest(rollout=rollout, run=run, **spec)


async def serving(plane: Plane, **spec: Any) -> None:
    await (await (await plane.load(small_fleet())).host()).work()
    await plane.durable.apply(version(1, **spec))
    await plane.durable.wait("risk", "api")


async def test_a_new_generation_replaces_the_old_one(plane: Plane) -> None:
    await serving(plane, replicas=4)
    admitted = await plane.durable.apply(version(2, replicas=4))
    assert admitted.generation == 2
    status = await plane.durable.wait("risk", "api")
    assert (status.generation, status.serving, status.updated) == (2, 4, 4)
    bindings = await plane.bindings()
    assert {slot for _, slot in bindings} == {0, 1, 2, 3}
    assert {binding.generation for binding in bindings.values()} == {2}
    await plane.no_invariant_is_broken()

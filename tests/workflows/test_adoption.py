"""Workflows that were terminated or could not reach the authority, and are resumed."""

from datetime import timedelta
from typing import Any, cast

import pytest

from durable.authority.db.batching import RegionalQueues
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.sides import Regional
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import BindingState
from durable.signals.names import workload_id
from durable.signals.payloads import Look
from durable.temporal.connection import data_converter
from durable.workflows import timeouts
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until


async def serving(plane: Plane, **spec: Any) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(**spec))
    await plane.durable.wait("risk", "api")


def workload(plane: Plane) -> Any:
    return plane.durable.client.get_workflow_handle(
        workload_id("risk", "api")  # pyright: ignore[reportArgumentType]
    )


async def tokens(plane: Plane) -> set[int]:
    return {binding.token for binding in (await plane.bindings()).values()}


async def test_an_authority_that_is_away_for_long_is_waited_for_in_sight(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "UNREACHABLE_RETRY", timedelta(seconds=0.5))
    await serving(plane)
    reach_it = Regional.commit

    async def away(*_: Any) -> Any:
        raise AuthorityUnreachableError("the authority is away")

    monkeypatch.setattr(Regional, "commit", away)
    await plane.durable.scale("risk", "api", 3)

    async def waits() -> bool:
        found = await plane.placement()
        return found.pending is not None and found.pending.code == "authority_unreachable"

    await until(waits, "the placement says what it waits for")

    async def backs_off() -> bool:
        rests = await rests_of(plane.handle(), "waits: authority_unreachable")
        return bool(rests) and rests[-1] >= 3 * rests[0]

    await until(backs_off, "it asks more and more rarely")
    monkeypatch.setattr(Regional, "commit", reach_it)
    assert (await plane.durable.wait("risk", "api")).serving == 3
    await plane.no_invariant_is_broken()


async def test_a_hint_at_a_region_that_does_not_answer_is_read_more_and_more_rarely(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await plane.load(small_fleet("east", "west"))).host(EAST, WEST)
    await plane.work(EAST, WEST)
    await plane.durable.apply(manifest(replicas=2))
    await plane.durable.wait("risk", "api")
    read = cast(Any, RegionalQueues).submit

    async def east_is_away(queues: Any, region: Any, item: Any) -> Any:
        if region == EAST:
            raise AuthorityUnreachableError("east is away")
        return await read(queues, region, item)

    monkeypatch.setattr(RegionalQueues, "submit", east_is_away)
    await workload(plane).signal("look", Look(why="a test", region=EAST, generation=1))

    async def backs_off() -> bool:
        rests = await rests_of(workload(plane), "waits: east does not answer")
        return bool(rests) and rests[-1] >= 4 * rests[0]

    await until(backs_off, "it is read more and more rarely", seconds=60)


async def rests_of(handle: Any, why: str) -> list[float]:
    """For how many seconds a workflow has rested, for this reason, in the order of its rests."""
    rests: list[float] = []
    async for event in handle.fetch_history_events():
        if event.HasField("timer_started_event_attributes"):
            summary = await data_converter.decode([event.user_metadata.summary])
            if summary == [why]:
                timer = event.timer_started_event_attributes
                rests.append(timer.start_to_fire_timeout.ToTimedelta().total_seconds())
    return rests


async def test_a_long_reason_does_not_keep_a_workload_from_ending(plane: Plane) -> None:
    await serving(plane)
    await plane.durable.delete("risk", "api", reason="x" * 500)
    await plane.durable.wait("risk", "api", until="deleted")
    assert await plane.bindings() == {}


async def test_a_terminated_placement_releases_its_claims_when_its_workload_is_deleted(
    plane: Plane,
) -> None:
    await serving(plane)
    await plane.handle().terminate("by mistake")
    await plane.durable.delete("risk", "api")
    await plane.durable.wait("risk", "api", until="deleted")
    assert await plane.bindings() == {}
    await plane.no_invariant_is_broken()


async def test_a_placement_that_is_restarted_disturbs_nothing_that_serves(plane: Plane) -> None:
    await serving(plane)
    before = await tokens(plane)
    await plane.handle().terminate("by mistake")
    await plane.durable.apply(manifest(deadlines={"started": "2s"}))

    async def knows() -> bool:
        found = await plane.placement()
        return [slot.phase for slot in found.slots] == ["serving", "serving"]

    await until(knows, "the placement knows that both serve")
    assert await tokens(plane) == before


async def test_a_terminated_workload_is_resumed_by_the_next_apply(plane: Plane) -> None:
    await serving(plane)
    await plane.durable.scale("risk", "api", 3)
    await plane.durable.wait("risk", "api")
    before = await tokens(plane)

    await workload(plane).terminate("by mistake")
    await plane.durable.apply(manifest(replicas=3))
    assert (await plane.durable.wait("risk", "api")).serving == 3
    assert await tokens(plane) == before

    await workload(plane).terminate("again")
    await plane.durable.apply(manifest(replicas=4))
    assert (await plane.durable.wait("risk", "api")).serving == 4
    assert before < await tokens(plane)
    await plane.no_invariant_is_broken()


async def test_a_delete_whose_workflow_was_terminated_is_finished_by_the_next_request(
    plane: Plane,
) -> None:
    await plane.load()
    async with plane.agent() as _:
        await plane.work()
        await plane.durable.apply(manifest())
        await plane.durable.wait("risk", "api")
    # Without an agent nothing stops, so the delete is under way for as long as we like.
    await plane.durable.delete("risk", "api")
    await workload(plane).terminate("by mistake")
    with pytest.raises(RefusedError, match="is being deleted"):
        await plane.durable.apply(manifest())
    await plane.host()
    await plane.durable.wait("risk", "api", until="deleted")
    assert await plane.bindings() == {}
    assert (await plane.durable.apply(manifest())).generation == 2
    assert (await plane.durable.wait("risk", "api")).serving == 2


async def test_a_job_over_two_regions_ends_when_both_have_done_their_part(plane: Plane) -> None:
    await plane.load(small_fleet("east", "west"))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)
    status = await plane.durable.place(manifest("score", kind="job"), request_id="run")
    assert (status.phase, status.completed) == ("complete", 2)
    with pytest.raises(RefusedError, match=r"has ended already|is ending|is not scaled"):
        await plane.durable.scale("risk", "score", 4)


async def test_nothing_wanted_is_soon_served(plane: Plane) -> None:
    await serving(plane)
    await plane.durable.scale("risk", "api", 0)
    assert (await plane.durable.wait("risk", "api")).wanted == 0

    async def gone() -> bool:
        return await plane.bindings() == {}

    await until(gone, "nothing runs")
    await plane.durable.scale("risk", "api", 2)
    assert (await plane.durable.wait("risk", "api")).serving == 2
    states = {binding.state for binding in (await plane.bindings()).values()}
    assert states == {BindingState.SERVING}


async def test_a_gang_is_not_scaled_below_its_minimum(plane: Plane) -> None:
    await serving(plane, minimum=2)
    with pytest.raises(RefusedError, match="minimum") as no:
        await plane.durable.scale("risk", "api", 1)
    assert no.value.refusal.code is RefusalCode.INVALID

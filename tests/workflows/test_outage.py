"""While the authority hangs, workflows still answer; when it is back, everything reconciles."""

import asyncio
import json
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from durable.authority.db import breaker
from durable.authority.migrations import upgrade
from durable.signals.payloads import RetryPlacement
from durable.stack.postgres.server import EmbeddedPostgres
from durable.temporal import worker
from tests.conftest import seed_operators
from tests.frozen import frozen
from tests.workflows.conftest import MakePlane
from tests.workflows.plane import EAST, WEST, manifest, small_fleet, until
from tests.workflows.processes import AGENT, WORKER, process

WHO: dict[str, Any] = {"actor": "person:ada", "reason": "looks odd", "request_id": "h1"}
# A placement that is cut off asks again every few seconds; a step alone held its slot for thirty.
FEW_SECONDS = 10.0


async def test_placements_answer_while_the_authority_hangs(
    make_plane: MakePlane, other_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MAX_WORKFLOW_TASKS", 5)
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.5)
    url = other_postgres.ensure_database("outage")
    await asyncio.to_thread(upgrade, url)
    await asyncio.to_thread(seed_operators, url)
    plane = await make_plane(database_url=url)
    await (await (await plane.load(small_fleet(nodes=1))).host()).work()
    # More placements than slots for workflow tasks, each with something to do.
    names = [f"w{number}" for number in range(15)]
    await asyncio.gather(
        *(plane.durable.apply(manifest(name, replicas=1, resources={"cpu": 1})) for name in names)
    )

    async def all_known() -> bool:
        found = await asyncio.gather(*(plane.placement(name) for name in names))
        return sorted(one.phase for one in found) == ["serving"] * 4 + ["waiting"] * 11

    await until(all_known, "four serve and the others wait")
    with frozen(other_postgres):
        for name in names:
            retry = RetryPlacement(**WHO).model_copy(update={"request_id": f"retry-{name}"})
            await plane.handle(name).signal("retry_now", retry)
        async with asyncio.timeout(FEW_SECONDS):
            await asyncio.gather(*(plane.placement(name) for name in names))
        async with asyncio.timeout(FEW_SECONDS):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await plane.handle(names[-1]).execute_update("retry_now", RetryPlacement(**WHO))
        # Who may do what is only known there.
        assert "could not be read, so nothing was changed" in str(refused.value.cause)

        async def is_cut_off() -> bool:
            found = await asyncio.gather(*(plane.placement(name) for name in names))
            codes = [one.pending.code for one in found if one.pending is not None]
            return "authority_unreachable" in codes

        await until(is_cut_off, "those that had to ask say what they wait for")

    async def reconciled() -> bool:
        found = await asyncio.gather(*(plane.placement(name) for name in names))
        codes = {one.pending.code for one in found if one.pending is not None}
        serving = [one for one in found if one.phase == "serving"]
        return "authority_unreachable" not in codes and len(serving) == 4

    await until(reconciled, "nobody is cut off any more")
    await plane.no_invariant_is_broken()


async def test_one_regional_database_that_hangs_stops_neither_apply_nor_scale(
    make_plane: MakePlane, other_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.5)
    url = other_postgres.ensure_database("west")
    await asyncio.to_thread(upgrade, url, serves_global=False)
    plane = await make_plane(regional_database_urls=json.dumps({WEST: url}))
    await plane.load(small_fleet(EAST, WEST))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)
    await plane.durable.apply(manifest("both", replicas=2))
    await plane.durable.wait("risk", "both")
    assert len(await plane.bindings(WEST)) == 1
    with frozen(other_postgres):

        async def is_known() -> bool:
            return plane.databases.is_away(WEST)

        await until(is_known, "the worker has found out, by what it does all the time")
        async with asyncio.timeout(3 * FEW_SECONDS):
            await plane.durable.apply(manifest("other", replicas=2))
            assert (await plane.durable.wait("risk", "other")).serving == 2
            await plane.durable.scale("risk", "both", 3)

            async def grown() -> bool:
                return ("both", 2) in await plane.bindings(EAST)

            await until(grown, "the third slot is in the region that answers")
        assert {slot for name, slot in await plane.bindings(EAST) if name == "other"} == {0, 1}
    assert (await plane.durable.wait("risk", "both")).serving == 3
    assert set(await plane.bindings(WEST)) == {("both", 1)}, "what serves stayed where it was"
    await plane.no_invariant_is_broken()


async def test_a_worker_that_is_restarted_meanwhile_serves_the_other_regions(
    make_plane: MakePlane, other_postgres: EmbeddedPostgres
) -> None:
    """Real processes, at their own pace: nothing of theirs is patched."""
    url = other_postgres.ensure_database("west_away")
    await asyncio.to_thread(upgrade, url, serves_global=False)
    plane = await make_plane(regional_database_urls=json.dumps({WEST: url}))
    await plane.load(small_fleet(EAST, WEST))
    with process(plane.settings, AGENT) as agent, process(plane.settings, WORKER) as worker:
        await plane.durable.place(manifest("both", replicas=2), request_id="both")
        with frozen(other_postgres):
            worker.kill()
            agent.kill()
            worker.start()
            agent.start()
            east = manifest("east", replicas=2, requirements={"regions": ["east"]})
            await plane.durable.place(east, request_id="east", within_seconds=180)
            await plane.durable.scale("risk", "east", 3)
            assert (await plane.durable.wait("risk", "east")).serving == 3
        west = manifest("west", replicas=1, requirements={"regions": ["west"]})
        await plane.durable.place(west, request_id="west", within_seconds=180)
    await plane.no_invariant_is_broken()

"""Another generation takes the place of the one before it, slot by slot, within the floor."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from durable.authority.audit.chain import GLOBAL_CHAIN
from durable.authority.audit.events import read_events
from durable.authority.reads.claims import read_claims
from durable.authority.workloads.generations import list_generations
from durable.client import Durable
from durable.failpoints import VARIABLE, Failpoint
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import RefusedError
from durable.model.work.rollout import GenerationRecord, RolloutStep
from durable.signals.payloads import (
    EvictSlots,
    OperatorRequest,
    PauseRollout,
    PromoteRollout,
    ReplaceSlots,
    ResumeRollout,
    RollBack,
)
from durable.temporal.updates import send_until_answered
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.serving_log import ServingLog
from tests.workflows.test_trouble import set_faults

WHO: dict[str, Any] = {"actor": "alice@example.com", "reason": "INC-42"}


def version(number: int, **spec: Any) -> dict[str, Any]:
    """The workload in one of its versions: what it runs differs, nothing else."""
    rollout = {"bake": None, **spec.pop("rollout", {})}
    run = {"environment": {"VERSION": str(number)}}
    return manifest(rollout=rollout, run=run, **spec)


async def serving(plane: Plane, *regions: RegionId, nodes: int = 3, **spec: Any) -> ServingLog:
    """Version 1 serves; from here on the database writes down who does."""
    await plane.load(small_fleet(*map(str, regions), nodes=nodes))
    if not plane.faults.exists():
        set_faults(plane)
    log = ServingLog(plane)
    await (await plane.host(*regions)).work(*regions)
    await plane.durable.apply(version(1, **spec))
    await plane.durable.wait("risk", "api")
    return log


async def request(plane: Plane, name: str, payload: OperatorRequest) -> str:
    handle = plane.durable.client.get_workflow_handle("workload/risk/api")

    async def send() -> str:
        return await handle.execute_update(  # pyright: ignore[reportUnknownMemberType]
            name, payload, result_type=str
        )

    return await send_until_answered(f"send {name}", send)


async def rolled_out(plane: Plane, generation: int) -> None:
    async def is_done() -> bool:
        status = await plane.durable.status("risk", "api")
        done = status.has_reached("serving") and status.observed_generation == generation
        return done and status.generation == generation and status.updated == status.wanted

    await until(is_done, f"generation {generation} serves")


async def history(plane: Plane) -> Sequence[GenerationRecord]:
    return await list_generations(plane.databases, TenantId("risk"), WorkloadName("api"))


async def outcomes(plane: Plane) -> list[str]:
    return [record.outcome.value for record in await history(plane)]


async def running(plane: Plane, *regions: RegionId) -> dict[int, int]:
    """The generation of every slot."""
    bindings = await plane.bindings(*regions)
    return {slot: binding.generation for (_, slot), binding in bindings.items()}


async def tokens(plane: Plane) -> dict[int, int]:
    return {slot: binding.token for (_, slot), binding in (await plane.bindings()).items()}


async def test_a_new_generation_replaces_the_old_one_and_never_takes_down_too_many(
    plane: Plane,
) -> None:
    log = await serving(plane, replicas=4)
    admitted = await plane.durable.apply(version(2, replicas=4))
    assert admitted.generation == 2
    status = await plane.durable.wait("risk", "api")
    assert (status.generation, status.serving, status.updated) == (2, 4, 4)
    assert await running(plane) == dict.fromkeys(range(4), 2)
    assert log.fewest(4) >= 3
    assert await outcomes(plane) == ["superseded", "complete"]
    await plane.no_invariant_is_broken()


async def test_a_placement_hears_of_a_share_whose_division_ended_before_it_could_say_so(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serving(plane, replicas=2)
    lost = tmp_path / "lost"
    monkeypatch.setenv(VARIABLE, f"{Failpoint.AFTER_PUBLISH_SHARES}=lose:{lost}")
    await plane.durable.scale("risk", "api", 3, request_id="more")
    status = await plane.durable.wait("risk", "api", within_seconds=180)
    assert lost.exists()
    assert status.serving == 3


async def test_nothing_is_missing_where_nothing_may_be(plane: Plane) -> None:
    log = await serving(plane, replicas=3, rollout={"max_unavailable": 0})
    await plane.durable.apply(version(2, replicas=3, rollout={"max_unavailable": 0}))
    await rolled_out(plane, 2)
    assert log.fewest(3) >= 3


@pytest.mark.parametrize("kind", ["crash", "fail_to_start", "never_ready"])
async def test_a_bad_version_is_undone_by_itself(plane: Plane, kind: str) -> None:
    set_faults(plane, {"kind": kind, "generation": 2})
    # What fails is undone for that, however long a busy machine takes to notice.
    deadline = "10s" if kind == "never_ready" else "10m"
    spec: dict[str, Any] = {"replicas": 4, "rollout": {"progress_deadline": deadline}}
    log = await serving(plane, **spec)
    before = await tokens(plane)
    await plane.durable.apply(version(2, **spec))

    async def is_undone() -> bool:
        return await outcomes(plane) == ["complete", "rolled_back"]

    await until(is_undone, "it goes back")
    await rolled_out(plane, 1)
    assert await running(plane) == dict.fromkeys(range(4), 1)
    kept = {slot for slot, token in (await tokens(plane)).items() if token == before[slot]}
    assert len(kept) >= 2, "what was not replaced was not touched"
    assert log.fewest(4) >= 3
    *_, undone = await history(plane)
    assert ("failed" if kind != "never_ready" else "no progress") in undone.outcome_reason
    events, _ = await read_events(plane.databases, chain=GLOBAL_CHAIN)
    assert any(event.action == "begin rollback" for event in events)
    await plane.no_invariant_is_broken()


async def test_another_apply_supersedes_a_rollout_and_stops_nothing_that_is_good(
    plane: Plane,
) -> None:
    set_faults(plane, {"kind": "never_ready", "generation": 2})
    log = await serving(plane, replicas=4)
    await plane.durable.apply(version(2, replicas=4))

    async def is_stuck() -> bool:
        return 2 in (await running(plane)).values()

    await until(is_stuck, "the bad one has begun")
    await plane.durable.apply(version(3, replicas=4))
    await rolled_out(plane, 3)
    assert await running(plane) == dict.fromkeys(range(4), 3)
    assert log.fewest(4) >= 3
    assert await outcomes(plane) == ["superseded", "superseded", "complete"]


async def test_an_apply_of_what_was_before_goes_back_without_a_restart(plane: Plane) -> None:
    set_faults(plane, {"kind": "never_ready", "generation": 2})
    await serving(plane, replicas=4)
    before = await tokens(plane)
    await plane.durable.apply(version(2, replicas=4))
    await until(lambda: _has(plane, 2), "the bad one has begun")
    again = await plane.durable.apply(version(1, replicas=4))
    assert again.generation == 1
    await rolled_out(plane, 1)
    after = await tokens(plane)
    assert sum(after[slot] == token for slot, token in before.items()) >= 3


async def _has(plane: Plane, generation: int) -> bool:
    return generation in (await running(plane)).values()


async def test_a_paused_rollout_waits_and_goes_on_when_it_is_resumed(plane: Plane) -> None:
    spec: dict[str, Any] = {"replicas": 4, "rollout": {"pauses": [1]}}
    await serving(plane, **spec)
    await plane.durable.apply(version(2, **spec))

    async def is_at(step: RolloutStep) -> bool:
        progress = (await plane.durable.status("risk", "api")).progress
        return progress is not None and progress.step is step

    await until(lambda: is_at(RolloutStep.PAUSE_POINT), "it stops at the pause point")
    assert sorted((await running(plane)).values()) == [1, 1, 1, 2]
    answer = await request(plane, "pause", PauseRollout(**WHO, request_id="p1"))
    assert "until a person resumes" in answer
    await request(plane, "promote", PromoteRollout(**WHO, request_id="p2"))
    await until(lambda: is_at(RolloutStep.PAUSED), "it stays where it is")
    assert sorted((await running(plane)).values()) == [1, 1, 1, 2]
    await request(plane, "resume", ResumeRollout(**WHO, request_id="p3"))
    await rolled_out(plane, 2)
    assert await request(plane, "pause", PauseRollout(**WHO, request_id="p1")) == answer


async def test_what_makes_no_sense_is_refused_and_changes_nothing(plane: Plane) -> None:
    await serving(plane)
    before = await tokens(plane)
    for name, payload, sentence in (
        ("pause", PauseRollout(**WHO, request_id="1"), "is not rolling out"),
        ("resume", ResumeRollout(**WHO, request_id="2"), "is not rolling out"),
        ("promote", PromoteRollout(**WHO, request_id="3"), "is not rolling out"),
        ("rollback", RollBack(**WHO, request_id="4"), "no other generation that was ever good"),
        ("rollback", RollBack(**WHO, request_id="5", to=7), "has no generation 7"),
        ("rollback", RollBack(**WHO, request_id="6", to=1), "is what is wanted now"),
        ("replace", ReplaceSlots(**WHO, request_id="7", slots=(9,)), "has no slot 9"),
    ):
        with pytest.raises(RefusedError) as refused:
            await request(plane, name, payload)
        assert sentence in str(refused.value), name
        assert await tokens(plane) == before, name
        assert await outcomes(plane) == ["complete"], name


async def test_a_rollout_is_rolled_back_in_the_middle_and_after_its_end(plane: Plane) -> None:
    set_faults(plane, {"kind": "never_ready", "generation": 2})
    log = await serving(plane, replicas=4)
    await plane.durable.apply(version(2, replicas=4))
    await until(lambda: _has(plane, 2), "it has begun")
    await request(plane, "rollback", RollBack(**WHO, request_id="b1"))
    await rolled_out(plane, 1)
    await plane.durable.apply(version(3, replicas=4))
    await rolled_out(plane, 3)
    answer = await request(plane, "rollback", RollBack(**WHO, request_id="b2", to=1))
    assert "generation 4" in answer
    await rolled_out(plane, 4)
    assert await outcomes(plane) == ["superseded", "rolled_back", "rolled_back", "complete"]
    assert (await history(plane))[3].spec["run"] == (await history(plane))[0].spec["run"]
    assert log.fewest(4) >= 3
    with pytest.raises(RefusedError) as refused:
        await request(plane, "rollback", RollBack(**WHO, request_id="b3", to=2))
    assert "was never good" in str(refused.value)


async def test_regions_take_turns_and_a_bad_build_never_meets_all_of_them(plane: Plane) -> None:
    set_faults(plane, {"kind": "crash", "generation": 2})
    spec: dict[str, Any] = {
        "replicas": 4,
        "rollout": {"regions": ["west"], "max_failures": 3},
    }
    log = await serving(plane, EAST, WEST, **spec)
    await plane.durable.apply(version(2, **spec))

    async def is_undone() -> bool:
        return await outcomes(plane) == ["complete", "rolled_back"]

    await until(is_undone, "it goes back")
    await rolled_out(plane, 1)
    met = {one.generation for one in await read_claims(plane.databases, EAST, and_ended=True)}
    assert met == {1}, "the east never met it"
    set_faults(plane)
    await plane.durable.apply(version(3, **spec))
    await rolled_out(plane, 3)
    assert set((await running(plane, EAST, WEST)).values()) == {3}
    assert log.fewest(4) >= 3


async def test_a_region_bakes_before_the_next_one_begins(plane: Plane) -> None:
    """By the times that the authority wrote down: a busy machine only makes them longer."""
    min_ready, bake = timedelta(seconds=2), timedelta(seconds=3)
    spec: dict[str, Any] = {
        "replicas": 4,
        "rollout": {
            "regions": ["west"], "max_surge": 1, "max_unavailable": 0,
            "min_ready": "2s", "bake": "3s",
        },
    }  # fmt: skip
    await serving(plane, EAST, WEST, **spec)
    await plane.durable.apply(version(2, **spec))
    await rolled_out(plane, 2)

    async def times(region: RegionId) -> tuple[list[datetime], list[datetime]]:
        """When each of its new replicas was reserved, and since when those that stay serve."""
        claims = await read_claims(plane.databases, region, and_ended=True)
        reserved = sorted(one.reserved_at for one in claims if one.generation == 2)
        bound = (await plane.bindings(region)).values()
        return reserved, sorted(one.since for one in bound if one.since is not None)

    reserved, served = await times(WEST)
    # The one that is added, and one after the other in its place; each is ready before the next.
    assert len(reserved) == 3
    assert all(later - earlier >= min_ready for earlier, later in pairwise(reserved))
    begun, _ = await times(EAST)
    assert begun[0] - served[-1] >= min_ready + bake


async def test_a_change_that_needs_no_restart_restarts_nothing(plane: Plane) -> None:
    await serving(plane, replicas=3)
    before = await tokens(plane)
    changed: dict[str, Any] = {
        "priority": 200,
        "prefers": {"disk": "ssd"},
        "spread": {"max_per_node": 2},
        "deadlines": {"ready": "1m"},
        "disruption": {"max_unavailable": 1},
    }
    admitted = await plane.durable.apply(version(1, replicas=4, **changed))
    assert admitted.generation == 1
    await plane.durable.wait("risk", "api")
    after = await tokens(plane)
    assert {slot: after[slot] for slot in before} == before
    assert set(after) == {0, 1, 2, 3}


async def test_slots_are_replaced_make_before_break(plane: Plane) -> None:
    log = await serving(plane, replicas=3, disruption={"max_unavailable": 0})
    before = await tokens(plane)
    answer = await request(plane, "replace", ReplaceSlots(**WHO, request_id="r1", slots=(0, 2)))
    assert "Replacing 2 of 2 slots" in answer

    async def is_replaced() -> bool:
        after = await tokens(plane)
        new = [slot for slot in before if after.get(slot) != before[slot]]
        return new == [0, 2] and set(after) == {0, 1, 2}

    await until(is_replaced, "both are replaced")
    await plane.durable.wait("risk", "api")
    assert log.fewest(3) >= 3
    after = await tokens(plane)
    again = await request(plane, "replace", ReplaceSlots(**WHO, request_id="r1", slots=(0, 2)))
    assert again == answer
    await plane.durable.wait("risk", "api")
    assert await tokens(plane) == after, "sent again, it replaces nothing again"


async def test_an_eviction_stays_within_the_allowance_unless_it_is_forced(plane: Plane) -> None:
    await serving(plane, replicas=2, disruption={"max_unavailable": 0})
    before = await tokens(plane)
    evict = EvictSlots(**WHO, request_id="e1", slots=(0,))
    answer = await plane.handle().execute_update("evict", evict)
    assert "as far as the disruption allowance lets it" in answer

    async def is_blocked() -> bool:
        slot = (await plane.placement()).slots[0]
        return "have to" in slot.evidence and slot.phase == "serving"

    await until(is_blocked, "it says why it waits")
    assert await tokens(plane) == before
    forced = EvictSlots(**WHO, request_id="e2", slots=(0,), force=True)
    await plane.handle().execute_update("evict", forced)

    async def is_replaced() -> bool:
        after = await tokens(plane)
        return set(after) == {0, 1} and after[0] != before[0]

    await until(is_replaced, "it is placed again")
    assert (await tokens(plane))[1] == before[1]


async def test_without_room_for_a_surge_it_goes_on_with_what_may_be_missing(plane: Plane) -> None:
    size: dict[str, Any] = {"resources": {"cpu": "4", "memory": "256Mi"}, "replicas": 3}
    log = await serving(plane, disruption={"max_unavailable": 1}, **size)
    await plane.durable.apply(
        version(2, disruption={"max_unavailable": 1}, rollout={"max_unavailable": 1}, **size)
    )
    await rolled_out(plane, 2)
    assert log.fewest(3) == 2
    assert await running(plane) == dict.fromkeys(range(3), 2)


async def test_where_nothing_may_be_missing_and_no_surge_fits_it_is_undone(plane: Plane) -> None:
    size: dict[str, Any] = {
        "resources": {"cpu": "4", "memory": "256Mi"},
        "replicas": 2,
        "rollout": {"max_unavailable": 0, "max_surge": 1, "progress_deadline": "5s"},
    }
    log = await serving(plane, **size)
    blocker = manifest("other", replicas=1, resources=size["resources"])
    await plane.durable.place(blocker, request_id="block")
    before = await tokens(plane)
    admitted = await plane.durable.apply({**version(2, **size)})
    assert admitted.generation == 2

    async def is_undone() -> bool:
        return await outcomes(plane) == ["complete", "rolled_back"]

    await until(is_undone, "it goes back")
    await rolled_out(plane, 1)
    assert {slot: token for slot, token in (await tokens(plane)).items() if slot < 2} == before
    assert log.fewest(2) == 2


async def test_a_scale_during_a_rollout_is_part_of_it(plane: Plane) -> None:
    log = await serving(plane, replicas=4, rollout={"pauses": [1]})
    await plane.durable.apply(version(2, replicas=4, rollout={"pauses": [1]}))
    await until(lambda: _has(plane, 2), "it has begun")
    await plane.durable.scale("risk", "api", 6)
    await until(lambda: _counts(plane, 6), "there are six")
    await request(plane, "promote", PromoteRollout(**WHO, request_id="p"))
    await rolled_out(plane, 2)
    assert await running(plane) == dict.fromkeys(range(6), 2)
    await plane.durable.scale("risk", "api", 2)
    await until(lambda: _is(plane, {0, 1}), "two are left")
    assert log.fewest(4) >= 2


async def _is(plane: Plane, slots: set[int]) -> bool:
    return set(await tokens(plane)) == slots


async def _counts(plane: Plane, replicas: int) -> bool:
    return (await plane.durable.status("risk", "api")).serving >= replicas


async def test_a_gang_is_replaced_as_a_whole(plane: Plane) -> None:
    await serving(plane, replicas=3, all_or_nothing=True)
    await plane.durable.apply(version(2, replicas=3, all_or_nothing=True))
    await rolled_out(plane, 2)
    assert await running(plane) == dict.fromkeys(range(3), 2)


@pytest.mark.parametrize("harm", ["terminate", "cancel"])
async def test_a_rollout_goes_on_when_its_workflow_is_ended_by_mistake(
    plane: Plane, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.controllers.reconciler.POLL_SECONDS", 0.2)
    spec: dict[str, Any] = {"replicas": 4, "rollout": {"pauses": [1, 2]}}
    log = await serving(plane, **spec)
    await plane.durable.apply(version(2, **spec))
    await until(lambda: _has(plane, 2), "it has begun")
    handle = plane.durable.client.get_workflow_handle("workload/risk/api")
    await (handle.terminate("by mistake") if harm == "terminate" else handle.cancel())
    other = Durable(plane.durable.client, plane.databases, plane.durable.actor)
    for number in (1, 2):

        async def is_promoted(number: int = number) -> bool:
            try:
                await request(plane, "promote", PromoteRollout(**WHO, request_id=f"p{number}"))
            except Exception:
                return False
            return True

        await until(is_promoted, "it is managed again")
    await rolled_out(plane, 2)
    assert (await other.status("risk", "api")).updated == 4
    assert log.fewest(4) >= 3
    await plane.no_invariant_is_broken()

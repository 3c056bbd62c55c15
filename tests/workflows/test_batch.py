"""Jobs: how much runs at once, what ends them, when they are late, and what is remembered."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from durable.agent.simulated.driver import Delays
from durable.authority.audit.events import read_events
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.queue.decisions import read_decisions
from durable.authority.queue.requests import read_queue, read_request
from durable.authority.workloads.rows import list_workloads, read_workload
from durable.controllers import reconciler
from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName, ZoneId
from durable.model.placement.request import SchedulingRequest
from durable.model.refusal import RefusedError
from durable.model.states import RequestState
from durable.model.work.workload import AdmittedWorkload, Condition
from durable.scheduling.request import PlacementRequest
from durable.signals.names import workload_id
from durable.signals.status import WorkloadStatus
from durable.workflows import inbox, timeouts
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.test_trouble import set_faults

RISK, SCORE = TenantId("risk"), WorkloadName("score")
GATE: dict[str, object] = {"kind": "never_ready", "node": "*", "workload": "risk/score"}
QUICKLY = Delays(start_seconds=0, ready_seconds=0, stop_seconds=0, job_seconds=0.05, jitter=0)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler's own pace is for production."""
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 0.2)


def job(completions: int = 4, **spec: Any) -> dict[str, Any]:
    """A job of so many slots; `job` has what a case is about."""
    own = {"completions": completions, **spec.pop("job", {})}
    made = manifest("score", kind="job", job=own, **spec)
    del made["spec"]["replicas"]
    return made


async def furnished(plane: Plane, *regions: RegionId, gate: bool = False, nodes: int = 3) -> Plane:
    regions = regions or (EAST,)
    await plane.load(small_fleet(*regions, nodes=nodes))
    set_faults(plane, *([GATE] if gate else []))
    return await (await plane.host(*regions, delays=QUICKLY)).work(*regions)


async def most_at_once(plane: Plane) -> int:
    """The most claims of the job that were live at the same time, in all regions together."""
    assert plane.settings.database_url is not None
    async with await psycopg.AsyncConnection.connect(plane.settings.database_url) as connection:
        rows = await connection.execute(
            "SELECT r.reserved_at, CASE WHEN r.freed_version IS NULL THEN clock_timestamp()"
            " ELSE coalesce(b.released_at, r.ended_at) END"
            " FROM regional.reservations AS r LEFT JOIN regional.bindings AS b USING"
            " (region, token) WHERE r.workload = 'score'"
        )
        spans = await rows.fetchall()
    moves = sorted([(at, 1) for at, _ in spans] + [(at, -1) for _, at in spans])
    live = most = 0
    for _, change in moves:
        live += change
        most = max(most, live)
    return most


async def request_of(plane: Plane, region: RegionId = EAST) -> SchedulingRequest | None:
    return await read_request(plane.databases, region, RISK, SCORE, 1)


async def settled(plane: Plane, *, placed: int, region: RegionId = EAST) -> SchedulingRequest:
    """The request once so many slots have a claim, and the rest is held back."""

    async def look() -> SchedulingRequest | None:
        found = await request_of(plane, region)
        if found is None:
            return None
        ended = len(found.completed) + len(found.given_up)
        live = len(found.slots) - found.waiting - found.held_back - ended
        return found if live == placed and not found.waiting else None

    found = await until(look, f"{placed} of its slots are placed")
    assert found is not None
    return found


async def condition(plane: Plane, type: str) -> Condition:
    status = await plane.durable.status("risk", "score")
    return next(one for one in status.conditions if one.type == type)


async def with_condition(plane: Plane, type: str, status: bool | None) -> Condition:
    async def look() -> Condition | None:
        found = await condition(plane, type)
        return found if found.status is status else None

    found = await until(look, f"{type} is {status}")
    assert found is not None
    return found


async def done(plane: Plane) -> WorkloadStatus:
    return await plane.durable.wait("risk", "score", until="complete", within_seconds=180)


# ── parallelism ─────────────────────────────────────────────────────────────────────────────────


async def test_a_job_runs_no_more_slots_at_once_than_it_may(plane: Plane) -> None:
    await furnished(plane)
    await plane.durable.apply(job(8, job={"parallelism": 3}))
    status = await done(plane)
    assert (status.phase, status.completed, status.wanted) == ("complete", 8, 8)
    assert await most_at_once(plane) == 3
    await plane.no_invariant_is_broken()


async def test_a_slot_that_is_held_back_waits_for_nothing_else(plane: Plane) -> None:
    await furnished(plane, gate=True)
    await plane.durable.apply(job(5, job={"parallelism": 2}, deadlines={"placed": "1s"}))
    found = await settled(plane, placed=2)
    assert (found.state, found.held_back, found.at_once) == (RequestState.PLACED, 3, 2)
    assert found.pending is not None
    assert (found.pending.code, found.next_retry_at) == ("parallelism", None)
    assert found.pending.sentence == (
        "3 slots wait until another has ended: 2 slots of it may run at once here."
    )
    assert await read_queue(plane.databases, EAST) == []
    shown = await plane.placement("score")
    assert (shown.phase, shown.owner) == ("progressing", "the node's agent")

    who = {"actor": "person:ann", "reason": "impatient", "request_id": "now"}
    answer = await plane.handle("score").execute_update("retry_now", who)
    assert "may run at once" in answer
    assert len(await read_decisions(plane.databases, EAST, RISK, SCORE, last=10)) == 1
    set_faults(plane)
    assert (await done(plane)).completed == 5
    assert await most_at_once(plane) == 2


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_regions_share_what_may_run_at_once_and_each_comes_to_its_end(
    plane: Plane, parallelism: int
) -> None:
    await furnished(plane, EAST, WEST)
    await plane.durable.apply(job(7, job={"parallelism": parallelism}))
    status = await done(plane)
    assert (status.phase, status.completed) == ("complete", 7)
    assert all(one.completed for one in status.regions)
    assert await most_at_once(plane) <= parallelism


async def test_what_a_finished_region_no_longer_runs_another_may(plane: Plane) -> None:
    await plane.load(small_fleet("east", "west"))
    set_faults(plane, {**GATE, "node": "west-*"})
    await (await plane.host(EAST, WEST, delays=QUICKLY)).work(EAST, WEST)
    await plane.durable.apply(job(8, job={"parallelism": 4}))
    found = await settled(plane, placed=4, region=WEST)
    assert found.at_once == 4
    set_faults(plane)
    assert (await done(plane)).completed == 8
    assert await most_at_once(plane) == 4


async def test_a_region_that_cannot_use_its_part_does_not_starve_another(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "UNUSED_PART", timedelta(seconds=1))
    await furnished(plane, EAST, WEST, gate=True)
    await plane.durable.apply(job(5, weights={"east": 2}, job={"parallelism": 1}))
    await until(lambda: runs_in(plane, EAST), "the larger share has the first turn")
    zone = NodesTarget(region=EAST, kind=NodesKind.ZONE, name=ZoneId("east-a"))
    await cordon_nodes(plane.databases, zone, reason="upkeep", actor=ActorId("test"))
    # What ran in east fails, and finds no other node there.
    set_faults(plane, {**GATE, "node": "west-*"}, {"kind": "crash", "node": "east-*"})
    await until(lambda: runs_in(plane, WEST), "west has its turn")
    assert await runs_in(plane, EAST) is False
    assert await most_at_once(plane) == 1


async def runs_in(plane: Plane, region: RegionId) -> bool:
    return bool(await plane.bindings(region))


async def test_a_new_generation_begins_when_the_old_one_runs_nothing(plane: Plane) -> None:
    await furnished(plane, gate=True)
    await plane.durable.apply(job(4, job={"parallelism": 2}))
    await settled(plane, placed=2)
    set_faults(plane)
    await plane.durable.apply(job(4, job={"parallelism": 2}, run={"image": "score:2"}))
    status = await done(plane)
    assert (status.generation, status.completed) == (2, 4)
    assert await most_at_once(plane) == 2


async def test_parallelism_holds_from_run_to_run(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "EVENTS_PER_RUN", 20)
    await furnished(plane, EAST, WEST)
    await plane.durable.apply(job(10, job={"parallelism": 2}))
    assert (await done(plane)).completed == 10
    assert await most_at_once(plane) <= 2


# ── failures ────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_that_fails_too_often_in_all_is_given_up_with_the_reason(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=3))
    set_faults(plane, {"kind": "crash", "node": "east-general-000[01]", "workload": "risk/score"})
    await (await plane.host(delays=QUICKLY)).work()
    await plane.durable.apply(job(3, job={"max_failures": 2}, spread={"max_per_node": 1}))
    status = await done(plane)
    assert status.phase == "failed"
    assert status.failures >= 2
    complete = next(one for one in status.conditions if one.type == "Complete")
    assert (complete.status, complete.reason) == (False, "TooManyFailures")
    assert "in all, and max_failures is 2" in complete.sentence
    ended = await buried(plane)
    assert ended.end == "failed"
    await plane.no_invariant_is_broken()


async def test_what_completed_before_a_job_was_given_up_stays_counted(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {**GATE, "node": "east-general-0000"})
    await (await plane.host(delays=QUICKLY)).work()
    await plane.durable.apply(job(2, job={"max_failures": 1}, spread={"max_per_node": 1}))
    await until(lambda: has_completed(plane, 1), "one is done")
    set_faults(plane, {"kind": "crash", "node": "*", "workload": "risk/score"})
    status = await done(plane)
    assert (status.phase, status.completed, status.failures) == ("failed", 1, 1)


async def test_an_exit_code_that_is_fatal_is_not_retried(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "crash", "node": "east-general-0000", "exit_code": 3})
    await (await plane.host(delays=QUICKLY)).work()
    fatal = {"fatal_exit_codes": [3]}
    status = await plane.durable.place(
        job(2, job=fatal, spread={"max_per_node": 1}), request_id="run"
    )
    assert (status.phase, status.completed, status.given_up) == ("failed", 1, 1)
    assert sorted(await plane.started("score")) == [0, 1]


async def test_another_exit_code_is_retried(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "crash", "node": "east-general-0000", "exit_code": 4})
    await (await plane.host(delays=QUICKLY)).work()
    status = await plane.durable.place(job(2, job={"fatal_exit_codes": [3]}), request_id="run")
    assert (status.phase, status.completed) == ("complete", 2)


# ── memory ──────────────────────────────────────────────────────────────────────────────────────


async def has_completed(plane: Plane, count: int) -> bool:
    found = await request_of(plane)
    return found is not None and len(found.completed) >= count


async def has_ended(plane: Plane, completed: int, given_up: int) -> bool:
    found = await request_of(plane)
    return found is not None and (len(found.completed), len(found.given_up)) == (
        completed,
        given_up,
    )


async def tombstone(plane: Plane) -> AdmittedWorkload | None:
    found = await read_workload(plane.databases, RISK, SCORE)
    return found if found is not None and found.deleted else None


async def buried(plane: Plane) -> AdmittedWorkload:
    ended = await until(lambda: tombstone(plane), "the authority knows its end")
    assert ended is not None
    return ended


async def terminate_all(plane: Plane) -> None:
    client = plane.durable.client
    await client.get_workflow_handle(workload_id(RISK, SCORE)).terminate("by mistake")
    await plane.handle("score").terminate("by mistake")


async def test_a_terminated_job_runs_nothing_again_that_is_done_or_fatal(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=4))
    set_faults(
        plane,
        {"kind": "crash", "node": "east-general-0000", "exit_code": 3},
        {**GATE, "node": "east-general-0001"},
    )
    await (await plane.host(delays=QUICKLY)).work()
    made = job(4, job={"fatal_exit_codes": [3], "deadline": "1h"}, spread={"max_per_node": 1})
    await plane.durable.apply(made, request_id="run")
    await until(lambda: has_ended(plane, 2, 1), "two are done and one has failed for good")
    before = await read_workload(plane.databases, RISK, SCORE)
    await terminate_all(plane)

    set_faults(plane)
    status = await done(plane)
    assert (status.phase, status.completed, status.given_up) == ("failed", 3, 1)
    assert status.failures == 1
    assert sorted(await plane.started("score")) == [0, 1, 2, 3]
    assert before is not None
    assert status.due_at == before.deadline


async def test_a_terminated_placement_waits_out_the_backoff_of_what_failed(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=4))
    set_faults(plane, {"kind": "crash", "node": "*", "workload": "risk/score"})
    await (await plane.host(delays=QUICKLY)).work()
    await plane.durable.apply(job(1, max_attempts=4), request_id="run")
    await until(lambda: has_failed(plane, 3), "it failed three times")
    set_faults(plane)
    await plane.handle("score").terminate("by mistake")
    assert (await done(plane)).completed == 1

    gaps = await gaps_after_failures(plane)
    assert len(gaps) == 3
    # 1, 2 and 4 seconds, by the workflow's clock; the termination came in the last.
    assert gaps[2] > 3.0


async def has_failed(plane: Plane, times: int) -> bool:
    found = await request_of(plane)
    return found is not None and found.failures >= times and found.waiting == 1


async def gaps_after_failures(plane: Plane) -> list[float]:
    """From each failure to the next reservation, in seconds."""
    assert plane.settings.database_url is not None
    async with await psycopg.AsyncConnection.connect(plane.settings.database_url) as connection:
        rows = await connection.execute(
            "SELECT r.reserved_at, o.received_at FROM regional.reservations AS r"
            " JOIN regional.observations AS o USING (region, token) ORDER BY token"
        )
        tries = await rows.fetchall()
    return [(later[0] - earlier[1]).total_seconds() for earlier, later in pairwise(tries)]


async def test_a_terminated_workload_does_not_let_more_run_at_once(plane: Plane) -> None:
    await furnished(plane, EAST, WEST, gate=True)
    await plane.durable.apply(job(8, job={"parallelism": 3}), request_id="run")
    for region in (EAST, WEST):
        await until(lambda r=region: request_of(plane, r), "it is known")
    client = plane.durable.client
    await client.get_workflow_handle(workload_id(RISK, SCORE)).terminate("by mistake")
    set_faults(plane)
    assert (await done(plane)).completed == 8
    assert await most_at_once(plane) <= 3


# ── deadline ────────────────────────────────────────────────────────────────────────────────────


async def missed_events(plane: Plane) -> int:
    events, _ = await read_events(plane.databases, chain="global", last=100)
    return sum(event.action == "miss deadline" for event in events)


async def test_a_missed_deadline_is_a_condition_and_one_event_and_the_job_goes_on(
    plane: Plane,
) -> None:
    await furnished(plane, gate=True)
    await plane.durable.apply(job(2, job={"deadline": "2s"}), request_id="run")
    before = await condition(plane, "DeadlineMet")
    assert (before.status, before.reason) in ((None, "DeadlineAhead"), (False, "DeadlineMissed"))
    missed = await with_condition(plane, "DeadlineMet", False)
    assert missed.reason == "DeadlineMissed"
    assert await missed_events(plane) == 1

    await terminate_all(plane)
    set_faults(plane)
    status = await done(plane)
    assert (status.phase, status.completed) == ("complete", 2)
    assert await missed_events(plane) == 1
    ended = await buried(plane)
    kept = {one.type: one.status for one in ended.conditions}
    assert (kept["Complete"], kept["DeadlineMet"]) == (True, False)


async def test_a_job_that_is_done_in_time_says_so(plane: Plane) -> None:
    await furnished(plane)
    status = await plane.durable.place(job(2, job={"deadline": "1h"}), request_id="run")
    kept = {one.type: one.status for one in status.conditions}
    assert (kept["Complete"], kept["DeadlineMet"]) == (True, True)
    assert await missed_events(plane) == 0


async def test_urgency_changes_the_order_of_the_queue(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=1, cpu=4))
    await (await plane.host()).work()
    await plane.durable.apply(manifest("full", replicas=1, resources={"cpu": 4}))
    await plane.durable.wait("risk", "full")
    await plane.durable.apply(
        manifest("calm", replicas=1, kind="job", priority=120, resources={"cpu": 2})
    )
    late = job(1, job={"deadline": "4s"}, priority=100, resources={"cpu": 2})
    await plane.durable.apply(late)

    async def order() -> list[tuple[str, int]]:
        queue = await read_queue(plane.databases, EAST)
        return [(str(one.workload), one.priority) for one in queue]

    async def is_urgent() -> bool:
        return await order() == [("score", 300), ("calm", 120)]

    await until(is_urgent, "what is due soon goes first")
    await plane.durable.delete("risk", "full", reason="room for others")
    await done(plane)
    decided = await read_decisions(plane.databases, EAST, RISK, SCORE, last=1)
    request = PlacementRequest.read(decided[-1].evidence["request"])
    assert (request.spec.priority, request.urgency, request.priority) == (100, 200, 300)


# ── what is listed, and what is refused ─────────────────────────────────────────────────────────


async def test_a_job_that_ended_is_listed_until_its_time_is_over(plane: Plane) -> None:
    await furnished(plane)
    made = job(1, job={"ttl_after_finished": "1h"})
    await plane.durable.place(made, request_id="run")
    ended = await buried(plane)
    listed = await list_workloads(plane.databases, deleted=True)
    assert [str(one.workload) for one in listed] == ["score"]
    late = datetime(2200, 1, 1, tzinfo=UTC)
    assert await list_workloads(plane.databases, deleted=True, now=late) == []
    assert ended.generation == 1

    status = await plane.durable.place(made, request_id="again")
    assert (status.generation, status.completed) == (2, 1)


async def test_the_same_request_runs_a_job_once(plane: Plane) -> None:
    await furnished(plane)
    made = job(2, job={"parallelism": 1, "deadline": "1h"})
    await plane.durable.place(made, request_id="run")
    await buried(plane)
    again = await plane.durable.apply(made, request_id="run")
    assert again.generation == 1
    assert sorted(await plane.started("score")) == [0, 1]


async def test_a_job_is_not_scaled(plane: Plane) -> None:
    await furnished(plane, gate=True)
    await plane.durable.apply(job(3, job={"parallelism": 1}))
    with pytest.raises(RefusedError, match="is not scaled"):
        await plane.durable.scale("risk", "score", 5)
    assert (await plane.durable.status("risk", "score")).wanted == 3

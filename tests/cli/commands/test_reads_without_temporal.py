"""What `explain` and `get` say of attempts, tenants and workloads, from the authority alone."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import record_decisions
from durable.authority.queue.requests import write_requests
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.placement.records import Decision
from durable.model.placement.request import SchedulingRequest
from durable.model.states import RequestState
from durable.model.work.workload import WorkloadManifest
from durable.scheduling.request import Evidence, Proposal
from tests.authority.world import admit_workload

from ..terminal import Terminal

FLEET = """
regions:
  - {id: north, zones: [a], pools: [{name: one, zone: a, count: 1, capacity: {cpu: 8}}]}
  - {id: south, zones: [b], pools: [{name: one, zone: b, count: 1, capacity: {cpu: 8}}]}
tenants:
  - {id: shop, hard: {cpu: 8}, grants: {north: {cpu: 4}, south: {cpu: 4}}}
  - {id: idle, hard: {cpu: 8}, grants: {north: {cpu: 4}}}
"""
NORTH, SOUTH = RegionId("north"), RegionId("south")
SPEC = {"replicas": 3, "resources": {"cpu": 1}}
TRIED = WorkloadManifest.model_validate({"tenant": "shop", "name": "tried", "spec": SPEC})
JOB = WorkloadManifest.model_validate(
    {"tenant": "shop", "name": "job", "spec": {**SPEC, "replicas": 4, "kind": "job"}}
)
FRESH = WorkloadManifest.model_validate({"tenant": "shop", "name": "fresh", "spec": SPEC})


def decided(region: RegionId, attempt: int, slots: list[int]) -> Decision:
    evidence = Evidence(
        policy_revision=1, cache_version=1, cache_age_seconds=0.0, nodes=1, feasible=0
    )
    proposal = Proposal(assignments=(), unplaced=tuple(slots), pending=None, evidence=evidence)
    return Decision(
        region=region,
        tenant=TenantId("shop"),
        workload=WorkloadName("tried"),
        generation=1,
        attempt=attempt,
        policy_revision=1,
        cache_version=1,
        evidence={"proposal": proposal.model_dump(mode="json"), "request": {"slots": [*slots]}},
        decided_at=datetime(2026, 5, 1, 12, 0, attempt, tzinfo=UTC),
    )


async def fill(database_url: str) -> None:
    """shop/tried after eight attempts in the north and one in the south, shop/fresh after none."""
    async with Databases(database_url) as databases:
        for manifest in (TRIED, FRESH):
            await admit_workload(
                databases,
                manifest,
                request=f"first/{manifest.name}",
                actor=ActorId("service:test"),
                divide=lambda _: {NORTH: (0, 1), SOUTH: (2,)},
            )
        north = [decided(NORTH, number, [0, 1] if number < 3 else [1]) for number in range(1, 9)]
        await record_decisions(databases, NORTH, north)
        await record_decisions(databases, SOUTH, [decided(SOUTH, 1, [2])])


def asked(
    region: RegionId, slots: tuple[int, ...], state: RequestState, done: tuple[int, ...]
) -> SchedulingRequest:
    return SchedulingRequest(
        region=region,
        tenant=JOB.tenant,
        workload=JOB.name,
        generation=1,
        slots=slots,
        priority=100,
        state=state,
        enqueued_at=datetime(2026, 5, 1, 12, tzinfo=UTC),
        deadline=datetime(2026, 5, 1, 13, tzinfo=UTC),
        spec=JOB.spec,
        completed=done,
    )


async def run_job(database_url: str) -> None:
    """shop/job, whose part in the north is over, and in the south half done."""
    async with Databases(database_url) as databases:
        await admit_workload(
            databases,
            JOB,
            request="first/job",
            actor=ActorId("service:test"),
            divide=lambda _: {NORTH: (0, 1), SOUTH: (2, 3)},
        )
        north = asked(NORTH, (0, 1), RequestState.WITHDRAWN, done=(0, 1))
        await write_requests(databases, NORTH, [north])
        await write_requests(
            databases, SOUTH, [asked(SOUTH, (2, 3), RequestState.PLACED, done=(2,))]
        )


@pytest.fixture
def terminal(terminal: Terminal, database_url: str, tmp_path: Path) -> Terminal:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    assert terminal.run("fleet", "load", "-f", str(fleet)) == 0, terminal.stderr
    asyncio.run(fill(database_url))
    return terminal


def test_omitted_attempts_are_counted(terminal: Terminal) -> None:
    north, south = terminal.json("explain", "shop/tried")["regions"]
    assert [one["attempt"] for one in north["attempts"]] == [4, 5, 6, 7, 8]
    assert (north["attempts_omitted"], south["attempts_omitted"]) == (3, 0)
    assert terminal.run("explain", "shop/tried") == 0
    assert terminal.stdout.count("not shown") == 1
    assert "3 earlier attempts not shown; --attempt N shows one" in terminal.stdout


def test_of_one_slot_only_its_own_attempts_are_counted(terminal: Terminal) -> None:
    [first] = terminal.json("explain", "shop/tried", "--slot", "0")["regions"]
    assert ([one["attempt"] for one in first["attempts"]], first["attempts_omitted"]) == (
        [1, 2],
        0,
    )
    [second] = terminal.json("explain", "shop/tried", "--slot", "1")["regions"]
    assert second["attempts_omitted"] == 3


def test_one_attempt_is_explained_by_the_regions_that_made_it(terminal: Terminal) -> None:
    [north] = terminal.json("explain", "shop/tried", "--attempt", "2")["regions"]
    assert (north["region"], north["attempts_omitted"]) == ("north", 0)
    assert len(terminal.json("explain", "shop/tried", "--attempt", "1")["regions"]) == 2


def test_an_attempt_that_nobody_made_is_refused(terminal: Terminal) -> None:
    message = terminal.refused("explain", "shop/tried", "--attempt", "9")
    assert "There is no attempt 9 for shop/tried in generation 1" in message
    assert "north made attempts 1 to 8, south made only attempt 1." in message
    message = terminal.refused("explain", "shop/tried", "--slot", "0", "--attempt", "3")
    assert "no attempt 3 for slot 0 of shop/tried" in message
    assert "north made attempts 1 to 2." in message
    message = terminal.refused("explain", "shop/fresh", "--attempt", "1")
    assert "no attempt was made" in message


def test_an_empty_list_names_its_tenant(terminal: Terminal) -> None:
    for kind in ("workloads", "placements"):
        assert terminal.run("get", kind, "--tenant", "idle") == 0
        assert f"There are no {kind} of idle yet" in terminal.stdout
        assert terminal.json("get", kind, "--tenant", "idle")["total"] == 0
        assert "There is no tenant nope" in terminal.refused("get", kind, "--tenant", "nope")


def test_a_running_job_is_listed_with_what_all_regions_have_done(
    terminal: Terminal, database_url: str
) -> None:
    asyncio.run(run_job(database_url))
    rows = terminal.json("get", "workloads")["workloads"]
    found = {row["workload"]: (row["completed"], row["phase"]) for row in rows}
    assert found["shop/job"] == (3, "progressing")
    assert found["shop/tried"] == (None, "progressing")


def test_decisions_on_what_was_never_admitted_are_refused(terminal: Terminal) -> None:
    assert "There is no workload shop/none" in terminal.refused("get", "decisions", "shop/none")
    assert terminal.run("get", "decisions", "shop/fresh") == 0
    assert "There are no decisions on shop/fresh yet" in terminal.stdout


def test_times_of_decisions_are_printed_like_all_others(terminal: Terminal) -> None:
    assert terminal.run("get", "decisions", "shop/tried", "--last", "1") == 0
    assert "2026-05-01 12:00:08Z" in terminal.stdout
    [row, _] = terminal.json("get", "decisions", "shop/tried", "--last", "1")["decisions"]
    assert row["decided_at"] == "2026-05-01T12:00:08Z"

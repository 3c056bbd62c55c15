"""What is wrong with workflows, regions and claims is found, and is gone once it is right again."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from temporalio import workflow
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from durable.health.diagnosis import diagnose
from durable.health.findings import HealthFinding
from durable.signals.names import PLACEMENT, regional_queue
from durable.temporal import signs_of_life
from durable.temporal.connection import connect
from durable.temporal.worker import global_worker, patient
from tests.cli.terminal import Terminal
from tests.workflows.plane import EAST, INSTANTLY, WEST, Plane, manifest, small_fleet, until
from tests.workflows.processes import WORKER, process

WORKLOAD = "workload/risk/api"
NEVER_STOPS = replace(INSTANTLY, stop_seconds=3600)


async def found(plane: Plane) -> dict[str, HealthFinding]:
    address = plane.settings.require_temporal_address()
    findings = await diagnose(plane.settings, plane.databases, address)
    return {finding.code: finding for finding in findings}


async def codes(plane: Plane) -> set[str]:
    return set(await found(plane))


def long_ago(plane: Plane) -> None:
    """Moves every request into the past: what a recent change is about to start is not missing."""
    with psycopg.connect(plane.settings.require_database_url()) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE global.operator_requests SET at = at - interval '1 hour'")


@pytest.fixture
def terminal(
    plane: Plane, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """Commands at the plane; to be run in a thread of their own."""
    for name in ("database_url", "temporal_address", "temporal_namespace", "state_dir"):
        monkeypatch.setenv(f"DURABLE_{name.upper()}", str(getattr(plane.settings, name)))
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(capsys)


async def test_a_region_that_nobody_serves_is_found(plane: Plane) -> None:
    await plane.load(small_fleet("east", "west"))
    assert await codes(plane) == {"queue_unserved", "region_without_nodes"}
    await plane.work(EAST)
    await plane.host(EAST)

    async def only_the_west() -> bool:
        now = await found(plane)
        return "east" not in now["region_without_nodes"].names and now["queue_unserved"].names == (
            "durable-region-west",
        )

    await until(only_the_west, "only the west lacks a worker and an agent")
    await plane.work(WEST)
    await plane.host(WEST)

    async def nothing() -> bool:
        return not await codes(plane)

    await until(nothing, "nothing is wrong")


async def test_a_worker_that_hangs_is_named_beside_one_that_serves(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal counts it as polling for minutes, and its queue has another worker."""
    monkeypatch.setattr(signs_of_life, "LONGEST_SILENCE", 3 * signs_of_life.INTERVAL)
    await (await (await plane.load()).host()).work()
    client = await connect(plane.settings, plane.settings.require_temporal_address())

    async def signs() -> set[str]:
        request = ListWorkersRequest(namespace=client.namespace)
        answer = await client.workflow_service.list_workers(request)
        return {one.worker_heartbeat.worker_identity for one in answer.workers_info}

    with process(plane.settings, WORKER) as worker:
        name = f"{worker.pid}@{socket.gethostname()}"

        async def shows_life() -> bool:
            return name in await signs()

        await until(shows_life, "the process serves")
        os.kill(worker.pid, signal.SIGSTOP)
        try:

            async def is_named() -> bool:
                now = await found(plane)
                return "worker_silent" in now and now["worker_silent"].names == (name,)

            await until(is_named, "the worker that hangs is named, and no other")
        finally:
            os.kill(worker.pid, signal.SIGCONT)

        async def is_well() -> bool:
            return "worker_silent" not in await codes(plane)

        await until(is_well, "it shows life again")
    assert "worker_silent" not in await codes(plane), "who was killed here is not said to hang"


async def test_workloads_and_placements_without_a_workflow_are_found(
    plane: Plane, terminal: Terminal
) -> None:
    await (await (await plane.load()).host()).work()
    for name in ("api", "web"):
        await plane.durable.apply(manifest(name))
        await plane.durable.wait("risk", name)
    assert await codes(plane) == set()
    await plane.stack.aclose()
    await plane.handle("web").terminate()
    await plane.durable.client.get_workflow_handle(WORKLOAD).terminate()
    long_ago(plane)

    now = await found(plane)
    assert now["workloads_unmanaged"].names == ("risk/api",)
    assert now["placements_missing"].names == ("placement/risk/web/g1/east",)
    rows = await asyncio.to_thread(terminal.json, "get", "workloads")
    said = {row["workload"]: row["problem"] for row in rows["workloads"]}
    listed = await plane.durable.get("workloads", problems=True)
    assert {row.workload: row.problem for row in listed} == said, "the SDK lists the same"
    assert said["risk/api"] == (
        "no workflow manages it: the global worker starts one, or run `durable reconcile`"
    )
    assert "east: no placement runs" in said["risk/web"]
    rows = await asyncio.to_thread(terminal.json, "get", "placements")
    said = {row["placement"]: row["problem"] for row in rows["placements"]}
    assert "no placement runs" in said["placement/risk/web/g1/east"]
    assert said["placement/risk/api/g1/east"] is None
    assert await asyncio.to_thread(terminal.run, "doctor") == 1
    assert "1 workload is wanted, but no workflow manages it" in terminal.stdout

    await plane.durable.client.get_workflow_handle("workload/risk/web").terminate()
    lost = (await found(plane))["workflows_missing"]
    assert "`durable reconcile` does so at once" in lost.sentence
    assert lost.runbook == "runbooks/temporal-lost.md"


async def test_a_share_whose_placement_was_never_started_is_listed(
    plane: Plane, terminal: Terminal
) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest("api"))
    await plane.durable.wait("risk", "api")
    await plane.stack.aclose()
    await plane.handle("api").terminate()
    with psycopg.connect(plane.settings.require_database_url()) as connection:
        connection.execute("UPDATE global.workloads SET generation = 2, generations = 2")
    rows = await asyncio.to_thread(terminal.json, "get", "placements")
    said = {row["placement"]: (row["state"], row["problem"]) for row in rows["placements"]}
    state, problem = said["placement/risk/api/g2/east"]
    assert state == "unrecorded"
    assert problem == "no placement runs yet: its workload is about to start one"


async def test_a_listed_workload_waits_when_its_own_status_does(
    plane: Plane, terminal: Terminal
) -> None:
    """Its slot does not come to the west before the replica in the east stops, which never does."""
    await plane.load(small_fleet("east", "west"))
    await (await plane.host(EAST, WEST, delays=NEVER_STOPS)).work(EAST, WEST)
    await plane.durable.apply(manifest(replicas=1, weights={"east": 1, "west": 0}))
    await plane.durable.wait("risk", "api")
    other = {"cpu": "600m", "memory": "256Mi"}
    moved = manifest(replicas=1, resources=other, weights={"east": 0, "west": 1})
    await plane.durable.apply(moved)

    async def waits() -> bool:
        progress = (await plane.durable.status("risk", "api")).progress
        return progress is not None and progress.leaving == 1

    await until(waits, "the workload waits for its slot")
    own = await plane.durable.status("risk", "api")
    assert own.phase == "rolling"
    [row] = (await asyncio.to_thread(terminal.json, "get", "workloads"))["workloads"]
    assert row["phase"] == own.phase


@workflow.defn(name=PLACEMENT, sandboxed=False)
class Broken:
    """A release whose placement cannot even begin."""

    @workflow.run
    async def run(self, _: Any) -> None:
        raise RuntimeError("a bug of this release")


async def test_a_workflow_that_fails_its_tasks_is_found(plane: Plane, terminal: Terminal) -> None:
    await (await plane.load()).host()
    client = await connect(plane.settings, plane.settings.require_temporal_address())
    await plane.stack.enter_async_context(global_worker(client, plane.databases))
    broken = patient(
        Worker(
            client,
            task_queue=regional_queue(EAST),
            workflows=[Broken],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
    )
    id = "placement/risk/api/g1/east"
    async with broken:
        await plane.durable.apply(manifest("api"))

        async def fails() -> HealthFinding | None:
            return (await found(plane)).get("workflows_failing")

        failing = await until(fails, "the placement is found to fail its tasks")
    assert failing is not None
    assert failing.names == (id,)
    assert "workflow worker unhandled failure" in failing.sentence
    for command in ("get", "placements"), ("get", "workloads"), ("doctor",):
        await asyncio.to_thread(terminal.run, *command)
        assert "runbooks/workflow-stuck.md" in terminal.stdout, command

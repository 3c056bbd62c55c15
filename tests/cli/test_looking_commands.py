"""`explain`, `get`, `logs` and `worker` on a control plane that really runs, and the SDK beside."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durable.client import Durable
from durable.model.phases import Owner
from durable.plan.planner import Action
from durable.settings import Settings

from .conftest import Write
from .terminal import Terminal

SEEN = """
tenant: shop
name: seen
spec:
  replicas: 3
  resources: {cpu: 1, memory: 1Gi}
"""
DEADLINE_SECONDS = 60.0


@pytest.fixture
def seen(at_plane: Terminal, write: Write) -> Terminal:
    """A terminal at a stack where shop/seen serves."""
    at_plane.json("apply", "-f", write(SEEN))
    return at_plane


def test_an_explanation_tells_the_whole_story(seen: Terminal) -> None:
    told = seen.json("explain", "shop/seen")
    assert (told["workload"], told["generation"], told["ended"]) == ("seen", 1, False)
    for region in told["regions"]:
        assert region["owner"] == Owner.NOBODY
        assert region["queue"]["queue_seconds"] >= 0
        *_, attempt = region["attempts"]
        assert attempt["policy_revision"] >= 1
        assert attempt["cache_version"] >= 1
        assert attempt["grant_before"] != attempt["grant_after"]
        assert attempt["candidates"][0]["scores"]
        steps = {step["step"] for step in attempt["steps"] if step["refusal"] is None}
        assert {"reserve", "bind", "start"} <= steps
        assert {slot["state"] for slot in region["observed"]} == {"serving"}
    assert seen.run("explain", "shop/seen") == 0
    for word in (
        "Queue:",
        "policy revision",
        "Grant:",
        "Filters:",
        "Candidate",
        "Reserve: committed",
    ):
        assert word in seen.stdout


def test_one_slot_and_one_attempt_are_told_alone(seen: Terminal) -> None:
    [region] = seen.json("explain", "shop/seen", "--slot", "1")["regions"]
    assert region["slots"] == [1]
    assert [slot["slot"] for slot in region["observed"]] == [1]
    assert {step["slot"] for one in region["attempts"] for step in one["steps"]} == {1}
    attempts = seen.json("explain", "shop/seen", "--attempt", "1")["regions"]
    assert all(one["attempt"] == 1 for region in attempts for one in region["attempts"])


def test_what_was_never_decided_is_said_to_be_so(seen: Terminal) -> None:
    assert "only generation 1; there is no generation 7" in seen.refused(
        "explain", "shop/seen", "--generation", "7"
    )
    said = seen.refused("explain", "shop/seen", "--attempt", "1000000")
    assert (
        "There is no attempt 1000000 for shop/seen in generation 1: north made only attempt 1"
        in said
    )
    assert "slot 99" in seen.refused("explain", "shop/seen", "--slot", "99")
    seen.wrong("explain", "shop/seen", "--slot", "-1")
    seen.wrong("explain", "shop/seen", "--generation", "0")


def test_every_kind_is_listed_and_filtered(seen: Terminal) -> None:
    regions = seen.json("get", "regions", "--live")["regions"]
    assert [(row["region"], row["nodes"], row["live"]) for row in regions] == [
        ("north", 6, 6),
        ("south", 4, 4),
    ]
    assert seen.json("get", "nodes")["total"] == 10
    nodes = seen.json("get", "nodes", "--region", "south", "--limit", "2")
    assert (nodes["total"], len(nodes["nodes"])) == (4, 2)
    assert all(node["live"] for node in nodes["nodes"])
    [tenant] = seen.json("get", "tenants")["tenants"]
    assert tenant["tenant"] == "shop"
    assert tenant["hard"] == {"cpu_millis": 90_000, "memory_mib": 400 * 1024, "gpus": 0}
    assert nodes["nodes"][0]["capacity"]["memory_mib"] in (8 * 1024, 32 * 1024)
    assert regions[0]["capacity"]["cpu_millis"] == 48_000
    placements = seen.json("get", "placements", "--region", "north", "--tenant", "shop")
    mine = [
        p for p in placements["placements"] if p["placement"].startswith("placement/shop/seen/")
    ]
    assert mine[0]["slots"][0]["state"] == "serving"
    decisions = seen.json("get", "decisions", "shop/seen")["decisions"]
    assert {row["region"] for row in decisions} == {"north", "south"}
    [row] = [
        row for row in seen.json("get", "workloads")["workloads"] if row["workload"] == "shop/seen"
    ]
    assert (row["serving"], row["phase"]) == (3, "serving")


@pytest.mark.parametrize("kind", ["workloads", "placements", "nodes", "tenants", "regions"])
def test_every_list_is_readable(seen: Terminal, kind: str) -> None:
    assert seen.run("get", kind, "--limit", "1") == 0
    assert len([line for line in seen.stdout.splitlines() if line.strip()]) >= 3
    assert "Traceback" not in seen.stderr


def test_a_wrong_filter_is_told(seen: Terminal) -> None:
    assert "the regions are north, south" in seen.refused("get", "nodes", "--region", "west")
    seen.wrong("get", "nodes", "--region", "No Such")
    seen.wrong("get", "workloads", "--tenant", "No Such")
    seen.wrong("get", "nodes", "--limit", "0")
    assert "There is no tenant nobody" in seen.refused("get", "workloads", "--tenant", "nobody")


def test_simulated_replicas_have_no_logs(seen: Terminal) -> None:
    assert "a simulated node" in seen.refused("logs", "shop/seen", "0")
    assert "not bound to any node" in seen.refused("logs", "shop/seen", "99")
    seen.wrong("logs", "shop/seen", "x")
    seen.wrong("logs", "shop/seen", "0", "--follow", "--json")


def test_the_sdk_plans_and_explains(seen: Terminal, plane: Path) -> None:
    manifest: dict[str, Any] = {
        "tenant": "shop",
        "name": "seen",
        "spec": {"replicas": 3, "resources": {"cpu": 1, "memory": "1Gi"}},
    }

    async def ask() -> None:
        async with await Durable.connect(Settings(state_dir=plane)) as durable:
            assert (await durable.plan(manifest)).action is Action.NOTHING
            told = await durable.explain("shop", "seen", slot=0)
            assert [region.slots for region in told.regions] == [(0,)]

    asyncio.run(ask())


def test_a_worker_of_an_unknown_region_is_refused(seen: Terminal) -> None:
    said = seen.refused("worker", "--region", "west")
    assert "There is no region west; the regions are north, south." in said
    assert "--global" in seen.wrong("worker")
    seen.wrong("worker", "--region", "No Such")


def test_temporal_is_asked_who_serves(seen: Terminal) -> None:
    found = seen.json("worker", "--global", "--region", "all", "--check")
    assert found["served"] is True
    assert set(found["queues"]) == {
        "durable-global",
        "durable-region-north",
        "durable-region-south",
    }
    assert "durable-region-west" in seen.refused("worker", "--region", "west", "--check")


def test_a_worker_drains_when_it_is_told_to_end(seen: Terminal, plane: Path) -> None:
    environment = {**os.environ, "DURABLE_STATE_DIR": str(plane)}
    command = [sys.executable, "-m", "durable.cli", "worker", "--region", "north", "--global"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        serving = {worker.stderr.readline().split(" ", 1)[1].strip() for _ in range(2)}
        assert serving == {"serving workloads", "serving placements of north"}
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_SECONDS) == 0
        assert "draining" in worker.stderr.read()


def test_the_stack_knows_how_its_own_processes_are(seen: Terminal) -> None:
    assert seen.run("status", "--json") == 0, seen.stdout
    parts = {part["name"]: part for part in json.loads(seen.stdout)["parts"]}
    assert parts["worker-global"]["detail"] == "works"
    assert parts["agent"]["healthy"]

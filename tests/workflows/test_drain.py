"""Nodes are emptied within the floors of what runs there, and a drain says what keeps it."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RetryPolicy

from durable.activities import drain as drain_steps
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_drains
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.fleet.node_reads import read_node
from durable.authority.operators import authorization
from durable.authority.reads.shares import read_shares
from durable.controllers import reconciler
from durable.model.fleet.drain import (
    Drain,
    DrainState,
    LeftCode,
    NodesKind,
    NodesTarget,
    WorkloadLeft,
)
from durable.model.fleet.manifest import Fleet
from durable.model.ids import ActorId, Identifier, NodeId
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import BindingState
from durable.signals.drains import DrainStatus
from durable.signals.names import drain_id
from durable.signals.payloads import Look
from durable.workflows import timeouts
from tests.workflows.plane import EAST, Plane, answer, manifest, small_fleet, until
from tests.workflows.serving_log import ServingLog
from tests.workflows.test_rollout import version
from tests.workflows.test_trouble import set_faults

TEST = ActorId("test")
FIRST = NodeId("east-general-0000")
CRITICAL: dict[str, Any] = {"priority": 900}  # of a few replicas, none may be down by choice


def node(number: int = 0) -> NodesTarget:
    return NodesTarget.of_node(EAST, NodeId(f"east-general-{number:04}"))


async def ready(plane: Plane, nodes: int = 3, **pool: Any) -> Plane:
    return await (await (await plane.load(small_fleet(nodes=nodes, **pool))).host()).work()


async def serve(plane: Plane, *manifests: dict[str, Any]) -> ServingLog:
    for one in manifests:
        await plane.durable.apply(one)
    for one in manifests:
        await plane.durable.wait("risk", one["name"])
    return ServingLog(plane)


async def begin(plane: Plane, target: NodesTarget | None = None, **fields: Any) -> Drain:
    given: dict[str, Any] = {"reason": "INC-42", "request_id": "one", **fields}
    return await plane.durable.drains.start(target or node(), **given)


async def ended(plane: Plane, drain: Drain) -> Drain:
    return await plane.durable.drains.wait(drain, within_seconds=180)


async def on_nodes(plane: Plane) -> dict[str, set[str]]:
    """The nodes of each workload."""
    found: dict[str, set[str]] = {}
    for (workload, _), binding in (await plane.bindings()).items():
        found.setdefault(workload, set()).add(str(binding.node))
    return found


async def tokens(plane: Plane, workload: str = "api") -> dict[int, int]:
    bindings = await plane.bindings()
    return {slot: one.token for (name, slot), one in bindings.items() if name == workload}


async def blocked(plane: Plane, drain: Drain, code: LeftCode) -> WorkloadLeft:
    async def is_blocked() -> WorkloadLeft | None:
        progress = await read_progress(plane.databases, EAST, drain)
        return next((one for one in progress.workloads if one.code is code), None)

    left = await until(is_blocked, f"something is left: {code}")
    assert left is not None
    return left


async def status(plane: Plane, target: NodesTarget | None = None) -> DrainStatus:
    handle = plane.durable.client.get_workflow_handle(drain_id(target or node()))
    return DrainStatus.model_validate(await handle.query("status"))


async def cordon_of(plane: Plane, name: NodeId = FIRST) -> str | None:
    return (await read_node(plane.databases, EAST, name)).cordon_reason


# ── what moves ──────────────────────────────────────────────────────────────────────────────────


async def test_a_node_is_emptied_while_every_workload_keeps_its_floor(plane: Plane) -> None:
    await ready(plane, nodes=4, cpu=8)
    log = await serve(
        plane,
        manifest("api", replicas=8),
        manifest("critical", replicas=4, **CRITICAL),
        manifest("single", replicas=1),
        manifest("gang", replicas=4, all_or_nothing=True),
    )
    drain = await begin(plane)
    assert drain.replicas > 0
    assert (await ended(plane, drain)).state is DrainState.DRAINED
    assert all(FIRST not in nodes for nodes in (await on_nodes(plane)).values())
    assert await cordon_of(plane) == f"{drain_id(node())}: INC-42"
    for name in ("api", "critical", "single", "gang"):
        await plane.durable.wait("risk", name)
    lowest = log.lowest()
    assert lowest["api"] >= 6, "a quarter may be down by choice"
    assert (lowest["critical"], lowest["single"]) == (4, 1), "none may be"
    assert lowest["gang"] >= 3
    await plane.no_invariant_is_broken()


async def test_two_drains_at_once_share_the_allowance_of_a_workload(plane: Plane) -> None:
    await ready(plane, nodes=4, cpu=8)
    log = await serve(
        plane, manifest("api", replicas=8), manifest("critical", replicas=4, **CRITICAL)
    )
    drains = await asyncio.gather(
        begin(plane, node(0), request_id="one"), begin(plane, node(1), request_id="two")
    )
    for drain in drains:
        assert (await ended(plane, drain)).state is DrainState.DRAINED
    for name in ("api", "critical"):
        await plane.durable.wait("risk", name)
    lowest = log.lowest()
    assert lowest["api"] >= 6
    assert lowest["critical"] == 4
    await plane.no_invariant_is_broken()


async def test_a_drain_and_a_rollout_at_once_share_the_allowance(plane: Plane) -> None:
    await ready(plane, nodes=3, cpu=8)
    log = await serve(plane, version(1, replicas=8))
    await plane.durable.apply(version(2, replicas=8))
    drain = await begin(plane)
    assert (await ended(plane, drain)).state is DrainState.DRAINED
    now = await plane.durable.wait("risk", "api")
    assert (now.generation, now.updated) == (2, 8)
    assert log.lowest()["api"] >= 6
    assert FIRST not in (await on_nodes(plane))["api"]
    await plane.no_invariant_is_broken()


async def test_two_drains_and_a_rollout_at_once_share_the_allowance(plane: Plane) -> None:
    await ready(plane, nodes=4, cpu=8)
    log = await serve(
        plane, version(1, replicas=12), version(1, name="critical", replicas=4, **CRITICAL)
    )
    await plane.durable.apply(version(2, replicas=12))
    await plane.durable.apply(version(2, name="critical", replicas=4, **CRITICAL))
    drains = await asyncio.gather(
        begin(plane, node(0), request_id="one"), begin(plane, node(1), request_id="two")
    )
    assert all(drain.replicas for drain in drains), "each had something to move"
    for drain in drains:
        assert (await ended(plane, drain)).state is DrainState.DRAINED
    for name, replicas in (("api", 12), ("critical", 4)):
        now = await plane.durable.wait("risk", name)
        assert (now.generation, now.updated, now.serving) == (2, replicas, replicas)
    emptied = {str(FIRST), "east-general-0001"}
    assert all(not nodes & emptied for nodes in (await on_nodes(plane)).values())
    lowest = log.lowest()
    assert lowest["api"] >= 9, "a quarter may be down by choice, for all three causes together"
    assert lowest["critical"] == 4, "none may be"
    await plane.no_invariant_is_broken()


# ── what blocks ─────────────────────────────────────────────────────────────────────────────────


def two_zones(cpu: int) -> Fleet:
    """Two nodes in each of two zones, and a tenant that is granted so many cores."""
    granted = {"cpu": cpu, "memory": "64Gi"}
    pools = [
        {"name": name, "zone": f"east-{name}", "count": 2, "capacity": {"cpu": 4, "memory": "16Gi"}}
        for name in ("a", "b")
    ]
    return Fleet.model_validate(
        {
            "regions": [{"id": "east", "zones": ["east-a", "east-b"], "pools": pools}],
            "tenants": [{"id": "risk", "hard": granted, "grants": {"east": granted}}],
        }
    )


async def grant(plane: Plane, fleet: Fleet) -> None:
    await apply_fleet(plane.databases, fleet, actor=TEST, request="more", report=lambda _: None)


async def test_a_zone_waits_for_grant_says_so_and_goes_on_when_there_is_more(
    plane: Plane,
) -> None:
    await (await (await plane.load(two_zones(2))).host()).work()
    log = await serve(plane, manifest(replicas=4, **CRITICAL))
    zone = NodesTarget(region=EAST, kind=NodesKind.ZONE, name=Identifier("east-a"))
    drain = await begin(plane, zone)
    assert drain.replicas > 0
    left = await blocked(plane, drain, LeftCode.NO_ROOM)
    assert left.pending is not None
    assert left.pending.code is PendingCode.GRANT
    assert not left.needs_a_change

    await grant(plane, two_zones(4))
    assert (await ended(plane, drain)).state is DrainState.DRAINED
    assert all(name.startswith("east-b") for name in (await on_nodes(plane))["api"])
    assert log.lowest() == {"api": 4}
    await plane.no_invariant_is_broken()


def big_and_small() -> Fleet:
    """One node with room for what no other node can take, and two small ones."""
    pools = [
        {"name": "big", "zone": "east-a", "count": 1, "capacity": {"cpu": 8, "memory": "64Gi"}},
        {"name": "general", "zone": "east-a", "count": 2, "capacity": {"cpu": 4, "memory": "8Gi"}},
    ]
    granted = {"cpu": 16, "memory": "96Gi"}
    return Fleet.model_validate(
        {
            "regions": [{"id": "east", "zones": ["east-a"], "pools": pools}],
            "tenants": [{"id": "risk", "hard": granted, "grants": {"east": granted}}],
        }
    )


BIG_NODE = NodeId("east-big-0000")
BIG = NodesTarget.of_node(EAST, BIG_NODE)


async def with_a_slot_that_fits_nowhere_else(plane: Plane) -> ServingLog:
    """On the big node `huge`, which must stay there, and `small`, which need not."""
    await (await (await plane.load(big_and_small())).host()).work()
    general = NodesTarget(region=EAST, kind=NodesKind.POOL, name=Identifier("general"))
    await cordon_nodes(plane.databases, general, actor=TEST, reason="not yet")
    log = await serve(
        plane,
        manifest("huge", replicas=1, resources={"cpu": 1, "memory": "32Gi"}),
        manifest("small", replicas=2),
    )
    await uncordon_nodes(plane.databases, general, actor=TEST, reason="now")
    return log


async def test_a_slot_that_fits_nowhere_else_is_named_and_the_drain_gives_up(
    plane: Plane,
) -> None:
    log = await with_a_slot_that_fits_nowhere_else(plane)
    before = await tokens(plane, "huge")
    drain = await begin(plane, BIG, deadline=timedelta(seconds=20))
    left = await blocked(plane, drain, LeftCode.NO_ROOM)
    assert left.workload == "huge"

    gave_up = await ended(plane, drain)
    assert gave_up.state is DrainState.GAVE_UP
    assert "risk/huge (1 replica): its replacement finds no place" in gave_up.outcome
    assert await tokens(plane, "huge") == before
    assert await cordon_of(plane, BIG_NODE) == "drain/east/east-big-0000 gave up: INC-42"
    await nothing_is_marked(plane)
    await plane.durable.wait("risk", "huge")
    assert log.lowest() == {"huge": 1, "small": 2}
    await plane.no_invariant_is_broken()


async def test_a_cancel_in_the_middle_leaves_the_rest_and_undoes_the_cordon(plane: Plane) -> None:
    await with_a_slot_that_fits_nowhere_else(plane)
    before = await tokens(plane, "huge")
    drain = await begin(plane, BIG)
    await until(lambda: only_huge_is_left(plane, drain), "the other has moved")

    answer = await plane.durable.drains.cancel(BIG, reason="not today", request_id="undo")
    assert answer.startswith("Cancelled")
    done = await ended(plane, drain)
    assert (done.state, done.outcome) == ("cancelled", "cancelled by test: not today")
    assert await cordon_of(plane, BIG_NODE) is None
    assert (await tokens(plane, "huge"))[0] == before[0]

    async def is_as_before() -> bool:
        return await tokens(plane, "huge") == before

    # A replacement that waited for room may find it when the cordon ends, before it is withdrawn.
    await until(is_as_before, "nothing is left of the replacement")
    await nothing_is_marked(plane)
    assert (await plane.durable.wait("risk", "huge")).serving == 1
    with pytest.raises(RefusedError) as no:
        await plane.durable.drains.cancel(BIG, reason="again", request_id="undo-2")
    again = await plane.durable.drains.cancel(BIG, reason="not today", request_id="undo")
    assert again.startswith(answer), "what was answered stays answered"
    assert no.value.refusal.code is RefusalCode.UNKNOWN_DRAIN
    await plane.no_invariant_is_broken()


async def only_huge_is_left(plane: Plane, drain: Drain) -> bool:
    progress = await read_progress(plane.databases, EAST, drain)
    return [one.workload for one in progress.workloads] == ["huge"]


async def nothing_is_marked(plane: Plane) -> None:
    shares = await read_shares(plane.databases, EAST)
    assert not any(slot.is_marked for share in shares for slot in share.slots)


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────


async def with_a_job_that_runs(plane: Plane) -> dict[int, int]:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "never_ready", "node": "*"})
    await (await plane.host()).work()
    job = manifest("score", replicas=4, kind="job", max_attempts=1, spread={"max_per_node": 4})
    await plane.durable.apply(job, request_id="run")
    await until(lambda: all_run(plane), "every replica runs")
    return await tokens(plane, "score")


async def all_run(plane: Plane) -> bool:
    states = [binding.state for binding in (await plane.bindings()).values()]
    return states == [BindingState.RUNNING] * 4


async def test_a_job_loses_only_what_runs_on_the_node_and_that_is_no_failure(
    plane: Plane,
) -> None:
    before = await with_a_job_that_runs(plane)
    bindings = await plane.bindings()
    on_it = {slot for (_, slot), one in bindings.items() if one.node == FIRST}
    drain = await begin(plane)
    assert (await ended(plane, drain)).state is DrainState.DRAINED
    await until(lambda: all_run(plane), "every replica runs again")
    after = await tokens(plane, "score")
    assert {slot for slot in before if after[slot] != before[slot]} == on_it

    set_faults(plane)
    done = await plane.durable.wait("risk", "score", until="complete")
    assert (done.phase, done.completed) == ("complete", 4)


async def test_a_drain_that_waits_for_jobs_lets_them_end(plane: Plane) -> None:
    before = await with_a_job_that_runs(plane)
    drain = await begin(plane, wait_for_jobs=True)
    await blocked(plane, drain, LeftCode.JOB)
    assert await tokens(plane, "score") == before
    set_faults(plane)
    assert (await ended(plane, drain)).state is DrainState.DRAINED
    done = await plane.durable.wait("risk", "score", until="complete")
    assert (done.phase, done.completed) == ("complete", 4)


# ── messages and self-healing ───────────────────────────────────────────────────────────────────


async def test_what_cannot_be_read_or_is_forged_changes_nothing(plane: Plane) -> None:
    await with_a_slot_that_fits_nowhere_else(plane)
    drain = await begin(plane, BIG)
    await blocked(plane, drain, LeftCode.NO_ROOM)
    handle: Any = plane.durable.client.get_workflow_handle(drain_id(BIG))
    signals: list[tuple[str, Any]] = [
        ("look", Look(why="forged")),
        ("look", {"left": 0}),
        ("cancel", {"actor": "eve"}),
        ("cancel", None),
        ("drained", {"left": 0}),
        ("drain", {"actor": "eve@example.com", "reason": "x", "request_id": "e", "deadline": "0s"}),
    ]
    updates: list[tuple[str, Any]] = [("cancel", "nonsense"), ("drain", 7), ("finish", {})]
    for name, payload in signals:
        await handle.signal(name, payload)
    for name, payload in updates:
        with pytest.raises(WorkflowUpdateFailedError):
            await answer(partial(handle.execute_update, name, payload))

    async def all_were_read() -> bool:
        return (await status(plane, BIG)).rejected_count >= 7

    await until(all_were_read, "every one of them was rejected")
    assert (await status(plane, BIG)).state is DrainState.DRAINING
    [running] = await read_drains(plane.databases, EAST)
    assert running == drain
    assert await cordon_of(plane, BIG_NODE) == "drain/east/east-big-0000: INC-42"


async def test_a_second_drain_is_refused_with_the_id_of_the_first(plane: Plane) -> None:
    await with_a_slot_that_fits_nowhere_else(plane)
    drain = await begin(plane, BIG)
    assert await begin(plane, BIG) == drain, "the same request is the same drain"
    with pytest.raises(RefusedError, match="drain/east/east-big-0000") as no:
        await begin(plane, BIG, request_id="two")
    assert no.value.refusal.code is RefusalCode.BEING_DRAINED


async def test_an_order_that_is_refused_leaves_no_workflow_behind(plane: Plane) -> None:
    await ready(plane)
    nowhere = NodesTarget.of_node(EAST, NodeId("nowhere"))
    with pytest.raises(RefusedError) as no:
        await begin(plane, nowhere)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_NODE
    handle = plane.durable.client.get_workflow_handle(drain_id(nowhere))
    assert DrainStatus.model_validate(await handle.result()).drain is None
    assert await read_drains(plane.databases, EAST, ended=9) == []


async def test_a_drain_that_was_terminated_is_started_again_and_goes_on(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 0.2)
    await with_a_slot_that_fits_nowhere_else(plane)
    drain = await begin(plane, BIG)
    handle = plane.durable.client.get_workflow_handle(drain_id(BIG))
    await handle.terminate("by mistake")

    async def runs_again() -> bool:
        return (await handle.describe()).close_time is None

    await until(runs_again, "the drain runs again")
    await plane.durable.delete("risk", "huge")
    assert (await ended(plane, drain)).state is DrainState.DRAINED


async def test_a_drain_whose_first_answer_was_lost_goes_on_by_itself(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 600)
    monkeypatch.setattr(timeouts, "ADMIT_RETRY", RetryPolicy(maximum_attempts=1))
    await ready(plane)
    record = drain_steps.begin_drain

    async def answer_is_lost(*given: Any) -> Any:
        await record(*given)
        raise AuthorityUnreachableError("the answer was lost")

    monkeypatch.setattr(drain_steps, "begin_drain", answer_is_lost)
    with pytest.raises(RefusedError, match="the answer was lost; send it again"):
        await begin(plane)
    (drain,) = await read_drains(plane.databases, EAST, ended=9)
    assert (await ended(plane, drain)).state is DrainState.DRAINED


async def test_a_cancel_that_its_region_has_not_counted_promises_no_more_than_that(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(plane, nodes=1)
    await serve(plane, manifest(replicas=1, **CRITICAL))
    drain = await begin(plane)
    handle: Any = plane.durable.client.get_workflow_handle(drain_id(node()))

    async def cancel(request: str, message: str = "cancel") -> str:
        payload = {"actor": "test", "reason": "not today", "request_id": request}
        return await handle.execute_update(message, payload)

    async def away(*_: Any, **__: Any) -> Any:
        raise AuthorityUnreachableError("the region is away")

    with monkeypatch.context() as lost:
        lost.setattr(drain_steps, "end_drain", away)
        lost.setattr(authorization, "_read_regional", away)
        assert "if this request id was used before, the drain goes on" in await cancel("one")
        with pytest.raises(WorkflowUpdateFailedError) as no:
            await cancel("two")
        assert "test has cancelled it already" in str(no.value.cause)

    async def is_rejected() -> bool:
        why = [one.answer for one in (await status(plane)).rejected]
        return any(one.startswith("Request id one was used for the drain") for one in why)

    await until(is_rejected, "the drain goes on, and says why")
    (now,) = await read_drains(plane.databases, EAST)
    assert (now.request, now.ended_at) == (drain.request, None)
    assert (await cancel("two")).startswith("Cancelled")
    await handle.result()

    # Sent again after the end, nothing is left running for it.
    again = await plane.durable.drains.cancel(node(), reason="not today", request_id="two")
    assert again.startswith("Cancelled: ")
    began = (await handle.describe()).start_time
    await handle.result()
    assert (await handle.describe()).close_time - began < timeouts.FIRST_APPLY / 2

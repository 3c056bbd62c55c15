"""Replicas that fail, never become ready or are lost, and placements that somebody terminates."""

import json
from datetime import timedelta
from typing import Any

import pytest

from durable.authority.recovery.fence import fence, reopen
from durable.model.ids import ActorId
from durable.model.placement.pending_reasons import PendingCode
from durable.model.states import BindingState
from durable.workflows import timeouts
from durable.workflows.placement import slots
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until
from tests.workflows.processes import AGENT, process


def set_faults(plane: Plane, *faults: dict[str, object]) -> None:
    plane.faults.write_text(json.dumps(list(faults)))


async def test_a_replica_that_fails_is_started_elsewhere(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "fail_to_start", "node": "east-general-0000", "workload": "*/*"})
    await (await plane.host()).work()

    await plane.durable.apply(manifest(replicas=4))
    status = await plane.durable.wait("risk", "api")

    assert status.serving == 4
    nodes = {str(binding.node) for binding in (await plane.bindings()).values()}
    assert nodes == {"east-general-0001"}
    await plane.no_invariant_is_broken()


async def test_a_replica_that_never_becomes_ready_is_replaced_at_its_deadline(
    plane: Plane,
) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "never_ready", "node": "east-general-0000", "workload": "*/*"})
    await (await plane.host()).work()

    await plane.durable.apply(manifest(replicas=2, deadlines={"ready": "1s"}))
    assert (await plane.durable.wait("risk", "api")).serving == 2
    assert {str(b.node) for b in (await plane.bindings()).values()} == {"east-general-0001"}
    await plane.no_invariant_is_broken()


async def test_a_job_that_keeps_failing_is_given_up(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=3))
    set_faults(plane, {"kind": "crash", "node": "*", "workload": "risk/score", "after_seconds": 0})
    await (await plane.host()).work()

    status = await plane.durable.place(
        manifest("score", replicas=1, kind="job", max_attempts=2), request_id="run"
    )

    assert (status.phase, status.completed) == ("failed", 0)
    assert await plane.bindings() == {}
    await plane.no_invariant_is_broken()


async def test_work_of_lost_nodes_is_unknown_and_then_placed_again(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "UNKNOWN_TIMEOUT", timedelta(seconds=1))
    await (await plane.load()).work()
    with process(plane.settings, AGENT) as agent:
        await plane.durable.apply(manifest())
        await plane.durable.wait("risk", "api")
        before = await plane.bindings()
        agent.kill()
        await plane.lapse()

        async def waits() -> bool:
            found = await plane.placement()
            code = None if found.pending is None else found.pending.code
            return code is PendingCode.NODES_UNAVAILABLE and not await plane.bindings()

        await until(waits, "its claims are released and it waits for a node")
        assert await plane.bindings() == {}
        agent.start()
        assert (await plane.durable.wait("risk", "api")).serving == 2
    after = await plane.bindings()
    assert {b.token for b in after.values()}.isdisjoint(b.token for b in before.values())
    await plane.no_invariant_is_broken()


async def test_work_of_lost_nodes_rests_while_their_region_is_fenced(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "UNKNOWN_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(timeouts, "FENCED_RETRY", timedelta(seconds=1))
    await (await plane.load()).work()
    who: dict[str, Any] = {"actor": ActorId("test"), "reason": "a test"}
    with process(plane.settings, AGENT) as agent:
        await plane.durable.apply(manifest())
        await plane.durable.wait("risk", "api")
        before = await plane.bindings()
        await fence(plane.databases, EAST, expected_epoch=1, **who)
        agent.kill()
        await plane.lapse()

        async def rests() -> bool:
            found = (await plane.placement()).slots
            return all("is fenced; wait for its recovery" in slot.evidence for slot in found)

        await until(rests, "it knows that its region is fenced")
        assert (await plane.bindings()).keys() == before.keys()
        await reopen(plane.databases, EAST, expected_epoch=2, **who)

        async def is_released() -> bool:
            return not await plane.bindings()

        await until(is_released, "it goes on by itself when the region is open again")
    await plane.no_invariant_is_broken()


async def test_a_terminated_placement_resumes_where_it_was(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")
    before = await plane.bindings()

    await plane.handle().terminate("by mistake")
    await plane.durable.scale("risk", "api", 3)

    async def grown() -> bool:
        now = await plane.bindings()
        return len(now) == 3 and all(b.state is BindingState.SERVING for b in now.values())

    await until(grown, "the third slot serves too")
    after = await plane.bindings(EAST)
    assert {key: after[key].token for key in before} == {k: b.token for k, b in before.items()}
    await plane.no_invariant_is_broken()

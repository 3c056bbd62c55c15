"""A request id counts once, in whichever life of a workload it was sent."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.service import RPCError

from durable.authority.audit.events import read_events
from durable.authority.drains.rows import read_drains
from durable.authority.operators.authorization import count_message
from durable.authority.workloads.rows import read_workload
from durable.controllers import reconciler
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId, NodeId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage, Scope, SlotEffect, Verb
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import placement_id
from durable.signals.payloads import DeleteWorkload, ScaleWorkload
from durable.temporal.sender import receiver_of
from tests.workflows.keys import Person
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until
from tests.workflows.test_self_healing import reset, runs_again, terminate

WORKLOAD = "workload/risk/api"


async def serving(plane: Plane, replicas: int = 2, request_id: str | None = None) -> None:
    await plane.durable.apply(manifest(replicas=replicas), request_id=request_id)
    await plane.durable.wait("risk", "api")


async def in_another_life(plane: Plane) -> None:
    """Applied under r1, scaled under s1, deleted under d1, and applied again under r2."""
    await (await (await plane.load()).host()).work()
    await serving(plane, request_id="r1")
    await plane.durable.scale("risk", "api", 3, request_id="s1")
    await plane.durable.delete("risk", "api", request_id="d1")
    await plane.durable.wait("risk", "api", until="deleted")
    await serving(plane, replicas=1, request_id="r2")


async def has_ended(plane: Plane) -> None:
    async def ended() -> bool:
        described = await plane.durable.client.get_workflow_handle(WORKLOAD).describe()
        return described.status is WorkflowExecutionStatus.COMPLETED

    await until(ended, "the workload's workflow has ended")


async def test_requests_of_an_earlier_life_are_answered_the_same_and_change_nothing(
    plane: Plane,
) -> None:
    await in_another_life(plane)
    before = await plane.bindings()
    durable = plane.durable

    assert (await durable.delete("risk", "api", request_id="d1")).startswith("Deleting")
    assert (await durable.apply(manifest(), request_id="r1")).generation == 1
    scaled = await durable.scale("risk", "api", 3, request_id="s1")
    assert (scaled.generation, scaled.spec.replicas) == (1, 3)

    for used in (
        durable.scale("risk", "api", 4, request_id="s1"),
        durable.scale("risk", "api", 3, request_id="d1"),
        durable.delete("risk", "api", request_id="r1"),
        durable.apply(manifest(replicas=1), request_id="r1"),
    ):
        with pytest.raises(RefusedError, match="was used for the") as no:
            await used
        assert no.value.refusal.code is RefusalCode.KEY_CONFLICT

    status = await durable.status("risk", "api")
    assert (status.generation, status.wanted, status.serving) == (2, 1, 1)
    assert await plane.bindings() == before
    await plane.no_invariant_is_broken()


async def test_requests_are_answered_the_same_once_the_workload_is_gone(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    durable = plane.durable
    applied = await durable.apply(manifest(), request_id="r1")
    scaled = await durable.scale("risk", "api", 3, request_id="s1")
    deleted = await durable.delete("risk", "api", request_id="d1")
    assert await durable.apply(manifest(), request_id="r1") == applied, "while it is being deleted"
    await durable.wait("risk", "api", until="deleted")
    run = (await durable.client.get_workflow_handle(WORKLOAD).describe()).run_id

    assert await durable.scale("risk", "api", 3, request_id="s1") == scaled
    assert await durable.delete("risk", "api", request_id="d1") == deleted
    for new in (durable.scale("risk", "api", 3), durable.delete("risk", "api")):
        with pytest.raises(RefusedError, match="has ended already"):
            await new
    assert (await durable.client.get_workflow_handle(WORKLOAD).describe()).run_id == run
    assert await durable.apply(manifest(), request_id="r1") == applied
    await has_ended(plane)
    found = await read_workload(plane.databases, TenantId("risk"), WorkloadName("api"))
    assert found is not None
    assert found.deleted


async def test_a_workload_whose_workflow_is_gone_is_still_scaled_and_deleted(
    plane: Plane,
) -> None:
    await (await (await plane.load()).host()).work()
    await serving(plane)
    durable, handle = plane.durable, plane.durable.client.get_workflow_handle(WORKLOAD)

    await handle.terminate("lost")
    assert (await durable.scale("risk", "api", 3)).generation == 1
    assert (await durable.wait("risk", "api")).serving == 3

    await handle.terminate("lost again")
    await durable.delete("risk", "api")
    await durable.wait("risk", "api", until="deleted")
    assert await plane.bindings() == {}
    await plane.no_invariant_is_broken()


async def test_what_was_never_admitted_cannot_be_changed_and_leaves_no_workflow_open(
    plane: Plane,
) -> None:
    await (await plane.load()).work()
    for request in (
        plane.durable.scale("risk", "api", 3),
        plane.durable.delete("risk", "api"),
    ):
        with pytest.raises(RefusedError, match="There is no workload risk/api") as no:
            await request
        assert no.value.refusal.code is RefusalCode.UNKNOWN_WORKLOAD
    running = [one async for one in plane.durable.client.list_workflows()]
    assert running == []


async def test_a_run_that_was_started_for_nothing_ends(plane: Plane) -> None:
    """As another client may start one, that does not look at the authority first."""
    await (await plane.load()).work()
    name = (TenantId("risk"), WorkloadName("api"))
    who = {"actor": ActorId("test"), "reason": "INC-42", "request_id": "r1"}
    for update, payload in (
        ("scale", ScaleWorkload.model_validate({**who, "replicas": 3})),
        ("delete", DeleteWorkload.model_validate(who)),
    ):
        sender = plane.durable._sender  # pyright: ignore[reportPrivateUsage]
        start = sender._update_with_start  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(WorkflowUpdateFailedError) as no:
            await start(receiver_of(name), update, payload)
        assert "There is no workload risk/api" in str(no.value.cause)
        await has_ended(plane)


async def test_a_request_whose_workflow_is_terminated_meanwhile_is_answered(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")
    done = asyncio.Event()

    async def harm() -> None:
        handle = plane.durable.client.get_workflow_handle("workload/risk/api")
        for _ in range(10):
            with contextlib.suppress(RPCError):  # it is not running just now
                await handle.terminate("again and again")
            await asyncio.sleep(0.1)
        done.set()

    plane.background(harm())
    number = 0
    while not done.is_set():
        number += 1
        admitted = await plane.durable.scale("risk", "api", 1 + number % 3)
        assert admitted.spec.replicas == 1 + number % 3
    assert (await plane.durable.wait("risk", "api")).wanted == 1 + number % 3


PLACEMENT = placement_id(TenantId("risk"), WorkloadName("api"), 1, EAST)


@pytest.fixture
def reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler's own pace is for production."""
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 0.2)


async def harmed(plane: Plane, harm: Callable[[Any], Awaitable[None]]) -> Any:
    """The placement, begun anew after somebody terminated or reset it."""
    handle = plane.handle()
    run = (await handle.describe()).run_id
    await harm(handle)
    await runs_again(handle, run)
    return handle


async def has_another(plane: Plane, before: int) -> bool:
    """Whether slot 0 serves under another token than before."""
    found = (await plane.bindings()).get(("api", 0))
    return found is not None and found.token != before and found.state == "serving"


async def refused_code(handle: Any, message: str, payload: dict[str, Any]) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as no:
        await handle.execute_update(message, payload)
    cause: Any = no.value.cause
    return str(cause.details[0])


@pytest.mark.usefixtures("reconciled")
@pytest.mark.parametrize("harm", [terminate, reset])
async def test_a_placement_that_was_harmed_does_not_evict_twice(
    plane: Plane, tmp_path: Path, harm: Callable[[Any], Awaitable[None]]
) -> None:
    """Whoever saw a signed message may send it again while its signature is young."""
    await (await (await plane.load()).host()).work()
    await serving(plane)
    ann = await Person.make(plane, tmp_path, "person:ann")
    evict = ann.signed(PLACEMENT, "evict", "INC-42", slots=[0], force=True)
    before = (await plane.bindings())["api", 0].token
    handle: Any = plane.handle()
    assert (await handle.execute_update("evict", evict)).startswith("Stopping slot 0")

    await until(partial(has_another, plane, before), "slot 0 serves again")
    # Whoever only claims her name learns nothing; she is answered as before.
    claims = {name: value for name, value in evict.items() if not name.startswith("sign")}
    assert await refused_code(handle, "evict", claims) == RefusalCode.SIGNATURE_MISSING
    again = ann.signed(PLACEMENT, "evict", "INC-42", slots=[0], force=True)
    assert "nothing changed now" in await handle.execute_update("evict", again)
    handle = await harmed(plane, harm)
    after = {slot: one.token for slot, one in (await plane.bindings()).items()}
    assert "nothing changed now" in await handle.execute_update("evict", evict)
    await handle.signal("evict", evict)
    # Messages are read in their order, so the signal was read when this one is refused.
    assert await refused_code(handle, "evict", claims) == RefusalCode.SIGNATURE_MISSING
    assert {slot: one.token for slot, one in (await plane.bindings()).items()} == after
    again = ann.signed(PLACEMENT, "evict", "INC-43", slots=[0], force=True)
    assert (await handle.execute_update("evict", again)).startswith("Stopping slot 0")


async def nothing(handle: Any) -> None:
    """Its memory is whole."""


@pytest.mark.usefixtures("reconciled")
@pytest.mark.parametrize("harm", [nothing, terminate, reset])
async def test_an_eviction_that_was_counted_and_not_done_is_done_when_it_is_sent_again(
    plane: Plane, tmp_path: Path, harm: Callable[[Any], Awaitable[None]]
) -> None:
    """The global side counted it, and went away before its answer came."""
    await (await (await plane.load()).host()).work()
    await serving(plane)
    ann = await Person.make(plane, tmp_path, "person:ann")
    evict = ann.signed(PLACEMENT, "evict", "INC-42", slots=[0], force=True)
    handle: Any = plane.handle()
    message = OperatorMessage(workflow_id=handle.id, message="evict", payload=evict)
    scope = Scope(tenant=TenantId("risk"), region=EAST)
    before = (await plane.bindings())["api", 0].token
    effect = SlotEffect(slots={0: before})
    await count_message(
        plane.databases, message, Verb.EVICT, scope, "Stopping slot 0; counted.", effect
    )
    if harm is not nothing:
        await harmed(plane, harm)
    assert await handle.execute_update("evict", evict) == "Stopping slot 0; counted."
    await until(partial(has_another, plane, before), "slot 0 serves again")
    assert "nothing changed now" in await handle.execute_update("evict", evict)


async def test_a_later_drain_is_not_cancelled_by_an_old_message(
    plane: Plane, tmp_path: Path
) -> None:
    # With one node, what runs there has nowhere to go.
    await (await (await plane.load(small_fleet(nodes=1))).host()).work()
    await serving(plane)
    ann = await Person.make(plane, tmp_path, "person:ann")
    node = "drain/east/east-general-0000"
    async with ann.connected(plane) as hers:
        target = NodesTarget.of_node(EAST, NodeId("east-general-0000"))
        begun = await hers.drains.start(target, reason="INC-42", request_id="d-1")
        cancel = ann.signed(node, "cancel", "c-1")
        client: Any = plane.durable.client
        handle = client.get_workflow_handle(node)
        assert "Cancelled" in await handle.execute_update("cancel", cancel)
        # Sent again, the first drain is answered as it ended, and not begun anew.
        assert (await hers.drains.start(target, reason="INC-42", request_id="d-1")).ended_at
        await hers.drains.start(target, reason="INC-43", request_id="d-2")
    again = await handle.execute_update("cancel", cancel)
    assert again.startswith("Cancelled: ")
    assert "(Request id c-1 was used for the cancel at 20" in again
    (now,) = [one for one in await read_drains(plane.databases, EAST) if one.ended_at is None]
    assert now.request != begun.request


@pytest.mark.usefixtures("reconciled")
async def test_whoever_was_refused_is_in_the_audit_whatever_becomes_of_the_workflow(
    plane: Plane,
) -> None:
    await (await (await plane.load()).host()).work()
    await serving(plane)
    wrong: list[tuple[str, Any]] = [
        ("evict", {"actor": "person:mallory", "reason": "mine", "request_id": "x"}),
        ("evict", {"slots": "all"}),
        ("evikt", {"actor": "person:mallory"}),
    ]
    for count, (name, payload) in enumerate(wrong, 1):
        handle = plane.handle()
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update(name, payload)
        await harmed(plane, terminate)
        events, _ = await read_events(plane.databases, last=500)
        assert len([one for one in events if one.action.startswith("reject message")]) == count

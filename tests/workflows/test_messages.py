"""What is sent to a placement: what counts, what is refused, and that nothing is lost."""

import asyncio
import json
import re
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import WorkflowUpdateFailedError

from durable.authority.audit.events import read_events
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import BindingState
from durable.signals.payloads import EvictSlots, RetryPlacement
from tests.workflows.plane import Plane, manifest, small_fleet, until

WHO: dict[str, Any] = {"actor": "alice@example.com", "reason": "INC-42", "request_id": "INC-42-1"}


async def serving(plane: Plane, replicas: int = 2) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=replicas))
    await plane.durable.wait("risk", "api")


async def test_a_signal_that_cannot_be_read_changes_nothing_and_is_recorded(plane: Plane) -> None:
    await serving(plane)
    before = await plane.placement()
    cases: list[tuple[str, list[Any], str]] = [
        ("retry_now", [], "no payload"),
        ("retry_now", ["not an object"], "Invalid payload"),
        ("retry_now", [{**WHO, "reason": ""}], "reason"),
        ("retry_now", [{**WHO, "surprise": 1}], "surprise"),
        ("evict", [{**WHO, "slots": ["first"]}], "slots"),
        ("look", [{"generation": "first"}], "generation"),
        ("hodl", [WHO], "There is no message hodl"),
    ]
    for count, (name, payloads, why) in enumerate(cases, 1):
        await plane.handle().signal(name, args=payloads)

        async def reported(count: int = count) -> Any:
            rejected = (await plane.placement()).rejected
            return rejected if len(rejected) == count else None

        rejected = (await until(reported, f"{name} is in the status"))[-1]
        assert rejected.name == name
        assert why in rejected.answer
        after = await plane.placement()
        assert (after.slots, after.phase) == (before.slots, before.phase), name

    async def audited() -> Any:
        events, _ = await read_events(plane.databases, last=200)
        rejected = [event for event in events if event.action.startswith("reject message ")]
        return rejected if len(rejected) == len(cases) else None

    events = await until(audited, "the messages are in the audit")
    names = sorted(event.action.removeprefix("reject message ") for event in events)
    assert names == sorted(name for name, _, _ in cases)
    assert {event.object for event in events} == {"placement/risk/api/g1/east"}


async def test_evicted_slots_are_stopped_and_placed_again(plane: Plane) -> None:
    await serving(plane)
    before = await plane.bindings()

    await plane.handle().execute_update("evict", EvictSlots(**WHO, slots=(0,), force=True))

    async def moved() -> bool:
        now = await plane.bindings()
        return (
            ("api", 0) in now
            and now["api", 0].token != before["api", 0].token
            and now["api", 0].state is BindingState.SERVING
        )

    await until(moved, "slot 0 serves under another token")
    assert (await plane.bindings())["api", 1].token == before["api", 1].token
    await plane.no_invariant_is_broken()


async def test_a_slot_that_is_not_there_cannot_be_evicted(plane: Plane) -> None:
    await serving(plane)
    with pytest.raises(RefusedError, match="There is no slot 7 here; slots: 0, 1"):
        await plane.durable.send("placement/risk/api/g1/east", "evict", reason="x", slots=(7,))
    assert (await plane.placement()).messages < 20


async def test_a_message_that_is_sent_twice_counts_once(plane: Plane) -> None:
    await serving(plane)
    before = await plane.bindings()
    for _ in range(2):
        await plane.handle().signal("evict", {**WHO, "slots": [0], "force": True})

    async def moved() -> bool:
        now = await plane.bindings()
        return (
            ("api", 0) in now
            and now["api", 0].state is BindingState.SERVING
            and (now["api", 0].token != before["api", 0].token)
        )

    await until(moved, "slot 0 was moved")
    token = (await plane.bindings())["api", 0].token
    answer = await plane.handle().execute_update("evict", EvictSlots(**WHO, slots=(0,), force=True))
    assert answer.startswith("Stopping slot 0; it is placed again once it has stopped.")
    assert "(Request id INC-42-1 was used for the evict at 20" in answer
    assert (await plane.bindings())["api", 0].token == token


async def test_a_request_id_is_not_used_for_something_else(plane: Plane) -> None:
    await serving(plane)

    async def send(name: str, request: str, **fields: Any) -> str:
        return await plane.durable.send(
            plane.handle().id, name, reason="INC-42", request_id=request, **fields
        )

    nothing = "Nothing waits for a node."
    evict: dict[str, Any] = {"slots": (0,), "force": True}
    assert (await send("retry_now", "t1")) == nothing
    assert (await send("retry_now", "t1")).startswith(nothing), "it was lost"
    assert (await send("evict", "e1", **evict)).startswith("Stopping")
    again = await send("retry_now", "t1")
    assert again.startswith(f"{nothing} (Request id t1 was used for the retry_now at 20")
    assert again.endswith("; nothing changed now.)")
    for name, request, why in (
        ("evict", "t1", "used for the retry_now at 20.*send another request id"),
        ("retry_now", "e1", "used for the evict at 20.*send another request id"),
    ):
        with pytest.raises(RefusedError, match=why) as no:
            await send(name, request)
        assert no.value.refusal.code is RefusalCode.KEY_CONFLICT
    assert (await plane.placement()).rejected_count == 2


async def test_the_examples_on_a_page_are_accepted_when_pasted(plane: Plane) -> None:
    await serving(plane)
    workload: Any = plane.durable.client.get_workflow_handle("workload/risk/api")
    sent = {
        plane.handle(): ("retry_now", "evict"),
        workload: ("apply", "scale", "delete"),
    }
    for handle, names in sent.items():
        used: set[str] = set()
        for name in names:

            async def fresh(name: str = name, handle: Any = handle, used: Any = used) -> Any:
                page = (await handle.query("__temporal_workflow_metadata")).current_details
                found = re.search(rf"- `{name}`: .*`({{.*}})`", page)
                assert found is not None, page
                example = json.loads(found[1])
                return None if example["request_id"] in used else example

            example = await until(fresh, "the page has an id that was not used")
            used.add(example["request_id"])
            assert await handle.execute_update(name, example)
    assert (await plane.durable.wait("risk", "api", until="deleted")).rejected_count == 0


async def test_every_message_that_is_acted_on_is_audited(plane: Plane) -> None:
    await serving(plane)
    for number, name in enumerate(("retry_now", "evict")):
        await plane.handle().signal(name, {**WHO, "request_id": f"n-{number}"})
    await plane.durable.scale("risk", "api", 3, reason="INC-43")

    async def audited() -> bool:
        events, _ = await read_events(plane.databases, last=200)
        actions = [event.action for event in events]
        return all(f"accept message {name}" in actions for name in ("retry_now", "evict"))

    await until(audited, "all of them are in the audit")
    events, _ = await read_events(plane.databases, last=200)
    scaled = [event for event in events if (event.after or {}).get("kind") == "scale"]
    assert [(event.after or {})["reason"] for event in scaled] == ["INC-43"]


FORGED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("look", {"why": "it is all gone", "region": "east", "generation": 1}),
    ("look", {"region": "nowhere", "generation": 1}),
    ("look", {"generation": 7, "region": "east"}),
    ("look", {}),
    ("wake", {"why": "there is room"}),
    ("release", {**WHO, "actor": "controller:workload"}),
    ("set_share", {"slots": [], "revision": 9_999_999_999_999}),
    ("report", {"region": "east", "generation": 1, "by_state": {}}),
    ("ended", {"region": "east", "generation": 1}),
)


async def test_a_forged_message_of_a_controller_changes_nothing(plane: Plane) -> None:
    await serving(plane)
    workload: Any = plane.durable.client.get_workflow_handle("workload/risk/api")
    for replicas, (name, payload) in enumerate(FORGED, 3):
        before = await plane.bindings()
        status = await plane.durable.status("risk", "api")

        for handle in (plane.handle(), workload):
            await handle.signal(name, payload)
            # A message that is answered after it: whatever it caused has happened by then.
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update("nonsense", WHO)

        assert await plane.bindings() == before, (name, payload)
        now = await plane.durable.status("risk", "api")
        assert (now.phase, now.serving) == ("serving", replicas - 1), (name, payload)
        assert now.regions == status.regions, (name, payload)
        assert (await plane.durable.scale("risk", "api", replicas)).generation == 1
        assert (await plane.durable.wait("risk", "api")).serving == replicas


async def test_signals_that_no_handler_could_decode_are_recorded_too(plane: Plane) -> None:
    await serving(plane)
    client = plane.durable.client
    not_json = Payload(metadata={"encoding": b"json/plain"}, data=b"{not json")
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=plane.handle().id),
            signal_name="retry_now",
            input=Payloads(payloads=[not_json]),
        )
    )
    await plane.handle().signal("retry_now", args=[WHO, WHO])
    await plane.handle().signal("hodl\x00", WHO)
    nested = Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 50_000)
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=plane.handle().id),
            signal_name="retry_now",
            input=Payloads(payloads=[nested]),
        )
    )

    async def reported() -> bool:
        return (await plane.placement()).rejected_count == 4

    await until(reported, "all of them are in the status")
    first, second, third, _ = (await plane.placement()).rejected
    assert "Invalid payload" in first.answer
    assert "several arguments" in second.answer
    assert third.name == "hodl?"

    async def audited() -> bool:
        events, _ = await read_events(plane.databases, last=200)
        return len([e for e in events if e.action.startswith("reject message")]) == 4

    await until(audited, "all of them are in the audit")
    assert (await plane.durable.scale("risk", "api", 3)).generation == 1
    assert (await plane.durable.wait("risk", "api")).serving == 3


@pytest.mark.soak
async def test_two_thousand_messages_are_all_counted(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=1))
    await plane.durable.wait("risk", "api")
    handle = plane.handle()
    room = asyncio.Semaphore(50)

    async def send(number: int) -> None:
        async with room:
            request = RetryPlacement(actor=WHO["actor"], reason="again", request_id=f"n-{number}")
            await handle.signal("retry_now", request)

    before = (await plane.placement()).messages
    first_run = (await handle.describe()).run_id
    await asyncio.gather(*(send(number) for number in range(2_000)))

    async def counted() -> bool:
        return (await plane.placement()).messages >= before + 2_000

    await until(counted, "every message was counted", seconds=240)
    assert (await plane.placement()).rejected_count == 0

    async def continued() -> bool:
        return (await handle.describe()).run_id != first_run

    await until(continued, "it continued as new", seconds=240)
    assert (await plane.placement()).messages >= before + 2_000, "and none was forgotten"
    assert (await plane.durable.status("risk", "api")).serving == 1


async def test_a_workload_that_fits_nowhere_now_is_woken_when_room_appears(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=1, cpu=1))
    await (await plane.host()).work()
    await plane.durable.apply(manifest("first", replicas=2))
    await plane.durable.wait("risk", "first")
    await plane.durable.apply(manifest("second", replicas=1))

    async def waits() -> bool:
        return (await plane.durable.status("risk", "second")).phase == "waiting"

    await until(waits, "the second waits")
    await plane.durable.delete("risk", "first")
    assert (await plane.durable.wait("risk", "second")).serving == 1
    await plane.no_invariant_is_broken()


async def test_every_refused_apply_is_audited_in_whichever_life_of_the_workload(
    plane: Plane,
) -> None:
    await (await (await plane.load()).host()).work()
    for number in range(3):
        with pytest.raises(RefusedError):
            await plane.durable.apply(
                manifest(resources={"cpu": 400}), request_id=f"too-large-{number}"
            )

    async def audited() -> bool:
        events, _ = await read_events(plane.databases, last=200)
        return len([e for e in events if e.action == "reject message apply"]) == 3

    await until(audited, "each of the three is in the audit")

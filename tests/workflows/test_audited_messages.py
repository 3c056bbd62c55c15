"""What Temporal has taken for a workflow is in the audit, whatever becomes of the workflow."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import ResetReapplyType
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.service import RPCError, RPCStatusCode

from durable.activities import messages
from durable.authority.audit.events import read_events
from durable.authority.db.errors import AuthorityUnreachableError
from durable.model.ids import ActorId
from durable.signals.payloads import ScaleWorkload
from durable.workflows import timeouts
from durable.workflows.inbox import UNAUDITED_KEPT
from tests.workflows.plane import INSTANTLY, Plane, manifest, until
from tests.workflows.test_self_healing import reset, runs_again, serving, workload

STEP_TRIES = timeouts.STEP_RETRY.maximum_attempts
NEVER_STOPS = replace(INSTANTLY, stop_seconds=3600)


async def noises(plane: Plane) -> set[str]:
    """The names of the messages that the audit knows as rejected."""
    events, _ = await read_events(plane.databases, last=5_000)
    return {event.action.rpartition(" ")[2] for event in events if "noise" in event.action}


async def test_a_message_after_a_reset_is_audited_beside_the_one_that_was_forgotten(
    plane: Plane,
) -> None:
    await serving(plane, replicas=1)
    handle = plane.handle()

    def is_audited(name: str) -> Callable[[], Any]:
        async def look() -> bool:
            return name in await noises(plane)

        return look

    await handle.signal("noise-1")
    await until(is_audited("noise-1"), "the first is in the audit")
    run = (await handle.describe()).run_id
    none = ResetReapplyType.RESET_REAPPLY_TYPE_NONE
    await reset(handle, reset_reapply_type=none)
    await runs_again(handle, run)
    await handle.signal("noise-2")
    await until(is_audited("noise-2"), "the one after the reset, too", seconds=60)


@pytest.mark.soak
@pytest.mark.xfail(strict=False, reason="about one run in five loses one message: not understood")
async def test_what_was_acknowledged_while_workflows_end_is_in_the_audit(plane: Plane) -> None:
    names = [f"api-{number}" for number in range(4)]
    await (await (await plane.load()).host()).work()
    for name in names:
        await plane.durable.apply(manifest(name, replicas=1))
    for name in names:
        await plane.durable.wait("risk", name)
    taken: set[str] = set()

    async def send_until_it_ends(handle: Any, name: str) -> None:
        """One after the other, so that some come in each moment of the end."""
        for number in range(UNAUDITED_KEPT * 3 // 4):
            try:
                await handle.signal(f"{name}-{number}")
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return
            taken.add(f"{name}-{number}")

    handles = {f"noise-w-{name}": workload(plane, name) for name in names}
    handles |= {f"noise-p-{name}": plane.handle(name) for name in names}
    senders = [send_until_it_ends(handle, name) for name, handle in handles.items()]
    deletions = [plane.durable.delete("risk", name) for name in names]
    await asyncio.gather(*senders, *deletions)
    for name in names:
        await plane.durable.wait("risk", name, until="deleted")
    assert taken
    assert taken - await noises(plane) == set()


async def test_a_full_audit_and_an_update_do_not_keep_an_ending_from_ending(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "AUDIT_RETRY", timedelta(seconds=1))
    await (await plane.load()).host(delays=NEVER_STOPS)
    await plane.work()
    await plane.durable.apply(manifest(replicas=1))
    await plane.durable.wait("risk", "api")
    await plane.durable.delete("risk", "api")
    write = messages.audit_message

    tries = 0

    async def away(*_: Any, **__: Any) -> bool:
        nonlocal tries
        tries += 1
        raise AuthorityUnreachableError("the audit cannot be written")

    monkeypatch.setattr(messages, "audit_message", away)
    handle = workload(plane)
    for number in range(UNAUDITED_KEPT):
        await handle.signal(f"noise-{number}")

    async def is_full() -> bool:
        return (await handle.query("status"))["rejected_count"] >= UNAUDITED_KEPT

    await until(is_full, "no message is read any more")
    scale = ScaleWorkload(actor=ActorId("a"), reason="r", request_id="late", replicas=2)
    accepted = WorkflowUpdateStage.ACCEPTED
    # Taken, and not answered: it waits for those before it.
    late = await handle.start_update("scale", scale, wait_for_stage=accepted)
    before = tries

    async def is_tried_again() -> bool:
        return tries > before + 3 * STEP_TRIES

    await until(is_tried_again, "the audit is tried again, and again", seconds=60)
    monkeypatch.setattr(messages, "audit_message", write)
    async with asyncio.timeout(60):
        with pytest.raises(WorkflowUpdateFailedError):
            await late.result()
    assert f"noise-{UNAUDITED_KEPT - 1}" in await noises(plane)

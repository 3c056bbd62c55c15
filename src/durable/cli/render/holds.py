"""Who holds placements and why: their own word, or what the queue says while something waits."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durable.model.pending import Pending
from durable.model.pending_reasons import PendingCode
from durable.settings import Settings
from durable.state_dir.errors import StackError

AT_ONCE = 16
ONE_ANSWER = timedelta(seconds=2)
ALL_ANSWERS_SECONDS = 6.0
_BEFORE = "Held by "


@dataclass(frozen=True)
class Hold:
    """Whether a placement is held (None: nobody could be asked), and by whom with which reason."""

    held: bool | None
    held_by: str | None


def hold_in(pending_reason: str | None) -> str | None:
    """Who holds a placement, as far as the reason of a wait tells it."""
    wait = Pending.said(pending_reason or "")
    held = wait is not None and wait.code is PendingCode.HELD
    return wait.sentence.removeprefix(_BEFORE) if wait is not None and held else None


async def read_holds(settings: Settings, reasons: Mapping[str, str | None]) -> dict[str, Hold]:
    """The hold of each placement, given what each waits for; without Temporal only what waits."""
    told = {one: hold_in(reason) for one, reason in reasons.items()}
    answers = await _ask_all(settings, [one for one, held_by in told.items() if held_by is None])
    return {
        one: Hold(True, held_by) if held_by else answers.get(one, Hold(None, None))
        for one, held_by in told.items()
    }


async def _ask_all(settings: Settings, placements: Sequence[str]) -> dict[str, Hold]:
    # Inside: what else is listed does not need Temporal.
    from durable.temporal.connection import connect

    answers: dict[str, Hold] = {}
    if not placements:
        return answers
    try:
        async with asyncio.timeout(ALL_ANSWERS_SECONDS):
            client = await connect(settings, settings.require_temporal_address())
            turns = asyncio.Semaphore(AT_ONCE)

            async def one(placement: str) -> None:
                async with turns:
                    answer = await _ask(client, placement)
                if answer is not None:
                    answers[placement] = answer

            await asyncio.gather(*map(one, placements))
    except (StackError, TimeoutError):
        pass  # whoever did not answer is not known
    return answers


async def _ask(client: Any, placement: str) -> Hold | None:
    from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
    from temporalio.service import RPCError, RPCStatusCode

    handle = client.get_workflow_handle(placement)
    try:
        status = await handle.query("status", rpc_timeout=ONE_ANSWER)
    except RPCError as error:
        gone = error.status is RPCStatusCode.NOT_FOUND
        return Hold(False, None) if gone else None
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    held_by = status["held_by"]
    return Hold(held_by is not None, held_by)

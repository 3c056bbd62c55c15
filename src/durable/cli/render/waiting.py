"""Waiting for workloads while showing their progress, and what is said when that takes long."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from rich.markup import escape

from durable.authority.db.errors import AuthorityError
from durable.cli.render.delays import describe_delay, describe_stops
from durable.cli.render.output import progress
from durable.cli.render.progress import ProgressDisplay, WaitTarget
from durable.client import Durable
from durable.ending import end_all
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.status import WorkloadStatus

# A deletion that takes longer than this says what it waits for.
PATIENCE_SECONDS = 5.0
# After a wait that was too long, the reason is waited for no longer than this.
REASON_SECONDS = 2.0


async def wait_for_all(
    durable: Durable,
    targets: Sequence[WaitTarget],
    within_seconds: float,
    rolled_back: dict[WaitTarget, str] | None = None,
) -> list[WorkloadStatus]:
    """Shows every workload until it has come far enough, or refuses with the reason it has not.

    Given `rolled_back`, one that was is noted there, and the others are waited for.
    """
    latest: dict[WaitTarget, WorkloadStatus] = {}
    with ProgressDisplay() as display:
        tasks = [
            asyncio.create_task(_watch(durable, one, display, latest, rolled_back))
            for one in targets
        ]
        try:
            async with asyncio.timeout(within_seconds):
                await asyncio.gather(*tasks)
        except TimeoutError:
            stops = await asyncio.gather(*(_describe_deletion(durable, one) for one in targets))
            sentence = describe_delay(
                targets, latest, within_seconds, next(filter(None, stops), "")
            )
            raise RefusedError(RefusalCode.TIMED_OUT, sentence) from None
        finally:
            await end_all(tasks)
    return [latest[target] for target in targets]


async def _watch(
    durable: Durable,
    target: WaitTarget,
    display: ProgressDisplay,
    latest: dict[WaitTarget, WorkloadStatus],
    rolled_back: dict[WaitTarget, str] | None,
) -> None:
    hint = asyncio.create_task(_hint_at_delay(durable, target))
    try:
        async for status in durable.progress(target.tenant, target.name, until=target.until):
            latest[target] = status
            display.show(target, status)
    except RefusedError as error:
        if rolled_back is None or error.refusal.code is not RefusalCode.ROLLED_BACK:
            raise
        rolled_back[target] = error.refusal.sentence
    finally:
        hint.cancel()


async def _hint_at_delay(durable: Durable, target: WaitTarget) -> None:
    await asyncio.sleep(PATIENCE_SECONDS)
    if why := await _describe_deletion(durable, target):
        progress.print(escape(f"{target}: {why}"))


async def _describe_deletion(durable: Durable, target: WaitTarget) -> str:
    """What keeps a deletion; empty if nothing does, that is unknown, or it is not one."""
    if target.until == "deleted":
        with suppress(AuthorityError, TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                return describe_stops(await durable.stops(target.tenant, target.name))
    return ""

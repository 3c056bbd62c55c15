"""Stops databases of the authority for ninety seconds: what runs goes on, and nobody is lost.

Where regions have databases of their own, one of those is stopped first, which the other regions
must not notice. Then, and otherwise only, it is the global one.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from durable.authority.db.errors import AuthorityError
from durable.client import Durable
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.expectations import invariants_hold
from durable.drills.outage_view import OutageView, look
from durable.drills.region_loss import all_serve
from durable.drills.stopped_server import servers_of, stopped
from durable.drills.subject import find_subject
from durable.drills.world import World
from durable.model.ids import RegionId
from durable.model.refusal import RefusedError
from durable.state_dir.record import StackError

OUTAGE_SECONDS = 90.0
# Into the outage: by then whoever asks is told that nobody answers.
ASKED_AFTER_SECONDS = 20.0
# As long as the longest grace, and some: whoever would be declared lost has been by then.
WATCHED_SECONDS = 45.0
WITHIN_SECONDS = 120.0
# Whoever waits for the authority asks every three seconds at most, which is about eight events.
MOST_EVENTS = int(OUTAGE_SECONDS / 3 * 8)
WORKLOAD, WHY = "outage-drill", "drill: the authority is away"


async def run(world: World) -> AsyncIterator[Expectation]:
    """Ninety seconds for each; new work is asked for meanwhile."""
    durable = world.durable
    servers = servers_of(world.directory)
    regions = sorted(region for region in servers if region is not None)
    for away in [*regions[:1], None]:
        async for one in _without(durable, away, servers[away]):
            yield one
    yield await all_serve(durable)
    yield await invariants_hold(durable)


async def _without(
    durable: Durable, region: RegionId | None, pid: int
) -> AsyncIterator[Expectation]:
    """A region's own database is away, or the global one and with it all that are on it."""
    what = "the authority" if region is None else f"the database of {region}"
    subject = await find_subject(durable)
    others = [one for one in subject.share if one != region]
    manifest = _manifest(subject.tenant, others)
    request, before, began = f"drill-{uuid.uuid4()}", await look(durable), time.monotonic()
    with stopped(pid):
        await asyncio.sleep(ASKED_AFTER_SECONDS)
        asked = await _ask(durable, manifest, request)
        if region is None:
            yield Expectation(
                what="new work is refused meanwhile, with the reason",
                met="did not answer" in asked or "does not answer" in asked,
                seen=asked,
            )
        else:
            yield Expectation(what="new work in other regions serves meanwhile", met=not asked,
                              seen=asked)  # fmt: skip
        await asyncio.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - began)))
    yield Expectation(
        what=f"{what} answers again after {OUTAGE_SECONDS:.0f} s away",
        met=await come_true(lambda: _answers(durable), WITHIN_SECONDS),
        seen=f"{time.monotonic() - began:.0f} s after it fell silent",
    )
    watching = asyncio.create_task(asyncio.sleep(WATCHED_SECONDS))

    async def is_taken() -> bool:
        """Workers may notice a moment later that it answers; until then they refuse."""
        nonlocal asked
        asked = await _ask(durable, manifest, request)
        return not asked

    met = await come_true(is_taken, WITHIN_SECONDS)
    yield Expectation(what="the same request is taken, and serves", met=met, seen=asked)
    await durable.delete(subject.tenant, WORKLOAD, reason=WHY)
    await durable.wait(subject.tenant, WORKLOAD, until="deleted", within_seconds=WITHIN_SECONDS)
    await watching
    for one in _compare(before, await look(durable)):
        yield one


def _manifest(tenant: str, regions: Iterable[RegionId]) -> Mapping[str, Any]:
    return {
        "tenant": tenant,
        "name": WORKLOAD,
        "spec": {
            "replicas": 1,
            "resources": {"cpu": "100m", "memory": "64Mi"},
            "requirements": {"regions": sorted(regions)},
        },
    }


async def _ask(durable: Durable, manifest: Mapping[str, Any], request: str) -> str:
    """Empty once it serves, else why it does not."""
    try:
        await durable.apply(manifest, request_id=request, reason=WHY)
        await durable.wait(manifest["tenant"], WORKLOAD, within_seconds=WITHIN_SECONDS)
    except (AuthorityError, RefusedError, StackError, TimeoutError) as error:
        return str(error)
    return ""


async def _answers(durable: Durable) -> bool:
    try:
        await look(durable)
    except AuthorityError:
        return False
    return True


def _compare(before: OutageView, after: OutageView) -> list[Expectation]:
    lost = [*after.closed, *sorted(after.recoveries - before.recoveries)]
    moved = before.moved_to(after)
    busiest = before.busiest(after)
    return [
        Expectation(
            what="nobody is taken for lost, because the observer was blind",
            met=not lost,
            seen=", ".join(lost),
        ),
        Expectation(
            what="what may go on without its node's lease went on where it was",
            met=not moved,
            seen=", ".join(moved[:5]) or f"{len(before.kept)} replicas",
        ),
        Expectation(
            what=f"nobody asked in a storm: at most {MOST_EVENTS} events of one workflow",
            met=busiest[1] <= MOST_EVENTS,
            seen=f"{busiest[1]} of {busiest[0]}" if busiest[0] else "none",
        ),
    ]


DRILL = Drill(
    name="authority-outage",
    sentence="The authority is away for ninety seconds: work goes on, and nobody is lost.",
    runbook="runbooks/partition.md",
    run=run,
)

"""Stops databases of the authority for ninety seconds: what runs goes on, and nothing is lost.

Where regions have databases of their own, one of those is stopped first, which the other regions
must not notice. Then, and otherwise only, it is the global one.

Here is also what a jump of a region's clock must not let through.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durable.authority.db.clock import read_regional_time
from durable.authority.db.errors import AuthorityError
from durable.authority.reads.claims import read_claims
from durable.authority.reads.readiness import RegionReadiness, read_readiness
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.recovery.region_leases import read_lease, renew
from durable.authority.workloads.rows import list_workloads
from durable.controllers.region_lease import LEASE_SECONDS
from durable.drills.checks import all_serve, audit_tells, becomes, invariants_hold
from durable.drills.drill import Expectation
from durable.drills.faults import servers_of, stopped
from durable.drills.world import World, busiest_region, new_request, small_workload
from durable.health.findings import FindingCode
from durable.health.regions import unready
from durable.model.ids import RegionId
from durable.model.refusal import RefusedError
from durable.model.states import BindingState, RegionState
from durable.model.work.running import OnDisconnect
from durable.model.work.workload import WorkloadKind
from durable.state_dir.record import StackError

OUTAGE_SECONDS = 90.0
# Into the outage: by then a request is answered that nothing answers.
ASKED_AFTER_SECONDS = 20.0
# As long as the longest grace, and some: what would be declared lost has been by then.
WATCHED_SECONDS = 45.0
WITHIN_SECONDS = 120.0
# A step that waits for the authority asks every three seconds at most: about eight events.
MOST_EVENTS = int(OUTAGE_SECONDS / 3 * 8)
MOST_WORKFLOWS = 200
WORKLOAD, WHY = "outage-drill", "drill: the authority does not answer"


async def run(world: World) -> AsyncIterator[Expectation]:
    """Ninety seconds for each; new work is asked for meanwhile."""
    servers = servers_of(world.directory)
    regions = sorted(region for region in servers if region is not None)
    for region in [*regions[:1], None]:
        async for expectation in _without(world, region, servers[region]):
            yield expectation
    yield await all_serve(world)
    yield await invariants_hold(world)


async def _without(world: World, region: RegionId | None, pid: int) -> AsyncIterator[Expectation]:
    """A region's own database hangs, or the global one and with it all regions that are on it."""
    what = "the authority" if region is None else f"the database of {region}"
    subject = await world.subject()
    others = [each for each in subject.share if each != region]
    manifest = small_workload(subject.tenant, WORKLOAD, regions=others)
    request, before, began = new_request(), await _look(world), time.monotonic()
    async with world.removed_afterwards(subject.tenant, WORKLOAD, reason=WHY):
        with stopped(pid):
            await asyncio.sleep(ASKED_AFTER_SECONDS)
            yield _meanwhile(region, await _ask(world, manifest, request))
            await asyncio.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - began)))
        yield await becomes(
            f"{what} answers again after {OUTAGE_SECONDS:.0f} s of silence",
            lambda: _answers(world),
            bool,
            WITHIN_SECONDS,
            lambda _: f"{time.monotonic() - began:.0f} s after it fell silent",
        )
        watching = asyncio.create_task(asyncio.sleep(WATCHED_SECONDS))
        # Workers may notice a moment later that it answers; until then they refuse.
        yield await becomes(
            "the same request is taken, and serves",
            lambda: _ask(world, manifest, request),
            lambda why_not: not why_not,
            WITHIN_SECONDS,
            str,
        )
    await watching
    for expectation in _compare(before, await _look(world)):
        yield expectation


def _meanwhile(region: RegionId | None, answer: str) -> Expectation:
    """Without the global database there is a reason; without a region's, others go on."""
    if region is not None:
        return Expectation(
            what="new work in other regions serves meanwhile", met=not answer, seen=answer
        )
    return Expectation(
        what="new work is refused meanwhile, with the reason",
        met="did not answer" in answer or "does not answer" in answer,
        seen=answer,
    )


async def _ask(world: World, manifest: Mapping[str, Any], request: str) -> str:
    """Empty once it serves, else why it does not."""
    durable = world.durable
    try:
        await durable.apply(manifest, request_id=request, reason=WHY)
        await durable.wait(manifest["tenant"], WORKLOAD, within_seconds=WITHIN_SECONDS)
    except (AuthorityError, RefusedError, StackError, TimeoutError) as error:
        return str(error)
    return ""


async def _answers(world: World) -> bool:
    try:
        await _look(world)
    except AuthorityError:
        return False
    return True


@dataclass(frozen=True)
class _OutageView:
    """What an outage must not change, and how much was asked meanwhile."""

    closed: tuple[str, ...]
    recoveries: frozenset[str]
    # Which claim serves each replica that goes on when its node is cut off.
    kept: Mapping[str, int]
    # How long the history of each open run of a workflow is.
    events: Mapping[str, int]


async def _look(world: World) -> _OutageView:
    databases = world.databases
    facts = await read_facts(databases)
    keeps = {
        (workload.tenant, workload.workload)
        for workload in await list_workloads(databases)
        if workload.spec.kind is WorkloadKind.SERVICE
        and workload.spec.run.on_disconnect is OnDisconnect.KEEP
    }
    return _OutageView(
        closed=tuple(
            str(region) for region, fact in facts.items() if fact.state is not RegionState.OPEN
        ),
        recoveries=frozenset(
            str(recovery.key) for recovery in await list_recoveries(databases, ended=True)
        ),
        kept={
            f"{claim.tenant}/{claim.workload} {claim.slot}": claim.token
            for region in facts
            for claim in await read_claims(databases, region)
            if (claim.tenant, claim.workload) in keeps and claim.state is BindingState.SERVING
        },
        events=await _events(world),
    )


async def _events(world: World) -> Mapping[str, int]:
    """By workflow and run: one that continues as new counts from nothing."""
    client, lengths = world.durable.client, dict[str, int]()
    running = client.list_workflows('ExecutionStatus = "Running"', limit=MOST_WORKFLOWS)
    async for workflow in running:
        handle = client.get_workflow_handle(workflow.id, run_id=workflow.run_id)
        lengths[f"{workflow.id} {workflow.run_id}"] = (await handle.describe()).history_length
    return lengths


def _compare(before: _OutageView, after: _OutageView) -> list[Expectation]:
    lost = [*after.closed, *sorted(after.recoveries - before.recoveries)]
    moved = [name for name, token in before.kept.items() if after.kept.get(name) != token]
    growth = {
        name: after.events[name] - length
        for name, length in before.events.items()
        if name in after.events
    }
    busiest, events = max(growth.items(), key=lambda item: item[1], default=("", 0))
    return [
        Expectation(
            what="nothing is taken for lost, because the observer was blind",
            met=not lost,
            seen=", ".join(lost),
        ),
        Expectation(
            what="what may go on without its node's lease went on where it was",
            met=not moved,
            seen=", ".join(moved[:5]) or f"{len(before.kept)} replicas",
        ),
        Expectation(
            what=f"there was no storm of requests: at most {MOST_EVENTS} events of one workflow",
            met=events <= MOST_EVENTS,
            seen=f"{max(0, events)} of {busiest}" if busiest else "none",
        ),
    ]


# ── a clock that jumps ──────────────────────────────────────────────────────────────────────────

AHEAD = timedelta(minutes=5)
CLOCK_WORKLOAD, CLOCK_WHY = "clock-drill", "drill: a clock jumped"


async def clock_jump(world: World) -> AsyncIterator[Expectation]:
    """Renews a lease by a clock that is ahead, and sets it right: nothing passes by it.

    The machine's clock is left alone: the drill makes that renewal itself, with such a moment.
    """
    subject = await world.subject()
    region = busiest_region(subject)
    databases = world.databases
    ahead = await read_regional_time(databases, region) + AHEAD
    await renew(databases, region, "a drill", lease_seconds=LEASE_SECONDS, now=ahead)
    left = await read_lease(databases, region)
    findings = unready(await _readiness(world, region))
    yield Expectation(
        what=f"the lease of {region} from a clock that was {AHEAD} ahead counts for nothing",
        met=left.has_jumped and left.seconds == 0,
        seen=f"{left.seconds:.0f} s are left" if left.seconds else "",
    )
    yield Expectation(
        what="`durable status` says so",
        met=FindingCode.CLOCK_JUMPED in [one.code for one in findings],
        seen="; ".join(map(str, findings)),
    )
    yield await becomes(
        "its worker settles that and renews the lease",
        lambda: read_lease(databases, region),
        lambda lease: not lease.has_jumped and (lease.seconds or 0) > 0,
        WITHIN_SECONDS,
        lambda lease: f"{lease.seconds or 0:.0f} s are left",
    )
    yield await audit_tells(world, f"region/{region}", ["settle clock"])
    manifest = small_workload(subject.tenant, CLOCK_WORKLOAD, regions=[region])
    async with world.removed_afterwards(subject.tenant, CLOCK_WORKLOAD, reason=CLOCK_WHY):
        await world.durable.apply(manifest, reason=CLOCK_WHY)
        await world.durable.wait(subject.tenant, CLOCK_WORKLOAD, within_seconds=WITHIN_SECONDS)
        yield Expectation(what="new work is placed there again", met=True)
    yield await all_serve(world)
    yield await invariants_hold(world)


async def _readiness(world: World, region: RegionId) -> Sequence[RegionReadiness]:
    rows = await read_readiness(world.databases, world.databases.url_of(region))
    return [one for one in rows if one.region == region]

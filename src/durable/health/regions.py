"""Whether every region could take a placement now: served by a worker, with nodes that live."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain

from temporalio.client import Client

from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_databases
from durable.authority.reads.readiness import RegionReadiness, read_readiness
from durable.health.findings import FindingCode as Code
from durable.health.findings import HealthFinding, finding
from durable.model.fleet.region_life import RegionFact
from durable.model.fleet.restores import WentBack
from durable.model.recovery.detection import LossKind
from durable.model.states import RegionState
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.temporal.running import unserved_queues
from durable.temporal.signs_of_life import silent_workers

# The others are found by looking now: a worker or nodes that are gone, for example. What has just
# begun may be a stack that starts.
_MATTERS = frozenset(
    {
        LossKind.ZONE,
        LossKind.WATCH,
        LossKind.DATABASE,
        LossKind.REGION,
        LossKind.OBSERVER,
        LossKind.MAINTENANCE,
    }
)
LASTING = timedelta(seconds=30)


async def read_regions(databases: Databases) -> tuple[list[RegionReadiness], list[HealthFinding]]:
    """The regions of every database that answers, and a finding for each that does not."""
    answers, unreachable = await ask_databases(
        databases, lambda url: read_readiness(databases, url)
    )
    found = [
        finding(Code.REGION_UNREACHABLE, region, why=why) for region, why in unreachable.items()
    ]
    return list(chain.from_iterable(answers)), found


async def unserved(
    client: Client, databases: Databases, regions: Sequence[RegionReadiness]
) -> list[HealthFinding]:
    """A finding for each queue that no worker polls."""
    now = await read_time(databases)
    queues = {GLOBAL_QUEUE: ("workloads", "can be applied, scaled or deleted")}
    queues |= {
        regional_queue(one.region): (str(one.region), "is placed or replaced there")
        for one in regions
    }
    return [
        finding(Code.QUEUE_UNSERVED, queue, whom=queues[queue][0], is_done=queues[queue][1])
        for queue in await unserved_queues(client, queues, now)
    ]


async def silent(client: Client, databases: Databases) -> list[HealthFinding]:
    """A finding if workers hang: Temporal lists them as polling for minutes."""
    workers = await silent_workers(client, await read_time(databases))
    return [finding(Code.WORKER_SILENT, *workers)] if workers else []


def unready(regions: Sequence[RegionReadiness]) -> list[HealthFinding]:
    """Pure: regions that take nothing, without live nodes, and claims that are not freed."""
    found: list[HealthFinding] = []
    for one in regions:
        if one.state is RegionState.FENCED:
            found.append(finding(Code.REGION_FENCED, one.region))
        elif one.clock_went_back_at is not None:
            found.append(finding(Code.CLOCK_JUMPED, one.region, since=one.clock_went_back_at))
        elif one.lease_lapsed_at is not None:
            found.append(finding(Code.REGION_LEASE_LAPSED, one.region, since=one.lease_lapsed_at))
        if one.nodes and not one.live:
            found.append(finding(Code.REGION_WITHOUT_NODES, one.region, nodes=one.nodes))
        if one.overdue_since is not None:
            since, count = one.overdue_since, one.overdue
            found.append(finding(Code.CLAIMS_OVERDUE, one.region, count=count, since=since))
    return found


def went_back(found: Iterable[WentBack]) -> list[HealthFinding]:
    """Pure: a finding for each database that was restored, until that has been declared."""
    return [
        finding(
            Code.AUTHORITY_WENT_BACK if one.serves_global else Code.REGION_WENT_BACK,
            *one.names,
            since=one.went_back_at,
            why=one.why,
        )
        for one in found
    ]


def impaired(facts: Iterable[RegionFact]) -> list[HealthFinding]:
    """Pure: what regions have been taken for from outside for a while, where that matters."""
    return [
        finding(
            Code.REGION_IMPAIRED, fact.region, kind=seen.kind, why=seen.sentence, since=seen.since
        )
        for fact in facts
        if (seen := fact.seen) is not None
        and seen.kind in _MATTERS
        and not fact.is_fenced
        and fact.read_at - seen.since >= LASTING
    ]

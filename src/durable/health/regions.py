"""Whether every region could take a placement now: served by a worker, with nodes that live."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain

from temporalio.client import Client

from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_databases
from durable.authority.reads.readiness import RegionReadiness, read_readiness
from durable.health import findings
from durable.health.findings import HealthFinding
from durable.model.fleet.region_life import RegionFact
from durable.model.recovery.detection import LossKind
from durable.model.states import RegionState
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.temporal.running import unserved_queues

# The others are found by who looks now: a worker or nodes that are away, for example. What has just
# begun may be a stack that starts.
_MATTERS = frozenset(
    {LossKind.ZONE, LossKind.WATCH, LossKind.DATABASE, LossKind.REGION, LossKind.OBSERVER}
)
LASTING = timedelta(seconds=30)


async def read_regions(databases: Databases) -> tuple[list[RegionReadiness], list[HealthFinding]]:
    """The regions of every database that answers, and a finding for each that does not."""
    answers, missing = await ask_databases(databases, lambda url: read_readiness(databases, url))
    unreachable = [findings.region_unreachable(region, why) for region, why in missing.items()]
    return list(chain.from_iterable(answers)), unreachable


async def unserved(
    client: Client, databases: Databases, regions: Sequence[RegionReadiness]
) -> list[HealthFinding]:
    """A finding for each queue that no worker polls."""
    now = await read_time(databases)
    queues = {
        GLOBAL_QUEUE: None,
        **{regional_queue(one.region): str(one.region) for one in regions},
    }
    return [
        findings.queue_unserved(queue, queues[queue])
        for queue in await unserved_queues(client, queues, now)
    ]


def unready(regions: Sequence[RegionReadiness]) -> list[HealthFinding]:
    """Pure: regions that take nothing, whose nodes are all away, and claims that nobody frees."""
    found: list[HealthFinding] = []
    for one in regions:
        if one.state is RegionState.FENCED:
            found.append(findings.region_fenced(one.region))
        elif one.lease_lapsed_at is not None:
            found.append(findings.region_lease_lapsed(one.region, one.lease_lapsed_at))
        if one.nodes and not one.live:
            found.append(findings.region_without_nodes(one.region, one.nodes))
        if one.overdue_since is not None:
            found.append(findings.claims_overdue(one.region, one.overdue, one.overdue_since))
    return found


def impaired(facts: Iterable[RegionFact]) -> list[HealthFinding]:
    """Pure: what regions have been taken for from outside for a while, where that matters."""
    return [
        findings.region_impaired(fact.region, seen.kind, seen.sentence, seen.since)
        for fact in facts
        if (seen := fact.seen) is not None
        and seen.kind in _MATTERS
        and not fact.is_fenced
        and fact.read_at - seen.since >= LASTING
    ]

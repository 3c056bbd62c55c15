"""Why slots wait: the one reason for all that found no node, with its numbers."""

from collections.abc import Iterable, Mapping

from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import (
    MAX_REJECTIONS,
    Gang,
    NoNode,
    PendingCode,
    Rejection,
)
from durable.model.resources import Resources
from durable.scheduling.evidence import Rejections
from durable.scheduling.limits import SlotLimit
from durable.scheduling.snapshot.columns import AmountColumns
from durable.scheduling.working_set import WorkingSet

# By the limit that was met, what says more than the limit does when no node is left.
_NOBODY_THERE: Mapping[PendingCode, frozenset[PendingCode]] = {
    PendingCode.GRANT: frozenset({PendingCode.REGION_FENCED}),
    PendingCode.HEADROOM: frozenset({PendingCode.REGION_FENCED, PendingCode.NODES_UNAVAILABLE}),
}


def why_unplaced(
    working: WorkingSet, limit: SlotLimit, placed: int, rejections: Rejections
) -> Pending:
    """The reason for the slots that got no node; the rejections are of the first of them."""
    nodes = _why_rejected(working, placed, rejections)
    if limit.pending is None or placed < limit.slots:
        return nodes
    if rejections.feasible:
        return limit.pending
    # A larger grant does not help where no node could ever take the work, or the region is closed;
    # headroom does not help where the nodes are gone.
    is_hopeless = not nodes.waiting_helps and limit.pending.waiting_helps
    is_gone = nodes.code in _NOBODY_THERE.get(limit.pending.code, ())
    return nodes if is_hopeless or is_gone else limit.pending


def why_gang_waits(working: WorkingSet, placeable: int, why: Pending | None) -> Pending:
    """The reason for a gang of which too few could be placed, and so none was."""
    if why is not None and (not why.waiting_helps or why.code is PendingCode.REGION_FENCED):
        return why
    request = working.request
    gang = Gang(
        size=request.spec.gang_size,
        slots=len(request.slots),
        placeable=placeable,
        live=len(request.live),
        because=why and why.reason(),
    )
    return Pending.because(PendingCode.GANG, gang)


def most_frequent(rejections: Iterable[Rejection]) -> tuple[Rejection, ...]:
    """The rejections that travel with a reason; the evidence of the decision has all of them."""
    ordered = sorted(rejections, key=lambda line: (-line.nodes, line.words))
    return tuple(ordered[:MAX_REJECTIONS])


def largest_of(amounts: AmountColumns) -> Resources:
    """By dimension, the most that any node has; a node that shrank may have less than nothing."""
    cpu_millis, memory_mib, gpus = map(int, amounts.max(axis=0))
    return Resources.clipped((cpu_millis, memory_mib, gpus))


def _why_rejected(working: WorkingSet, placed: int, rejections: Rejections) -> Pending:
    closest, request = rejections.closest, working.request
    code = PendingCode.NODES_UNAVAILABLE if closest is None else closest.by.pending
    has = working.columns.capacity if code is PendingCode.NEVER_FITS else working.free
    lines = rejections.counted(working)
    no_node = NoNode(
        region=request.region,
        workload=f"{request.tenant}/{request.workload}",
        unplaced=len(request.slots) - placed,
        slots=len(request.slots),
        nodes=len(working.snapshot),
        rejections=most_frequent(lines),
        rejected=sum(line.nodes for line in lines),
        requested=request.spec.resources,
        largest=None if closest is None else largest_of(has[closest.rows]),
    )
    return Pending.because(code, no_node)

"""What bounds a whole request whatever the nodes have: the tenant's grant, and the headroom."""

from dataclasses import dataclass

from durable.model.pending import Pending
from durable.model.pending_reasons import NoGrant, PendingCode, Shortage
from durable.model.resources import Amounts, Resources, how_often, minus
from durable.scheduling.working_set import WorkingSet


@dataclass(frozen=True, slots=True)
class SlotLimit:
    """How many of the slots may be placed, and what the others wait for."""

    slots: int
    pending: Pending | None = None


def tightest_limit(working: WorkingSet) -> SlotLimit:
    """The limit that lets the fewest slots through; between equals, the first."""
    return min((limit(working) for limit in LIMITS), key=lambda limit: limit.slots)


def grant_limit(working: WorkingSet) -> SlotLimit:
    tenant, region = working.request.tenant, working.snapshot.region
    found = working.snapshot.grants.get(tenant)
    if found is None:
        no_grant = NoGrant(region=region, tenant=tenant)
        return SlotLimit(0, Pending.because(PendingCode.NO_GRANT, no_grant))
    granted, used = found
    return _limit(working, minus(granted, used), PendingCode.GRANT)


def headroom_limit(working: WorkingSet) -> SlotLimit:
    """Recovery draws on its budget instead, which the commit checks."""
    if working.request.draw is not None:
        return SlotLimit(len(working.request.slots))
    return _limit(working, working.snapshot.room, PendingCode.HEADROOM)


LIMITS = (grant_limit, headroom_limit)


def _limit(working: WorkingSet, left: Amounts, code: PendingCode) -> SlotLimit:
    request = working.request
    slots, enough_for = len(request.slots), how_often(left, working.requested)
    if enough_for >= slots:
        return SlotLimit(slots)
    shortage = Shortage(
        region=working.snapshot.region,
        tenant=request.tenant,
        left=Resources.clipped(left),
        requested=request.spec.resources,
        enough_for=enough_for,
        slots=slots,
    )
    return SlotLimit(enough_for, Pending.because(code, shortage))

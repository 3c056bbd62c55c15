"""What bounds a whole request whatever the nodes have: the tenant's grant, and the headroom."""

from dataclasses import dataclass

from durable.model.overrides.effects import Gate
from durable.model.overrides.in_force import holder
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import Held, NoGrant, PendingCode, Shortage
from durable.model.resources import Amounts, Resources, how_often, minus, plus
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
    drawn = sum(how_often(draw, working.requested) for draw in working.request.draws)
    if found is None and drawn < len(working.request.slots):
        no_grant = NoGrant(region=region, tenant=tenant)
        return SlotLimit(drawn, Pending.because(PendingCode.NO_GRANT, no_grant))
    if found is None:
        return SlotLimit(len(working.request.slots))
    granted, used = found
    left = minus(granted, plus(used, working.request.overdrawn))
    return _limit(working, left, PendingCode.GRANT, drawn)


def headroom_limit(working: WorkingSet) -> SlotLimit:
    """Recovery draws on its budget instead, which the commit checks."""
    if working.request.draw is not None:
        return SlotLimit(len(working.request.slots))
    return _limit(working, working.snapshot.room, PendingCode.HEADROOM)


def hold_limit(working: WorkingSet) -> SlotLimit:
    """A workload that somebody holds gets nothing new."""
    request = working.request
    held = None if Gate.HOLD in working.skips else holder(request.overrides)
    if held is None:
        return SlotLimit(len(request.slots))
    details = Held(
        actor=held.actor, reason=held.reason, override=held.override, ends_at=held.expires_at
    )
    return SlotLimit(0, Pending.because(PendingCode.HELD, details))


LIMITS = (hold_limit, grant_limit, headroom_limit)


def _limit(working: WorkingSet, left: Amounts, code: PendingCode, beside: int = 0) -> SlotLimit:
    """`beside`: how many more may be placed on something else."""
    request = working.request
    slots, enough_for = len(request.slots), how_often(left, working.requested) + beside
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

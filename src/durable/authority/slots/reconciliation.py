"""Moves the ownership of a workload's slots towards the desired share, as far as claims allow."""

from collections import defaultdict
from collections.abc import Mapping

from durable.authority.slots.assignment import SlotAssignment
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.slots.slot_queue import SlotQueue
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError


async def reconcile_slots(
    slots: SlotQueue,
    tenant: TenantId,
    workload: WorkloadName,
    share: Mapping[RegionId, tuple[int, ...]],
    *,
    transfer: str,
    actor: ActorId,
) -> list[str]:
    """Assigns, transfers and gives up slots; answers why some of that has to wait.

    Every part is idempotent, and one that is refused (a claim still exists where the slot was)
    leaves the others done: sent again, it continues with what was refused.
    """
    # First, and for every slot of the share: a crash may have come between the two halves of an
    # earlier assignment.
    owners = await slots.assign(SlotAssignment(tenant, workload, share, transfer))
    desired = {slot: region for region, owned in share.items() for slot in owned}
    moving: list[tuple[int, RegionId]] = []
    leaving: dict[RegionId, list[int]] = defaultdict(list)
    for slot, owner in owners.items():
        if slot not in desired:
            leaving[owner.region].append(slot)
        elif desired[slot] != owner.region:
            moving.append((slot, owner.region))
    registry = SlotRegistry(slots.databases, tenant, workload)
    waits: list[str] = []
    for slot, source in moving:
        try:
            await registry.transfer([slot], source, desired[slot], transfer=transfer, actor=actor)
        except RefusedError as error:
            waits.append(_why(error, slot, source))
    for region, ended in leaving.items():
        waits += await _give_up(registry, ended, region, transfer)
    return waits


async def _give_up(
    registry: SlotRegistry, slots: list[int], region: RegionId, transfer: str
) -> list[str]:
    """All at once when no claim is left, else one by one; answers which slots wait, and why."""
    try:
        await registry.give_up(slots, region, transfer=transfer)
    except RefusedError as error:
        if len(slots) == 1:
            return [_why(error, slots[0], region)]
    else:
        return []
    waits: list[str] = []
    for slot in slots:
        waits += await _give_up(registry, [slot], region, transfer)
    return waits


def _why(refused: RefusedError, slot: int, region: RegionId) -> str:
    """What a slot waits for, in words for its workload, whose placement is already stopping it."""
    if refused.refusal.code is RefusalCode.SLOT_TAKEN:
        return f"Slot {slot} is still claimed in {region}; it is being stopped."
    return refused.refusal.sentence

"""How many slots of a job may have a claim at once in one region, and who waits because of that."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.placement.pending import Pending
    from durable.model.placement.pending_reasons import HeldBack, PendingCode
    from durable.model.work.phases import SlotPhase
    from durable.model.work.share import DesiredShare
    from durable.workflows.placement.slots import PlacementSlots


def room_for_more(share: DesiredShare | None, slots: PlacementSlots) -> int | None:
    """How many more slots may get a claim; None if nothing limits that."""
    if share is None or share.at_once is None:
        return None
    # What is on its way out counts until its claim is released.
    return max(0, share.at_once - len(slots.live()))


def waiting_and_held_back(share: DesiredShare | None, slots: PlacementSlots) -> tuple[int, int]:
    """How many slots wait for a node, and how many only until others have ended."""
    waiting, room = len(slots.in_phase(SlotPhase.WAITING)), room_for_more(share, slots)
    if room is None:
        return waiting, 0
    return min(waiting, room), max(0, waiting - room)


def why_held_back(share: DesiredShare | None, slots: PlacementSlots) -> Pending | None:
    """The reason of a share that runs as much as it may; None if it may run more."""
    waiting, held_back = waiting_and_held_back(share, slots)
    if waiting or not held_back or share is None:
        return None
    details = HeldBack(slots=held_back, at_once=share.at_once or 0)
    return Pending.because(PendingCode.PARALLELISM, details)

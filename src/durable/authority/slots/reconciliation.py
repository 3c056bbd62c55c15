"""Brings slot ownership to the wanted shares, as far as live claims allow, in batches."""

from collections import defaultdict
from collections.abc import Mapping, Set
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from durable.authority.db.batching import Batcher, RegionalQueues, chunks
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.db.fair_queue import Turn
from durable.authority.fleet.regions import read_region
from durable.authority.slots.assignment import (
    MAX_SLOTS_PER_CALL,
    Division,
    SlotAssignment,
    SlotCopies,
    SlotOwners,
    assign_slots,
    copy_slots,
)
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.slots.shares import Publication, ShareWriter
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode, RefusedError

MAX_ASSIGNMENTS_PER_CALL = 500


class SlotQueue:
    """Assigns slots; `async with` runs it, and leaving it waits for the last batches."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self._owners = _OwnerWriter(databases)
        self._copies = RegionalQueues(partial(_CopyWriter, databases))
        self._shares = RegionalQueues(partial(ShareWriter, databases))
        # Regions are never removed.
        self._regions: set[RegionId] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for queue in (self._owners, self._copies, self._shares):
            await self._stack.enter_async_context(queue)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def assign(self, assignment: SlotAssignment) -> tuple[SlotOwners, UnreachableRegions]:
        """Who owns what of the workload, once every region holds what it owns of the assignment.

        And the regions that did not answer: they own what they own, and hold it when sent again.
        """
        new = assignment.share.keys() - self._regions
        # Refuses an unknown one.
        known = await ask_regions(new, lambda region: read_region(self.databases, region))
        self._regions.update(known.by_region)
        owners = await self._owners.submit(assignment)
        if isinstance(owners, Refusal):
            raise RefusedError(owners.code, owners.sentence)
        held: dict[RegionId, dict[int, int]] = defaultdict(dict)
        for region, slots in assignment.share.items():
            for slot in slots:
                if owners[slot].region == region:
                    held[region][slot] = owners[slot].number
        workload = (assignment.tenant, assignment.workload)
        copied = await ask_regions(
            held, lambda region: self._copies.submit(region, SlotCopies(*workload, held[region]))
        )
        return owners, copied.unreachable

    async def publish(self, region: RegionId, publication: Publication) -> bool:
        """Hands a region a workload's floor and shares; false if it has newer ones."""
        return await self._shares.submit(region, publication)


class _OwnerWriter(Batcher[SlotAssignment, SlotOwners | Refusal]):
    """Writes which region owns which slots."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        super().__init__(
            "queue of slots",
            "share",
            self._assign,
            max_batch=MAX_ASSIGNMENTS_PER_CALL,
            turn_of=lambda assignment: Turn(assignment.tenant),
        )

    async def _assign(self, assignments: list[SlotAssignment]) -> list[SlotOwners | Refusal]:
        owners: list[SlotOwners | Refusal] = []
        for some in chunks(assignments, lambda one: one.size, most=MAX_SLOTS_PER_CALL):
            owners += await assign_slots(self._databases, some)
        return owners


class _CopyWriter(Batcher[SlotCopies, None]):
    """Writes one region's copies."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        name = f"queue of slots for {region}"
        super().__init__(
            name,
            "share",
            self._copy,
            max_batch=MAX_ASSIGNMENTS_PER_CALL,
            turn_of=lambda copies: Turn(copies.tenant),
        )

    async def _copy(self, copies: list[SlotCopies]) -> list[None]:
        for some in chunks(copies, lambda one: len(one.numbers), most=MAX_SLOTS_PER_CALL):
            await copy_slots(self._databases, self._region, some)
        return [None] * len(copies)


async def reconcile_slots(
    slots: SlotQueue,
    tenant: TenantId,
    workload: WorkloadName,
    share: Mapping[RegionId, tuple[int, ...]],
    *,
    transfer: str,
    division: Division,
    actor: ActorId,
    kept: Set[int] = frozenset(),
) -> list[str]:
    """Assigns, transfers and gives up slots; answers why some of that has to wait.

    Those that are kept stay with their owner.

    Every part is idempotent, and one that is refused (a claim still exists where the slot was)
    leaves the others done: sent again, it continues with what was refused.
    """
    # First, and for every slot of the share: a crash may have come between the two halves of an
    # earlier assignment.
    owners, missing = await slots.assign(
        SlotAssignment(tenant, workload, share, transfer, division)
    )
    desired = {slot: region for region, owned in share.items() for slot in owned}
    moving: list[tuple[int, RegionId]] = []
    leaving: dict[RegionId, list[int]] = defaultdict(list)
    for slot, owner in owners.items():
        if slot in kept:
            continue
        if slot not in desired:
            leaving[owner.region].append(slot)
        elif desired[slot] != owner.region:
            moving.append((slot, owner.region))
    registry = SlotRegistry(slots.databases, tenant, workload, division)
    waits = [f"{region} does not have its slots yet. {why}" for region, why in missing.items()]
    for slot, source in moving:
        try:
            await registry.transfer([slot], source, desired[slot], transfer=transfer, actor=actor)
        except RefusedError as error:
            waits.append(_why(error, slot, source))
        except AuthorityUnreachableError as error:
            waits.append(f"Slot {slot} cannot move from {source} to {desired[slot]} yet. {error}")
    for region, ended in leaving.items():
        try:
            waits += await _give_up(registry, ended, region, transfer)
        except AuthorityUnreachableError as error:
            waits.append(f"{region} still has slots to give up. {error}")
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
    if refused.refusal.code is RefusalCode.OLD_DIVISION:
        raise refused
    if refused.refusal.code is RefusalCode.SLOT_TAKEN:
        return f"Slot {slot} is still claimed in {region}; it is being stopped."
    return refused.refusal.sentence

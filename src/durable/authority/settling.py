"""Brings the ownership of a workload's slots to the wanted share, as far as claims allow it."""

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import Databases, transact
from durable.authority.slots import SlotRegistry
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.refusal import RefusedError

_OWNERS = text("""
    SELECT slot, region FROM global.slots
     WHERE tenant = :tenant AND workload = :workload AND region IS NOT NULL ORDER BY slot
""")


async def settle_slots(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    share: Mapping[RegionId, tuple[int, ...]],
    *,
    transfer: str,
    actor: ActorId,
) -> list[str]:
    """Assigns, transfers and gives up slots; answers why some of it has to wait.

    Every part is idempotent, and one that is refused (a claim still stands where the slot was)
    leaves the others done: sent again, it goes on where it could not.
    """
    registry = SlotRegistry(databases, tenant, workload)
    wanted = {slot: region for region, slots in share.items() for slot in slots}
    owned = await _owners(databases, tenant, workload)
    waits: list[str] = []
    missing = _by_region({s: r for s, r in wanted.items() if s not in owned})
    for region, slots in missing.items():
        await registry.assign(slots, region, transfer=transfer)
    held = {s: r for s, r in wanted.items() if owned.get(s) == r}
    # Again: a crash may have come between the two halves of an assignment.
    for region, slots in _by_region(held).items():
        await registry.assign(slots, region, transfer=transfer)
    moving: dict[tuple[RegionId, RegionId], list[int]] = defaultdict(list)
    for slot, region in owned.items():
        if slot in wanted and wanted[slot] != region:
            moving[region, wanted[slot]].append(slot)
    for (source, target), slots in moving.items():
        for slot in slots:
            try:
                await registry.transfer([slot], source, target, transfer=transfer, actor=actor)
            except RefusedError as error:
                waits.append(error.refusal.sentence)
    for region, slots in _by_region({s: r for s, r in owned.items() if s not in wanted}).items():
        waits += await _give_up(registry, slots, region, transfer)
    return waits


async def _give_up(
    registry: SlotRegistry, slots: list[int], region: RegionId, transfer: str
) -> list[str]:
    """All at once when nothing stands any more, else one by one and those that wait are told."""
    try:
        await registry.give_up(slots, region, transfer=transfer)
    except RefusedError as error:
        if len(slots) == 1:
            return [error.refusal.sentence]
    else:
        return []
    waits: list[str] = []
    for slot in slots:
        waits += await _give_up(registry, [slot], region, transfer)
    return waits


def _by_region(owners: Mapping[int, RegionId]) -> dict[RegionId, list[int]]:
    grouped: dict[RegionId, list[int]] = defaultdict(list)
    for slot, region in owners.items():
        grouped[region].append(slot)
    return grouped


async def _owners(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> dict[int, RegionId]:
    async def work(connection: AsyncConnection) -> dict[int, RegionId]:
        rows = await connection.execute(_OWNERS, {"tenant": tenant, "workload": workload})
        return {row.slot: RegionId(row.region) for row in rows}

    engine = databases.at_global("durable_reader")
    return await transact(engine, work, doing=f"read the slots of {tenant}/{workload}")

"""Which region may bind a slot: assigned once, moved only by transfer, given up at the end.

The fact is global and each region holds a copy of what it owns. A copy is taken away before the
fact moves and handed out after, so at no moment do two regions hold the same slot, whichever step
a crash falls into; the same call finishes the rest. Every hand-over has a number: a step that was
delayed past the next hand-over is too late, and changes nothing.
"""

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import lock_region, read_region
from durable.authority.slots.assignment import Copy, Wish, assign_within, copy_slots
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode, RefusedError

ROLE = "durable_workload"
MAX_SLOTS_PER_CALL = 100_000

_OWNERS = text("""
    SELECT slot, region, number FROM global.slots
     WHERE tenant = :tenant AND workload = :workload AND slot = ANY(:slots)
     ORDER BY slot FOR UPDATE
""")

# Only under the numbers that were taken back: the same region may own a slot again since then.
_HAND_OVER = text("""
    UPDATE global.slots AS s
       SET region = :to_region, number = s.number + 1, transfer = :transfer,
           since = clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(slot integer, number bigint)
     WHERE s.tenant = :tenant AND s.workload = :workload AND s.slot = row.slot
       AND s.number = row.number AND s.region = :from_region
""")

_GIVE_UP = text("""
    UPDATE global.slots AS s
       SET region = NULL, transfer = :transfer, since = clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(slot integer, number bigint)
     WHERE s.tenant = :tenant AND s.workload = :workload AND s.slot = row.slot
       AND s.number = row.number AND s.region = :region
""")

# Writes the row even where no copy arrived yet: the late copy then finds its number used up.
_TAKE_BACK = text("""
    INSERT INTO regional.slots AS s (tenant, workload, slot, region, number)
    SELECT :tenant, :workload, slot, NULL, number
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(slot integer, number bigint)
        ON CONFLICT (tenant, workload, slot) DO UPDATE
       SET region = NULL, number = excluded.number WHERE s.number <= excluded.number
""")

_CLAIMED = text("""
    SELECT slot, token FROM regional.reservations
     WHERE tenant = :tenant AND workload = :workload AND slot = ANY(:slots) AND region = :region
       AND freed_version IS NULL ORDER BY slot LIMIT 1
""")

Numbers = dict[int, int]


class SlotRegistry:
    """The slots of one workload."""

    def __init__(self, databases: Databases, tenant: TenantId, workload: WorkloadName) -> None:
        self._databases = databases
        self._key = (tenant, workload)
        self._of = {"tenant": str(tenant), "workload": str(workload)}
        self._workload = f"{tenant}/{workload}"

    async def assign(self, slots: Sequence[int], region: RegionId, *, transfer: str) -> None:
        """Gives unowned slots to a region; again is harmless, another owner is a refusal."""
        wish = Wish(*self._key, {region: slots}, transfer)
        await read_region(self._databases, region)  # refuses an unknown one before anything moves

        async def work(connection: AsyncConnection) -> Numbers:
            (owners,) = await assign_within(connection, [wish])
            if isinstance(owners, Refusal):
                raise RefusedError(owners.code, owners.sentence)
            return await self._owned_by(connection, slots, region)

        engine = self._databases.at_global(ROLE)
        numbers = await transact(engine, work, doing=f"assign slots to {region}")
        await self._copy(region, numbers)

    async def transfer(
        self,
        slots: Sequence[int],
        from_region: RegionId,
        to_region: RegionId,
        *,
        transfer: str,
        actor: ActorId,
    ) -> None:
        """Moves slots between regions once the old one claims none of them any more.

        From a region to itself it gives back what an abandoned transfer had taken.
        """
        await read_region(self._databases, to_region)  # or the slots would go where nobody is
        held = await self._held(slots, from_region, or_by=to_region)
        await self._take_back(from_region, held)
        await self._copy(
            to_region, await self._hand_over(slots, held, from_region, to_region, transfer, actor)
        )

    async def give_up(self, slots: Sequence[int], region: RegionId, *, transfer: str) -> None:
        """Ends the ownership for good: the workload was deleted or scaled down."""
        held = await self._held(slots, region)
        await self._take_back(region, held)
        ended = {**self._of, "region": region, "transfer": transfer, "rows": _rows(held)}

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_GIVE_UP, ended)

        engine = self._databases.at_global(ROLE)
        await transact(engine, work, doing=f"give up slots of {region}")

    def _named(self, slots: Sequence[int]) -> dict[str, str | list[int]]:
        assert len(slots) <= MAX_SLOTS_PER_CALL, f"at most {MAX_SLOTS_PER_CALL} slots per call"
        assert all(slot >= 0 for slot in slots), "slots count from 0"
        return {**self._of, "slots": sorted(set(slots))}

    async def _held(
        self, slots: Sequence[int], region: RegionId, *, or_by: RegionId | None = None
    ) -> Numbers:
        """The numbers under which a region owns slots; with `or_by`, nobody else may own any."""

        async def work(connection: AsyncConnection) -> Numbers:
            rows = (await connection.execute(_OWNERS, self._named(slots))).all()
            if or_by is not None:
                self._refuse_strangers(slots, rows, {region, or_by})
            return {row.slot: row.number for row in rows if row.region == region}

        engine = self._databases.at_global(ROLE)
        return await transact(engine, work, doing=f"read the slots of {region}")

    async def _hand_over(
        self,
        slots: Sequence[int],
        held: Numbers,
        from_region: RegionId,
        to_region: RegionId,
        transfer: str,
        actor: ActorId,
    ) -> Numbers:
        ends = {"from_region": from_region, "to_region": to_region, "transfer": transfer}
        moved = {**self._of, **ends, "rows": _rows(held)}

        async def work(connection: AsyncConnection) -> Numbers:
            if (await connection.execute(_HAND_OVER, moved)).rowcount:
                await audit.append(
                    connection,
                    audit.GLOBAL_CHAIN,
                    actor=actor,
                    action="transfer slots",
                    target=f"workload/{self._workload}",
                    before={"region": from_region},
                    after={"region": to_region, "slots": sorted(held), "transfer": transfer},
                )
            return await self._owned_by(connection, slots, to_region)

        engine = self._databases.at_global(ROLE)
        return await transact(engine, work, doing=f"transfer slots to {to_region}")

    async def _owned_by(
        self, connection: AsyncConnection, slots: Sequence[int], region: RegionId
    ) -> Numbers:
        rows = (await connection.execute(_OWNERS, self._named(slots))).all()
        self._refuse_strangers(slots, rows, {region})
        return {row.slot: row.number for row in rows}

    def _refuse_strangers(
        self, slots: Sequence[int], rows: Sequence[Any], regions: Set[RegionId]
    ) -> None:
        for row in rows:
            if row.region not in regions:
                raise RefusedError(
                    RefusalCode.SLOT_NOT_OWNED,
                    f"Slot {row.slot} of {self._workload} belongs to {row.region or 'no region'}, "
                    f"not to {' or '.join(sorted(regions))}; read its owner again.",
                )
        missing = set(slots) - {row.slot for row in rows}
        if missing:
            raise RefusedError(
                RefusalCode.SLOT_NOT_OWNED,
                f"Slot {min(missing)} of {self._workload} was never assigned; assign it first.",
            )

    async def _take_back(self, region: RegionId, numbers: Numbers) -> None:
        if not numbers:
            return
        named = {**self._of, "slots": list(numbers), "region": region, "rows": _rows(numbers)}

        async def work(connection: AsyncConnection) -> None:
            await lock_region(connection, region)
            claimed = (await connection.execute(_CLAIMED, named)).one_or_none()
            if claimed is not None:
                raise RefusedError(
                    RefusalCode.SLOT_TAKEN,
                    f"Slot {claimed.slot} of {self._workload} is still claimed in {region} by "
                    f"token {claimed.token}; release it there, or fence the region and release "
                    "it as fenced.",
                )
            await connection.execute(_TAKE_BACK, named)

        engine = self._databases.at_region(region, ROLE)
        await transact(engine, work, doing=f"take slots from {region}")

    async def _copy(self, region: RegionId, numbers: Numbers) -> None:
        await copy_slots(self._databases, region, [Copy(*self._key, numbers)])


def _rows(numbers: Mapping[int, int]) -> str:
    return json.dumps([{"slot": slot, "number": number} for slot, number in numbers.items()])

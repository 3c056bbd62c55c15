"""Which region may bind a slot: assigned once, moved only by transfer, given up at the end.

The fact is global, and each region holds a copy of what it owns. A copy is taken back before the
fact moves and handed out afterwards, so two regions never hold the same slot, whichever step a
crash falls into; the same call finishes the rest. Every hand-over has a number: a step that is
delayed past the next hand-over comes too late and changes nothing. Every division has a revision,
which is compared with the newest under the workload's lock: an older one undoes nothing, whoever
still runs it.

A fenced region whose database does not answer is not asked once its lease has lapsed: it takes
nothing by itself any more, and what it still has of such a slot is void by its number.
"""

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import lock_region, read_region
from durable.authority.recovery.region_facts import hold_fact, read_fact
from durable.authority.slots.assignment import (
    ROLE,
    Division,
    SlotAssignment,
    SlotCopies,
    assign_within,
    copy_slots,
    refuse_old_division,
)
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode, RefusedError

MAX_SLOTS_PER_CALL = 100_000

_LOCK_OWNERS = text("""
    SELECT slot, region, number FROM global.slots
     WHERE tenant = :tenant AND workload = :workload AND slot = ANY(:slots)
     ORDER BY slot FOR UPDATE
""")

# Before the region's copy is taken back: a newer division that keeps the slot where it is finds
# the mark, and hands the copy out again under a number of its own.
_MARK_LEAVING = text("""
    UPDATE global.slots SET is_leaving = true
     WHERE tenant = :tenant AND workload = :workload AND slot = ANY(:slots) AND NOT is_leaving
""")

# Only under the numbers that were taken back: the same region may own a slot again since then.
_HAND_OVER = text("""
    UPDATE global.slots AS s
       SET region = :to_region, number = s.number + 1, transfer = :transfer,
           since = clock_timestamp(), is_leaving = false
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(slot integer, number bigint)
     WHERE s.tenant = :tenant AND s.workload = :workload AND s.slot = row.slot
       AND s.number = row.number AND s.region = :from_region
""")

_GIVE_UP = text("""
    UPDATE global.slots AS s
       SET region = NULL, transfer = :transfer, since = clock_timestamp(), is_leaving = false
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(slot integer, number bigint)
     WHERE s.tenant = :tenant AND s.workload = :workload AND s.slot = row.slot
       AND s.number = row.number AND s.region = :region
""")

# Writes the row even where no copy has arrived yet: the late copy then finds its number used up.
_TAKE_BACK = text("""
    INSERT INTO regional.slots AS s (tenant, workload, slot, region, number)
    SELECT :tenant, :workload, slot, NULL, number
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(slot integer, number bigint)
        ON CONFLICT (tenant, workload, slot) DO UPDATE
       SET region = NULL, number = excluded.number WHERE s.number <= excluded.number
""")

_FIND_CLAIM = text("""
    SELECT slot, token FROM regional.reservations
     WHERE tenant = :tenant AND workload = :workload AND claimed_slot = ANY(:slots)
       AND region = :region
     ORDER BY slot LIMIT 1
""")

# The numbers under which a region owns slots.
Numbers = dict[int, int]
_Workload = Mapping[str, str]


class SlotRegistry:
    """The slots of one workload, as one division of them wants them."""

    def __init__(
        self, databases: Databases, tenant: TenantId, workload: WorkloadName, division: Division
    ) -> None:
        self._databases = databases
        self._key = (tenant, workload)
        self._division = division
        self._workload = {"tenant": str(tenant), "workload": str(workload)}

    async def assign(self, slots: Sequence[int], region: RegionId, *, transfer: str) -> None:
        """Gives unowned slots to a region; again is harmless, another owner is a refusal."""
        assignment = SlotAssignment(*self._key, {region: slots}, transfer, self._division)
        await read_region(self._databases, region)  # refuses an unknown one before anything moves
        numbers = await _assign(self._databases, assignment, region)
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
        """Moves slots between regions once the old one no longer claims any of them.

        From a region to itself, it returns what an abandoned transfer had taken.
        """
        await read_region(self._databases, to_region)  # or the slots would go where nothing is
        held = await self._held(slots, from_region, or_by=to_region)
        answers = await self._take_back(from_region, held)
        numbers = await self._hand_over(
            slots, held, from_region, to_region, transfer, actor, answers=answers
        )
        await self._copy(to_region, numbers)

    async def give_up(self, slots: Sequence[int], region: RegionId, *, transfer: str) -> None:
        """Ends the ownership for good: the workload was deleted or scaled down."""
        held = await self._held(slots, region)
        answers = await self._take_back(region, held)
        await _give_up(
            self._databases, self._workload, self._division, held, region, transfer, answers
        )

    async def _held(
        self, slots: Sequence[int], region: RegionId, *, or_by: RegionId | None = None
    ) -> Numbers:
        return await _mark_held(
            self._databases, self._workload, self._division, slots, region, or_by
        )

    async def _take_back(self, region: RegionId, numbers: Numbers) -> bool:
        """Takes the region's copies; false if it does not answer and does not count."""
        if not numbers:
            return True
        try:
            await _take_back(self._databases, region, self._workload, numbers)
        except AuthorityUnreachableError:
            if (await read_fact(self._databases, region)).is_movable:
                return False
            raise
        return True

    async def _hand_over(
        self,
        slots: Sequence[int],
        held: Numbers,
        from_region: RegionId,
        to_region: RegionId,
        transfer: str,
        actor: ActorId,
        *,
        answers: bool = True,
    ) -> Numbers:
        return await _hand_over(
            self._databases, self._workload, self._division, slots, held, from_region, to_region,
            transfer, actor, answers,
        )  # fmt: skip

    async def _copy(self, region: RegionId, numbers: Numbers) -> None:
        await copy_slots(self._databases, region, [SlotCopies(*self._key, numbers)])


@global_transaction(ROLE, "assign slots to {region}")
async def _assign(
    connection: AsyncConnection, assignment: SlotAssignment, region: RegionId
) -> Numbers:
    (owners,) = await assign_within(connection, [assignment])
    if isinstance(owners, Refusal):
        raise RefusedError(owners.code, owners.sentence)
    workload = {"tenant": str(assignment.tenant), "workload": str(assignment.workload)}
    return await _owned_by(connection, workload, assignment.share[region], region)


@global_transaction(ROLE, "mark slots that leave {region}")
async def _mark_held(
    connection: AsyncConnection,
    workload: _Workload,
    division: Division,
    slots: Sequence[int],
    region: RegionId,
    or_by: RegionId | None,
) -> Numbers:
    """The numbers under which a region owns slots; with `or_by`, nothing else may own any."""
    await _refuse_old(connection, workload, division)
    rows = await _lock_owners(connection, workload, slots)
    if or_by is not None:
        _refuse_other_owners(workload, slots, rows, {region, or_by})
    held = {row.slot: row.number for row in rows if row.region == region}
    await connection.execute(_MARK_LEAVING, {**workload, "slots": list(held)})
    return held


@regional_transaction(ROLE, "take slots from {region}")
async def _take_back(
    connection: AsyncConnection, region: RegionId, workload: _Workload, numbers: Numbers
) -> None:
    await lock_region(connection, region)
    taken = {**workload, "slots": list(numbers), "region": region, "rows": _rows(numbers)}
    claim = (await connection.execute(_FIND_CLAIM, taken)).one_or_none()
    if claim is not None:
        raise RefusedError(
            RefusalCode.SLOT_TAKEN,
            f"Slot {claim.slot} of {_name(workload)} is still claimed in {region} by token "
            f"{claim.token}; release it there, or fence the region and release it as fenced.",
        )
    await connection.execute(_TAKE_BACK, taken)


@global_transaction(ROLE, "transfer slots to {to_region}")
async def _hand_over(
    connection: AsyncConnection,
    workload: _Workload,
    division: Division,
    slots: Sequence[int],
    held: Numbers,
    from_region: RegionId,
    to_region: RegionId,
    transfer: str,
    actor: ActorId,
    answers: bool,
) -> Numbers:
    await _refuse_old(connection, workload, division)
    if not answers:
        await _refuse_unfenced(connection, from_region)
    ends = {"from_region": from_region, "to_region": to_region, "transfer": transfer}
    moved = {**workload, **ends, "rows": _rows(held)}
    if (await connection.execute(_HAND_OVER, moved)).rowcount:
        await audit.append(
            connection,
            audit.GLOBAL_CHAIN,
            actor=actor,
            action="transfer slots",
            target=f"workload/{_name(workload)}",
            before={"region": from_region},
            after={
                "region": to_region,
                "slots": sorted(held),
                "transfer": transfer,
                **({} if answers else {"without": from_region}),
            },
        )
    return await _owned_by(connection, workload, slots, to_region)


@global_transaction(ROLE, "give up slots of {region}")
async def _give_up(
    connection: AsyncConnection,
    workload: _Workload,
    division: Division,
    held: Numbers,
    region: RegionId,
    transfer: str,
    answers: bool,
) -> None:
    await _refuse_old(connection, workload, division)
    if not answers:
        await _refuse_unfenced(connection, region)
    ended = {**workload, "region": region, "transfer": transfer, "rows": _rows(held)}
    await connection.execute(_GIVE_UP, ended)


async def _refuse_unfenced(connection: AsyncConnection, region: RegionId) -> None:
    """It may have been opened since it was looked at: then it is asked again."""
    if not (await hold_fact(connection, region)).is_movable:
        raise RefusedError(
            RefusalCode.REGION_OPEN,
            f"{region} was opened again; nothing moved. Ask it for its slots.",
        )


async def _refuse_old(connection: AsyncConnection, workload: _Workload, division: Division) -> None:
    await refuse_old_division(connection, (workload["tenant"], workload["workload"]), division)


async def _owned_by(
    connection: AsyncConnection, workload: _Workload, slots: Sequence[int], region: RegionId
) -> Numbers:
    rows = await _lock_owners(connection, workload, slots)
    _refuse_other_owners(workload, slots, rows, {region})
    return {row.slot: row.number for row in rows}


async def _lock_owners(
    connection: AsyncConnection, workload: _Workload, slots: Sequence[int]
) -> Sequence[Any]:
    assert len(slots) <= MAX_SLOTS_PER_CALL, f"at most {MAX_SLOTS_PER_CALL} slots per call"
    assert all(slot >= 0 for slot in slots), "slots count from 0"
    wanted = {**workload, "slots": sorted(set(slots))}
    return (await connection.execute(_LOCK_OWNERS, wanted)).all()


def _refuse_other_owners(
    workload: _Workload, slots: Sequence[int], rows: Sequence[Any], regions: Set[RegionId]
) -> None:
    for row in rows:
        if row.region not in regions:
            raise RefusedError(
                RefusalCode.SLOT_NOT_OWNED,
                f"Slot {row.slot} of {_name(workload)} belongs to {row.region or 'no region'}, "
                f"not to {' or '.join(sorted(regions))}; read its owner again.",
            )
    missing = set(slots) - {row.slot for row in rows}
    if missing:
        raise RefusedError(
            RefusalCode.SLOT_NOT_OWNED,
            f"Slot {min(missing)} of {_name(workload)} was never assigned; assign it first.",
        )


def _name(workload: _Workload) -> str:
    return f"{workload['tenant']}/{workload['workload']}"


def _rows(numbers: Mapping[int, int]) -> str:
    return json.dumps([{"slot": slot, "number": number} for slot, number in numbers.items()])

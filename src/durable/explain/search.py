"""Which attempts an explanation tells of: the newest few, those of one slot, or a single one."""

from collections.abc import Sequence
from dataclasses import dataclass

from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import read_decisions
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.records import Decision

ATTEMPTS_TOLD = 5
# Of the newest so many, those of one slot are told and counted.
ATTEMPTS_SEARCHED = 50


@dataclass(frozen=True)
class Found:
    """The decisions that were asked for, the newest last, and how many older ones were not read."""

    decisions: Sequence[Decision]
    unread: int

    @property
    def told(self) -> Sequence[Decision]:
        return self.decisions[-ATTEMPTS_TOLD:]

    @property
    def left_out(self) -> int:
        return len(self.decisions) - len(self.told) + self.unread


@dataclass(frozen=True)
class Search:
    """One generation of a workload, and what of it somebody asked for."""

    databases: Databases
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot | None
    attempt: int | None

    async def of(self, region: RegionId) -> Found:
        last = ATTEMPTS_TOLD if self.slot is None else ATTEMPTS_SEARCHED
        read = await self._read(region, self.attempt, last)
        # Attempts are numbered from 1 and each has its decision.
        unread = read[0].attempt - 1 if read and self.attempt is None else 0
        return Found([one for one in read if self._concerns(one)], unread)

    async def there_are(self, regions: Sequence[RegionId]) -> str:
        """The attempts that each region made, in words."""
        parts: list[str] = []
        for region in regions:
            read = await self._read(region, None, ATTEMPTS_SEARCHED if self.slot is not None else 1)
            made = [one.attempt for one in read if self._concerns(one)]
            if made:
                parts.append(f"{region} made {_in_words(made, all_before=self.slot is None)}")
        return ", ".join(parts) or "none was made of it"

    async def _read(self, region: RegionId, attempt: int | None, last: int) -> list[Decision]:
        return await read_decisions(
            self.databases,
            region,
            self.tenant,
            self.workload,
            generation=self.generation,
            attempt=attempt,
            last=last,
        )

    def _concerns(self, decision: Decision) -> bool:
        return self.slot is None or self.slot in _asked(decision)


def _in_words(made: Sequence[int], *, all_before: bool) -> str:
    first, newest = 1 if all_before else made[0], made[-1]
    if first == newest:
        return f"attempt {newest} alone"
    if all_before or len(made) == newest - first + 1:
        return f"attempts {first} to {newest}"
    return f"attempts {', '.join(map(str, made))}"


def _asked(decision: Decision) -> Sequence[int]:
    wish = decision.evidence.get("wish")
    slots = wish.get("slots") if isinstance(wish, dict) else None
    return [slot for slot in slots if isinstance(slot, int)] if isinstance(slots, list) else []

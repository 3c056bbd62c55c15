"""Which decisions an explanation covers: the newest few, those on one slot, or a single one."""

from collections.abc import Sequence
from dataclasses import dataclass

from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import read_decisions
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.placement.records import Decision

ATTEMPTS_SHOWN = 5
# The decisions on one slot are looked for among this many of the newest.
ATTEMPTS_SEARCHED = 50


@dataclass(frozen=True)
class FoundDecisions:
    """The decisions that match, the newest last, and how many older ones were not read."""

    decisions: Sequence[Decision]
    unread: int

    @property
    def shown(self) -> Sequence[Decision]:
        return self.decisions[-ATTEMPTS_SHOWN:]

    @property
    def omitted(self) -> int:
        return len(self.decisions) - len(self.shown) + self.unread


@dataclass(frozen=True)
class DecisionSearch:
    """One generation of a workload, or only one slot or attempt of it."""

    databases: Databases
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot | None
    attempt: int | None

    async def find(self, region: RegionId) -> FoundDecisions:
        last = ATTEMPTS_SHOWN if self.slot is None else ATTEMPTS_SEARCHED
        read = await self._read(region, self.attempt, last)
        # Attempts are numbered from 1 and each has its decision.
        unread = read[0].attempt - 1 if read and self.attempt is None else 0
        return FoundDecisions([one for one in read if self._concerns(one)], unread)

    async def describe_attempts(self, regions: Sequence[RegionId]) -> str:
        """The attempts that each region made, in words."""
        parts: list[str] = []
        for region in regions:
            read = await self._read(region, None, ATTEMPTS_SEARCHED if self.slot is not None else 1)
            made = [one.attempt for one in read if self._concerns(one)]
            if made:
                attempts = _in_words(made, from_first=self.slot is None)
                parts.append(f"{region} made {attempts}")
        return ", ".join(parts) or "no attempt was made"

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
        return self.slot is None or self.slot in _requested_slots(decision)


def _in_words(made: Sequence[int], *, from_first: bool) -> str:
    first, newest = 1 if from_first else made[0], made[-1]
    if first == newest:
        return f"only attempt {newest}"
    if from_first or len(made) == newest - first + 1:
        return f"attempts {first} to {newest}"
    return f"attempts {', '.join(map(str, made))}"


def _requested_slots(decision: Decision) -> Sequence[int]:
    request = decision.evidence.get("request")
    slots = request.get("slots") if isinstance(request, dict) else None
    return [slot for slot in slots if isinstance(slot, int)] if isinstance(slots, list) else []

"""One region's share of a generation: its request, its attempts, its slots, and who acts next."""

from collections.abc import Sequence

from durable.authority.db.connection import Databases
from durable.authority.policies.region_reads import read_withdrawn
from durable.authority.queue.requests import read_request
from durable.authority.reads.intents import read_intents, read_last_tries
from durable.authority.reads.shares import ShareStatus, read_those_shares
from durable.explain.attempts import AttemptExplanation, explain_attempt
from durable.explain.decisions import DecisionSearch, FoundDecisions
from durable.explain.explanation import RegionExplanation
from durable.explain.queue import explain_queue, request_of_slot
from durable.explain.slots import (
    EndedSlot,
    SlotEnd,
    describe_condition,
    ended_slot,
    next_owner,
)
from durable.model.ids import RegionId, Slot
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.records import Decision
from durable.model.placement.request import SchedulingRequest
from durable.model.work.workload import AdmittedWorkload, WorkloadKind


class RegionExplainer:
    """Explains one workload region by region."""

    def __init__(self, databases: Databases, row: AdmittedWorkload, search: DecisionSearch) -> None:
        self._databases = databases
        self._row = row
        self._search = search
        self._key = (row.tenant, row.workload, search.generation)

    async def explain(self, region: RegionId) -> RegionExplanation | None:
        """The region's share, or None if it has none."""
        request = await read_request(self._databases, region, *self._key)
        found = await self._search.find(region)
        slots = self._slots(region, request)
        if not self._has_share(request, found, slots):
            return None
        share = await self._share(region)
        observed = [one for one in share.slots if self._concerns(one.slot)]
        attempts = [await self._attempt(decision) for decision in found.shown]
        ended = [] if request is None else await self._ended(request)
        if request is not None and self._search.slot is not None:
            request = request_of_slot(
                request,
                is_waiting=_is_waiting(request, observed, attempts, ended),
                is_completed=any(one.end is SlotEnd.COMPLETED for one in ended),
                attempts=len(found.decisions),
            )
        queue = None
        if request is not None:
            queue = await explain_queue(self._databases, request, found.decisions, share.read_at)
        return RegionExplanation(
            region=region,
            slots=slots,
            queue=queue,
            attempts=tuple(attempts),
            attempts_omitted=found.omitted,
            observed=tuple(observed),
            withdrawn=await self._withdrawn(region),
            ended=tuple(ended),
            condition=describe_condition(slots, observed, ended, queue),
            owner=next_owner(slots, observed, ended, queue),
        )

    def _concerns(self, slot: Slot) -> bool:
        return self._search.slot in (None, slot)

    def _slots(self, region: RegionId, request: SchedulingRequest | None) -> tuple[Slot, ...]:
        is_current = self._search.generation == self._row.generation
        shared = self._row.share.get(region, ()) if is_current else ()
        slots = shared or (() if request is None else request.slots)
        return tuple(slot for slot in slots if self._concerns(slot))

    def _has_share(
        self, request: SchedulingRequest | None, found: FoundDecisions, slots: Sequence[Slot]
    ) -> bool:
        if self._search.attempt is not None and not found.decisions:
            return False
        if slots:
            return True
        return request is not None and (self._search.slot is None or bool(found.decisions))

    async def _share(self, region: RegionId) -> ShareStatus:
        tenant, workload, generation = self._key
        key = (str(tenant), str(workload), generation)
        [share] = await read_those_shares(self._databases, region, [key])
        return share

    async def _withdrawn(self, region: RegionId) -> dict[int, tuple[Slot, ...]]:
        found = await read_withdrawn(self._databases, region, *self._key)
        kept = {one: tuple(filter(self._concerns, slots)) for one, slots in found.items()}
        return {revision: slots for revision, slots in kept.items() if slots}

    async def _ended(self, request: SchedulingRequest) -> list[EndedSlot]:
        """A service's slot has no end: it is placed again, or no longer desired."""
        if request.spec.kind is WorkloadKind.SERVICE:
            return []
        read = await read_last_tries(self._databases, request.region, *self._key)
        return [ended_slot(one) for one in read if self._concerns(one.slot)]

    async def _attempt(self, decision: Decision) -> AttemptExplanation:
        intents = await read_intents(self._databases, decision.region, *self._key, decision.attempt)
        return explain_attempt(decision, intents, self._search.slot)


def _is_waiting(
    request: SchedulingRequest,
    observed: Sequence[ObservedSlot],
    attempts: Sequence[AttemptExplanation],
    ended: Sequence[EndedSlot],
) -> bool:
    """Whether one slot is among those that wait; the request knows only how many they are."""
    if observed or not (request.waiting or request.held_back):
        return False
    if not ended:
        return True
    [last] = ended
    # A job's slot may be completed, or given up.
    is_tried_again = last.tries < request.spec.max_attempts or (
        bool(attempts) and bool(attempts[-1].unplaced)
    )
    return last.end is not SlotEnd.COMPLETED and is_tried_again

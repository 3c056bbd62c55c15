"""Why a workload is where it is: its decisions, what became of them, and who acts next.

Everything is read from the authority, so that it works while Temporal does not.
"""

from collections.abc import Sequence

from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import list_regions
from durable.authority.queue.requests import read_request
from durable.authority.reads.explanation import read_intents, read_last_tries
from durable.authority.reads.shares import read_those_shares
from durable.authority.workloads.rows import read_workload
from durable.explain.attempts import AttemptExplanation, explain_attempt
from durable.explain.decisions import DecisionSearch
from durable.explain.explanation import Explanation, RegionExplanation
from durable.explain.queue import explain_queue, request_of_slot
from durable.explain.slots import (
    EndedSlot,
    SlotEnd,
    describe_condition,
    ended_slot,
    next_owner,
)
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.records import Decision
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.request import SchedulingRequest
from durable.model.slots import ObservedSlot
from durable.model.workload import AdmittedWorkload, WorkloadKind, WorkloadSpec


async def explain(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation | None = None,
    slot: Slot | None = None,
    attempt: int | None = None,
) -> Explanation:
    """Explains the current generation or a given one, or only one slot or attempt of it."""
    row = await require_workload(databases, tenant, workload)
    search = DecisionSearch(
        databases, tenant, workload, generation or row.generation, slot, attempt
    )
    if search.generation > row.generation:
        raise _unknown_generation(row, search.generation)
    explainer = _RegionExplainer(databases, row, search)
    regions = await list_regions(databases)
    explained = [await explainer.explain(region) for region in regions]
    found = tuple(one for one in explained if one is not None)
    if not found and attempt is not None:
        raise await _unknown_attempt(search, regions)
    if not found and slot is not None:
        raise _unknown_slot(search)
    is_current = search.generation == row.generation
    ended = row if row.deleted and is_current else None
    completion = None if ended is None else ended.completion
    return Explanation(
        tenant=tenant,
        workload=workload,
        generation=search.generation,
        current_generation=row.generation,
        spec=row.spec if is_current else explainer.requested_spec or row.spec,
        deleting=row.deleting,
        ended=row.deleted,
        end=None if ended is None else ended.end,
        end_sentence=None if completion is None else completion.sentence,
        regions=found,
    )


async def require_workload(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload:
    """The workload as it was last admitted, even if it ended; refuses an unknown name."""
    row = await read_workload(databases, tenant, workload)
    if row is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_WORKLOAD,
            f"There is no workload {tenant}/{workload}; see durable get workloads.",
        )
    return row


def _unknown_generation(row: AdmittedWorkload, generation: Generation) -> RefusedError:
    newest = row.generation
    has = "only generation 1" if newest == 1 else f"generations 1 to {newest}"
    sentence = f"{row.tenant}/{row.workload} has {has}; there is no generation {generation}."
    return RefusedError(RefusalCode.UNKNOWN_GENERATION, sentence)


async def _unknown_attempt(search: DecisionSearch, regions: Sequence[RegionId]) -> RefusedError:
    of = f"slot {search.slot} of " if search.slot is not None else ""
    sentence = (
        f"There is no attempt {search.attempt} for {of}{search.tenant}/{search.workload} in "
        f"generation {search.generation}: {await search.describe_attempts(regions)}."
    )
    return RefusedError(RefusalCode.UNKNOWN_ATTEMPT, sentence[:500])


def _unknown_slot(search: DecisionSearch) -> RefusedError:
    return RefusedError(
        RefusalCode.UNKNOWN_SLOT,
        f"No region has decided on slot {search.slot} of {search.tenant}/{search.workload} in "
        f"generation {search.generation}; omit --slot to see all slots.",
    )


class _RegionExplainer:
    """Explains one workload region by region."""

    def __init__(self, databases: Databases, row: AdmittedWorkload, search: DecisionSearch) -> None:
        self._databases = databases
        self._row = row
        self._search = search
        self._key = (row.tenant, row.workload, search.generation)
        # What an older generation ran is known from its requests alone.
        self.requested_spec: WorkloadSpec | None = None

    async def explain(self, region: RegionId) -> RegionExplanation | None:
        """The region's share, or None if it has none."""
        slot = self._search.slot
        request = await read_request(self._databases, region, *self._key)
        found = await self._search.find(region)
        if self._search.attempt is not None and not found.decisions:
            return None
        slots = self._slots(region, request)
        if not slots and (request is None or (slot is not None and not found.decisions)):
            return None
        tenant, workload, generation = self._key
        key = (str(tenant), str(workload), generation)
        [share] = await read_those_shares(self._databases, region, [key])
        observed = [one for one in share.slots if slot in (None, one.slot)]
        attempts = [await self._attempt(decision) for decision in found.shown]
        ended: list[EndedSlot] = []
        queue = None
        if request is not None:
            self.requested_spec = request.spec
            ended = await self._ended(request)
            if slot is not None:
                request = request_of_slot(
                    request,
                    is_waiting=_is_waiting(request, observed, attempts, ended),
                    is_completed=any(one.end is SlotEnd.COMPLETED for one in ended),
                    attempts=len(found.decisions),
                )
            queue = await explain_queue(self._databases, request, found.decisions, share.read_at)
        return RegionExplanation(
            region=region,
            slots=slots,
            queue=queue,
            attempts=tuple(attempts),
            attempts_omitted=found.omitted,
            observed=tuple(observed),
            ended=tuple(ended),
            condition=describe_condition(slots, observed, ended, queue),
            owner=next_owner(slots, observed, ended, queue),
        )

    def _slots(self, region: RegionId, request: SchedulingRequest | None) -> tuple[Slot, ...]:
        is_current = self._search.generation == self._row.generation
        shared = self._row.share.get(region, ()) if is_current else ()
        slots = shared or (() if request is None else request.slots)
        return tuple(slot for slot in slots if self._search.slot in (None, slot))

    async def _ended(self, request: SchedulingRequest) -> list[EndedSlot]:
        """A service's slot has no end: it is placed again, or no longer desired."""
        if request.spec.kind is WorkloadKind.SERVICE:
            return []
        read = await read_last_tries(self._databases, request.region, *self._key)
        return [ended_slot(one) for one in read if self._search.slot in (None, one.slot)]

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
    if observed or not request.waiting:
        return False
    if not ended:
        return True
    [last] = ended
    # A job's slot may be completed, or given up.
    is_tried_again = last.tries < request.spec.max_attempts or (
        bool(attempts) and bool(attempts[-1].unplaced)
    )
    return last.end is not SlotEnd.COMPLETED and is_tried_again

"""Why a workload is where it is: its decisions, what became of them, and who moves it next.

Everything is read from the authority, so that it can also be told while Temporal is away.
"""

from collections.abc import Sequence
from datetime import datetime

from durable.authority.connection import Databases
from durable.authority.explanation import read_intents
from durable.authority.regions import list_regions
from durable.authority.requests import read_queue, read_request
from durable.authority.shares import SlotStatus, read_those_shares
from durable.authority.workloads import Admission, read_workload
from durable.explained_attempt import AttemptAccount, explain_attempt
from durable.explained_search import Search
from durable.explained_values import (
    Explanation,
    QueueAccount,
    RegionAccount,
    condition_of,
    owner_of,
    slot_account,
)
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.pending import PendingCode
from durable.model.records import Decision
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.request import RequestRow
from durable.model.states import RequestState
from durable.model.workload import WorkloadKind, WorkloadSpec
from durable.signals.status import Owner


async def explain(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation | None = None,
    slot: Slot | None = None,
    attempt: int | None = None,
) -> Explanation:
    """Tells of the newest generation or a given one; of one slot or one attempt, if asked to."""
    admitted = await read_admitted(databases, tenant, workload)
    wanted = generation or admitted.generation
    if wanted > admitted.generation:
        newest = admitted.generation
        has = "generation 1 alone" if newest == 1 else f"generations 1 to {newest}"
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{tenant}/{workload} has {has}, not {wanted}; name one that there is.",
        )
    search = Search(databases, tenant, workload, wanted, slot, attempt)
    asker = _Asker(databases, admitted, search)
    regions = await list_regions(databases)
    accounts = [await asker.region(region) for region in regions]
    found = tuple(account for account in accounts if account is not None)
    if not found and attempt is not None:
        of = f"slot {slot} of " if slot is not None else ""
        sentence = (
            f"There is no attempt {attempt} for {of}{tenant}/{workload} in generation {wanted}: "
            f"{await search.there_are(regions)}."
        )
        raise RefusedError(RefusalCode.WRONG_STATE, sentence[:500])
    if not found and slot is not None:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"No region decided on slot {slot} of {tenant}/{workload} in generation "
            f"{wanted}; leave the option away to see what there is.",
        )
    return Explanation(
        tenant=tenant,
        workload=workload,
        generation=wanted,
        current_generation=admitted.generation,
        spec=admitted.spec if wanted == admitted.generation else asker.spec or admitted.spec,
        deleting=admitted.deleting,
        ended=admitted.deleted,
        regions=found,
    )


async def read_admitted(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> Admission:
    """The workload as it was last admitted, ended ones too; refuses a name that nothing had."""
    admitted = await read_workload(databases, tenant, workload)
    if admitted is None:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"Nothing was admitted as {tenant}/{workload}; see `durable get workloads`.",
        )
    return admitted


class _Asker:
    """One question, asked of every region."""

    def __init__(self, databases: Databases, admitted: Admission, search: Search) -> None:
        self._databases = databases
        self._of = (admitted.tenant, admitted.workload)
        self._admitted = admitted
        self._search = search
        self._generation = search.generation
        self._slot = search.slot
        # What an older generation ran, as its requests tell.
        self.spec: WorkloadSpec | None = None

    async def region(self, region: RegionId) -> RegionAccount | None:
        """This region's account, or nothing if it has no part in it."""
        request = await read_request(self._databases, region, *self._of, self._generation)
        found = await self._search.of(region)
        if self._search.attempt is not None and not found.decisions:
            return None
        is_current = self._generation == self._admitted.generation
        slots = self._admitted.share.get(region, ()) if is_current else ()
        if request is not None:
            self.spec = request.spec
            slots = slots or request.slots
        if self._slot is not None:
            slots = tuple(slot for slot in slots if slot == self._slot)
        of_no_slot = self._slot is not None and not found.decisions and not slots
        if of_no_slot or (not slots and request is None):
            return None
        tenant, workload = self._of
        key = (str(tenant), str(workload), self._generation)
        [share] = await read_those_shares(self._databases, region, [key])
        standing = [one for one in share.slots if self._slot in (None, one.slot)]
        attempts = [await self._attempt_of(one) for one in found.told]
        if request is not None and self._slot is not None:
            waits = _slot_waits(request, standing, attempts)
            request = _of_one_slot(request, waits, attempts=len(found.decisions))
        queue = None
        if request is not None:
            queue = await self._queue(request, found.decisions, share.read_at)
        return RegionAccount(
            region=region,
            slots=tuple(slots),
            queue=queue,
            attempts=tuple(attempts),
            attempts_left_out=found.left_out,
            bindings=tuple(slot_account(one) for one in standing),
            condition=condition_of(standing, slots, queue),
            owner=Owner.OPERATOR if _is_held(queue) else owner_of(standing, queue),
        )

    async def _attempt_of(self, decision: Decision) -> AttemptAccount:
        intents = await read_intents(
            self._databases, decision.region, *self._of, self._generation, decision.attempt
        )
        return explain_attempt(decision, intents, self._slot)

    async def _queue(
        self, request: RequestRow, decisions: Sequence[Decision], now: datetime
    ) -> QueueAccount:
        waits = request.state is RequestState.PENDING
        position = None
        if waits:
            queue = await read_queue(self._databases, request.region)
            mine = (request.tenant, request.workload, request.generation)
            position = next(
                (
                    one.position
                    for one in queue
                    if (one.tenant, one.workload, one.generation) == mine
                ),
                None,
            )
        decided = [one.decided_at for one in decisions]
        until = now if waits or not decided else decided[-1]
        return QueueAccount(
            state=request.state,
            waiting=request.waiting,
            pending_reason=request.pending_reason,
            enqueued_at=request.enqueued_at,
            queue_seconds=max(0.0, round((until - request.enqueued_at).total_seconds(), 3)),
            position=position,
            attempts=request.attempts,
            next_retry_at=request.next_retry_at,
            deadline=request.deadline,
        )


def _slot_waits(
    request: RequestRow, standing: Sequence[SlotStatus], attempts: Sequence[AttemptAccount]
) -> bool:
    """Whether one slot is among those that wait; the queue knows only how many they are."""
    if standing or not request.waiting:
        return False
    # A job's slot without a binding may be done.
    is_service = request.spec.kind is WorkloadKind.SERVICE
    return is_service or not attempts or bool(attempts[-1].unplaced)


def _of_one_slot(request: RequestRow, waits: bool, *, attempts: int) -> RequestRow:
    """The share's request as far as it concerns one slot."""
    if waits:
        return request.model_copy(update={"waiting": 1, "attempts": attempts})
    return request.model_copy(
        update={
            "state": RequestState.PLACED if request.waiting else request.state,
            "waiting": 0,
            "pending_reason": None,
            "next_retry_at": None,
            "attempts": attempts,
        }
    )


def _is_held(queue: QueueAccount | None) -> bool:
    reason = None if queue is None else queue.pending_reason
    return (reason or "").endswith(f"({PendingCode.HELD})")

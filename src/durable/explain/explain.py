"""Why a workload is where it is: its decisions, what became of them, and who moves it next.

Everything is read from the authority, so that it can also be told while Temporal is away.
"""

from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import list_regions
from durable.authority.queue.requests import read_request
from durable.authority.reads.explanation import read_intents, read_last_tries
from durable.authority.reads.shares import read_those_shares
from durable.authority.workloads.rows import read_workload
from durable.explain.attempt import AttemptAccount, explain_attempt
from durable.explain.ends import EndAccount, end_account
from durable.explain.explanation import (
    Explanation,
    RegionAccount,
    condition_of,
    owner_of,
    slot_account,
)
from durable.explain.queue import explain_queue, of_one_slot, slot_waits
from durable.explain.search import Search
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.records import Decision
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.request import RequestRow
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
    """Tells of the newest generation or a given one; of one slot or one attempt, if asked to."""
    admitted = await read_admitted(databases, tenant, workload)
    wanted = generation or admitted.generation
    if wanted > admitted.generation:
        newest = admitted.generation
        has = "generation 1 alone" if newest == 1 else f"generations 1 to {newest}"
        raise RefusedError(
            RefusalCode.UNKNOWN_GENERATION,
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
        raise RefusedError(RefusalCode.UNKNOWN_ATTEMPT, sentence[:500])
    if not found and slot is not None:
        raise RefusedError(
            RefusalCode.UNKNOWN_SLOT,
            f"No region decided on slot {slot} of {tenant}/{workload} in generation "
            f"{wanted}; leave the option away to see what there is.",
        )
    ended = admitted if admitted.deleted and wanted == admitted.generation else None
    completion = None if ended is None else ended.completion
    return Explanation(
        tenant=tenant,
        workload=workload,
        generation=wanted,
        current_generation=admitted.generation,
        spec=admitted.spec if wanted == admitted.generation else asker.spec or admitted.spec,
        deleting=admitted.deleting,
        ended=admitted.deleted,
        end=None if ended is None else ended.end,
        end_sentence=None if completion is None else completion.sentence,
        regions=found,
    )


async def read_admitted(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload:
    """The workload as it was last admitted, ended ones too; refuses a name that nothing had."""
    admitted = await read_workload(databases, tenant, workload)
    if admitted is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_WORKLOAD,
            f"Nothing was admitted as {tenant}/{workload}; see `durable get workloads`.",
        )
    return admitted


class _Asker:
    """One question, asked of every region."""

    def __init__(self, databases: Databases, admitted: AdmittedWorkload, search: Search) -> None:
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
        ends = [] if request is None else await self._ends(request)
        if request is not None and self._slot is not None:
            waits = slot_waits(request, standing, attempts, ends)
            request = of_one_slot(request, ends, waits=waits, attempts=len(found.decisions))
        queue = None
        if request is not None:
            queue = await explain_queue(self._databases, request, found.decisions, share.read_at)
        return RegionAccount(
            region=region,
            slots=tuple(slots),
            queue=queue,
            attempts=tuple(attempts),
            attempts_left_out=found.left_out,
            bindings=tuple(slot_account(one) for one in standing),
            ends=tuple(ends),
            condition=condition_of(standing, slots, queue, ends),
            owner=owner_of(standing, slots, queue, ends),
        )

    async def _ends(self, request: RequestRow) -> list[EndAccount]:
        """A service's slot has no end: it is placed again, or no longer wanted."""
        if request.spec.kind is WorkloadKind.SERVICE:
            return []
        read = await read_last_tries(self._databases, request.region, *self._of, self._generation)
        return [end_account(one) for one in read if self._slot in (None, one.slot)]

    async def _attempt_of(self, decision: Decision) -> AttemptAccount:
        intents = await read_intents(
            self._databases, decision.region, *self._of, self._generation, decision.attempt
        )
        return explain_attempt(decision, intents, self._slot)

"""Why a workload is where it is: its decisions, what became of them, and who acts next.

Everything is read from the authority, so that it works while Temporal does not.
"""

from collections.abc import Sequence

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.workloads.generations import list_generations
from durable.authority.workloads.rows import never_admitted, read_workload
from durable.explain.decisions import DecisionSearch
from durable.explain.explanation import Explanation, RegionExplanation
from durable.explain.region import RegionExplainer
from durable.explain.rollout import explain_rollout
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec


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
    if search.generation > row.generations:
        raise _unknown_generation(row, search.generation)
    explainer = RegionExplainer(databases, row, search)
    answers = await ask_regions(await list_regions(databases), explainer.explain)
    found = tuple(one for one in answers.by_region.values() if one is not None)
    is_known = bool(found or answers.unreachable)
    if not is_known and attempt is not None:
        raise await _unknown_attempt(search, tuple(answers.by_region))
    if not is_known and slot is not None:
        raise _unknown_slot(search)
    is_current = search.generation == row.generation
    ended = row if row.deleted and is_current else None
    completion = None if ended is None else ended.completion
    return Explanation(
        tenant=tenant,
        workload=workload,
        generation=search.generation,
        current_generation=row.generation,
        spec=row.spec if is_current else _requested_spec(found) or row.spec,
        deleting=row.deleting,
        ended=row.deleted,
        deadline=row.deadline if is_current else None,
        deadline_missed_at=row.deadline_missed_at if is_current else None,
        end=None if ended is None else ended.end,
        end_sentence=None if completion is None else completion.sentence,
        rollout=await explain_rollout(databases, row),
        outcome=None if is_current else await _outcome(databases, row, search.generation),
        regions=found,
        unreachable=answers.unreachable,
    )


async def require_workload(
    databases: Databases, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload:
    """The workload as it was last admitted, even if it ended; refuses an unknown name."""
    row = await read_workload(databases, tenant, workload)
    if row is None:
        raise never_admitted(tenant, workload)
    return row


async def _outcome(
    databases: Databases, row: AdmittedWorkload, generation: Generation
) -> str | None:
    """`rolled back: it made no progress for 10m`; None if it is forgotten."""
    records = await list_generations(databases, row.tenant, row.workload)
    record = next((one for one in records if one.generation == generation), None)
    if record is None:
        return None
    why = f": {record.outcome_reason}" if record.outcome_reason else ""
    return f"{record.outcome.replace('_', ' ')}{why}"


def _unknown_generation(row: AdmittedWorkload, generation: Generation) -> RefusedError:
    newest = row.generations
    has = "only generation 1" if newest == 1 else f"generations 1 to {newest}"
    sentence = f"{row.tenant}/{row.workload} has {has}; there is no generation {generation}."
    return RefusedError(RefusalCode.UNKNOWN_GENERATION, sentence)


async def _unknown_attempt(search: DecisionSearch, regions: Sequence[RegionId]) -> RefusedError:
    of = f"slot {search.slot} of " if search.slot is not None else ""
    sentence = (
        f"There is no attempt {search.attempt} for {of}{search.tenant}/{search.workload} in "
        f"generation {search.generation}: {await search.describe_attempts(regions)}."
    )
    return RefusedError(RefusalCode.UNKNOWN_ATTEMPT, sentence)


def _unknown_slot(search: DecisionSearch) -> RefusedError:
    return RefusedError(
        RefusalCode.UNKNOWN_SLOT,
        f"No region has decided on slot {search.slot} of {search.tenant}/{search.workload} in "
        f"generation {search.generation}; omit --slot to see all slots.",
    )


def _requested_spec(regions: Sequence[RegionExplanation]) -> WorkloadSpec | None:
    """What an older generation ran is known from its requests alone."""
    return next((one.queue.request.spec for one in regions if one.queue is not None), None)

"""Why a generation that was applied is not what is wanted any more."""

from collections.abc import Sequence

from durable.authority.db.connection import Databases
from durable.authority.workloads.generations import list_generations
from durable.model.ids import Generation, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import GenerationOutcome, GenerationRecord


async def refuse_rolled_back(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    applied: Generation,
    wanted: Generation,
) -> None:
    """Refuses to wait for a generation that was rolled back, alone or with the one after it."""
    why = why_rolled_back(await list_generations(databases, tenant, workload), applied, wanted)
    if why is not None:
        sentence = f"Generation {applied} of {tenant}/{workload} {why}"
        raise RefusedError(RefusalCode.ROLLED_BACK, sentence)


def why_newest_rolled_back(records: Sequence[GenerationRecord], wanted: Generation) -> str | None:
    """Why the newest generation is not what is wanted; None if it is."""
    if not records or records[-1].generation == wanted:
        return None
    newest = records[-1].generation
    why = why_rolled_back(records, newest, wanted)
    return None if why is None else f"Generation {newest} {why}"


def why_rolled_back(
    records: Sequence[GenerationRecord], applied: Generation, wanted: Generation
) -> str | None:
    """The rest of the sentence; None if it, or one that was applied after it, is still wanted."""
    record = next((one for one in records if one.generation == applied), None)
    if record is None:
        return None
    back = f"generation {wanted} is wanted {'again' if wanted < applied else 'instead'}"
    if record.outcome is GenerationOutcome.ROLLED_BACK:
        return f"was rolled back: {record.outcome_reason or 'no reason is known'}; {back}."
    is_past = record.outcome is GenerationOutcome.SUPERSEDED and wanted < applied
    return (
        f"was superseded {record.outcome_reason}, which was rolled back; {back}."
        if is_past
        else None
    )

"""Replacing slots of a workload at a person's request: recorded first, then marked."""

from collections.abc import Sequence

from durable.activities.workload_steps import WorkloadRequest
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.operators.ledger import Answer
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.slots.replacements import mark_replaced, request_replacement
from durable.authority.workloads.rows import never_admitted, read_workload
from durable.model.ids import RegionId, Slot
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.payloads import ReplaceSlots


async def replace_slots(databases: Databases, step: WorkloadRequest) -> str:
    """Marks the claims that slots have now; sent again, those that they had then."""
    message, of = step.message, (step.tenant, step.workload)
    wanted = await _known_slots(databases, step, ReplaceSlots.read(message.payload).slots)
    answer = await _claims(databases, step, wanted)
    recorded = await request_replacement(databases, *of, message, answer)
    for region, tokens in recorded["tokens"].items():
        await mark_replaced(
            databases,
            RegionId(region),
            tokens,
            request=message.request_id,
            actor=message.actor,
            reason=message.reason,
        )
    return str(recorded["answer"])


async def _known_slots(
    databases: Databases, step: WorkloadRequest, slots: Sequence[Slot]
) -> list[Slot]:
    found = await read_workload(databases, step.tenant, step.workload)
    if found is None:
        raise never_admitted(step.tenant, step.workload)
    known = {slot for slots in found.share.values() for slot in slots}
    unknown = sorted(set(slots) - known)
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_SLOT,
            f"{step.tenant}/{step.workload} has no slot {unknown[0]}; it has {len(known)}, from 0.",
        )
    return sorted(slots or known)


async def _claims(databases: Databases, step: WorkloadRequest, wanted: Sequence[Slot]) -> Answer:
    which = ClaimFilter(tenant=step.tenant, workload=step.workload, slots=wanted)
    found = await ask_regions(
        await list_regions(databases),
        lambda region: read_claims(databases, region, which),
    )
    tokens = {
        str(region): sorted(claim.token for claim in claims)
        for region, claims in found.by_region.items()
        if claims
    }
    count = sum(map(len, tokens.values()))
    sentence = f"Replacing {count} of {len(wanted)} slots; one without a claim needs no replacing."
    missing = "".join(f" {region} does not answer." for region in found.unreachable)
    return {"answer": sentence + missing, "tokens": tokens}
